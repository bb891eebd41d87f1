//! HTTP/1.1 by hand: just enough to read every byte that the other side sent.
//!
//! Used by the sink, which must be able to misbehave, and by requests that no proper client would
//! send.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// One request or answer.
#[derive(Clone, Debug)]
pub(crate) struct HttpMessage {
    pub(crate) start_line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A connection, and the bytes that were read beyond the last message.
pub(crate) struct HttpReader<R> {
    stream: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> HttpReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Waits for the first bytes of the next message; `false` if the other side has closed.
    pub(crate) async fn begins(&mut self) -> io::Result<bool> {
        if self.buffer.is_empty() {
            return self.more().await;
        }
        Ok(true)
    }

    /// The next message, or `None` if the other side closed before its end.
    pub(crate) async fn message(&mut self) -> io::Result<Option<HttpMessage>> {
        let Some(head) = self.through(b"\r\n\r\n").await? else { return Ok(None) };
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.split("\r\n");
        let start_line = lines.next().unwrap_or_default().to_owned();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let body = if find(&headers, "transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            self.chunks().await?
        } else if let Some(length) = find(&headers, "content-length").and_then(|length| length.parse().ok()) {
            self.exactly(length).await?
        } else {
            Some(Vec::new())
        };
        Ok(body.map(|body| HttpMessage { start_line, headers, body }))
    }

    async fn chunks(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut body = Vec::new();
        loop {
            let Some(size) = self.through(b"\r\n").await? else { return Ok(None) };
            let size = String::from_utf8_lossy(&size).trim().to_owned();
            let size = usize::from_str_radix(&size, 16).map_err(io::Error::other)?;
            let Some(chunk) = self.exactly(size + 2).await? else { return Ok(None) };
            if size == 0 {
                return Ok(Some(body));
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn through(&mut self, end: &[u8]) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(Some(self.buffer.drain(..at + end.len()).collect()));
            }
            if !self.more().await? {
                return Ok(None);
            }
        }
    }

    async fn exactly(&mut self, length: usize) -> io::Result<Option<Vec<u8>>> {
        while self.buffer.len() < length {
            if !self.more().await? {
                return Ok(None);
            }
        }
        Ok(Some(self.buffer.drain(..length).collect()))
    }

    async fn more(&mut self) -> io::Result<bool> {
        Ok(self.stream.read_buf(&mut self.buffer).await? > 0)
    }
}

/// The first header of that name, whatever its case.
pub(crate) fn find<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_are_split_at_their_ends() {
        let bytes: &[u8] =
            b"POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nhiPOST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n1\r\nd\r\n0\r\n\r\nGET /c HTTP/1.1\r\n\r\nGET /cut";
        let mut reader = HttpReader::new(bytes);
        let mut seen = Vec::new();
        while let Some(message) = reader.message().await.expect("a slice can be read") {
            seen.push((message.start_line, message.body));
        }
        let expected = [("POST /a", "hi"), ("POST /b", "abcd"), ("GET /c", "")];
        assert_eq!(seen, expected.map(|(line, body)| (format!("{line} HTTP/1.1"), body.as_bytes().to_vec())));
    }
}
