//! A bare HTTP/1.1 connection: sends bytes that are ready, looks at the status and skips the rest.
//!
//! For a flood the usual client is too slow by far: what it takes to make one request is what
//! the server takes to refuse several.

use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// No answer takes longer than this.
const PATIENCE: Duration = Duration::from_mins(1);

/// A connection that is opened when it is needed, and again when it was closed.
#[derive(Default)]
pub struct Connection(Option<BufReader<TcpStream>>);

/// What matters of an answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Whether it says when to come back.
    pub retry_after: bool,
    length: usize,
    closes: bool,
}

impl Connection {
    /// Sends `request` and reads the answer.
    pub async fn call(&mut self, address: &str, request: &[u8]) -> anyhow::Result<Answer> {
        let mut stream = match self.0.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(address).await?),
        };
        let answer =
            tokio::time::timeout(PATIENCE, exchange(&mut stream, request)).await.context("no answer came")??;
        if !answer.closes {
            self.0 = Some(stream);
        }
        Ok(answer)
    }
}

async fn exchange(stream: &mut BufReader<TcpStream>, request: &[u8]) -> anyhow::Result<Answer> {
    // Whoever is refused is told so before everything is sent: then the answer is there although the rest cannot go.
    let sent = stream.write_all(request).await;
    match read(stream).await {
        Ok(answer) => Ok(Answer { closes: answer.closes || sent.is_err(), ..answer }),
        Err(error) => Err(sent.map_or_else(Into::into, |()| error)),
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> anyhow::Result<Answer> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let mut answer = Answer { status: status.with_context(|| format!("no status in {line:?}"))?, ..Answer::default() };
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            bail!("the answer ends in its head");
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => answer.length = value.trim().parse()?,
            "retry-after" => answer.retry_after = true,
            "connection" => answer.closes = value.trim().eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    let mut rest = answer.length;
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
