//! A bare HTTP/1.1 connection for the flood of `overload`. It sends bytes that are ready, reads the
//! head of the answer and skips its body.
//!
//! A usual client is far too slow for a flood: making one request with it costs as much as the
//! server needs to refuse several.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::http_head::AnswerHead;

/// No answer takes longer than this.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);

/// A connection that is opened at the first call, and again after it was closed.
#[derive(Default)]
pub struct RawConnection(Option<BufReader<TcpStream>>);

impl RawConnection {
    /// Sends `request` and reads the answer.
    pub async fn call(&mut self, address: &str, request: &[u8]) -> anyhow::Result<AnswerHead> {
        let mut stream = match self.0.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(address).await?),
        };
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, exchange(&mut stream, request)).await;
        let answer = answer.context("no answer came")??;
        if !answer.closes {
            self.0 = Some(stream);
        }
        Ok(answer)
    }
}

async fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> anyhow::Result<AnswerHead> {
    // A server may refuse a request before it has read all of it. Then the answer is there although
    // sending failed.
    let sent = stream.write_all(request).await;
    match read(stream).await {
        Ok(answer) => Ok(AnswerHead { closes: answer.closes || sent.is_err(), ..answer }),
        Err(error) => Err(sent.map_or_else(Into::into, |()| error)),
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> anyhow::Result<AnswerHead> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            bail!("the answer ends in its head");
        }
    }
    let answer = AnswerHead::parse(&head)?;
    let mut rest = answer.length.unwrap_or(0);
    while rest > 0 {
        let skipped = stream.fill_buf().await?.len().min(rest);
        if skipped == 0 {
            bail!("the answer ends in its body");
        }
        stream.consume(skipped);
        rest -= skipped;
    }
    Ok(answer)
}
