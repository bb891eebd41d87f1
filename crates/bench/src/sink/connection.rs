//! One kept connection of the sink: reads requests, answers each with 204.

use bytes::{Buf, BytesMut};
use punctual_core::time::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender;

use super::TaskArrival;
use crate::micro_instant::MicroInstant;
use punctual_core::ids::TaskId;

/// The most headers that a webhook has, and the most bytes of a request.
const HEADERS_MAX: usize = 64;
const REQUEST_MAX: usize = 2 << 20;

const ACCEPTED: &[u8] = b"HTTP/1.1 204 No Content\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";

/// A request that was read to its end.
struct Webhook {
    task: Option<TaskId>,
    due: Option<Timestamp>,
    /// How many bytes it took.
    bytes: usize,
}

/// Serves a connection until its client closes it, or sends what is no request.
pub(super) async fn serve(mut stream: TcpStream, arrivals: UnboundedSender<(TaskId, TaskArrival)>) {
    let mut received = BytesMut::with_capacity(8 << 10);
    if stream.set_nodelay(true).is_err() {
        return;
    }
    loop {
        let webhook = loop {
            match parse(&received) {
                Ok(Some(webhook)) => break webhook,
                Ok(None) if received.len() < REQUEST_MAX => {}
                Ok(None) | Err(_) => return,
            }
            if !matches!(stream.read_buf(&mut received).await, Ok(count) if count > 0) {
                return;
            }
        };
        let at = MicroInstant::now();
        received.advance(webhook.bytes);
        let answer = match (webhook.task, webhook.due) {
            (Some(task), Some(due)) => {
                // A webhook that comes after the last counted one is completed too.
                arrivals.send((task, TaskArrival { due, at })).ok();
                ACCEPTED
            }
            _ => REFUSED,
        };
        if stream.write_all(answer).await.is_err() {
            return;
        }
    }
}

/// The first request in the bytes; none if there is more to read.
fn parse(received: &[u8]) -> Result<Option<Webhook>, httparse::Error> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(received)? else { return Ok(None) };
    let mut webhook = Webhook { task: None, due: None, bytes: head };
    for header in request.headers.iter() {
        let Ok(value) = std::str::from_utf8(header.value) else { continue };
        if header.name.eq_ignore_ascii_case("content-length") {
            webhook.bytes += value.parse::<usize>().map_err(|_| httparse::Error::HeaderValue)?;
        } else if header.name.eq_ignore_ascii_case("punctual-task-id") {
            webhook.task = value.parse().ok();
        } else if header.name.eq_ignore_ascii_case("punctual-execute-at") {
            webhook.due = Timestamp::parse(value).ok();
        }
    }
    Ok((received.len() >= webhook.bytes).then_some(webhook))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_to_the_end_of_its_body() {
        let id = TaskId::new();
        let request = format!(
            "POST /hook HTTP/1.1\r\nHost: a\r\nPunctual-Task-Id: {id}\r\npunctual-execute-at: 2026-01-01T00:00:00Z\r\n\
             Content-Length: 5\r\n\r\n{{\"a\"}}GET"
        );
        let bytes = request.as_bytes();
        let whole = bytes.len() - "GET".len();
        assert!(parse(&bytes[..20]).unwrap().is_none());
        assert!(parse(&bytes[..whole - 1]).unwrap().is_none());
        let webhook = parse(bytes).unwrap().unwrap();
        assert_eq!((webhook.task, webhook.bytes), (Some(id), whole));
        assert_eq!(webhook.due, Timestamp::parse("2026-01-01T00:00:00Z").ok());
        assert!(parse(b"no request\r\n\r\n").is_err());
    }
}
