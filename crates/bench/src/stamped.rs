//! A bare, blocking HTTP/1.1 connection that knows when an answer came to this machine.
//!
//! The system stamps what arrives. Whoever reads it does so later, when it gets a processor, and on a machine that it
//! shares with the server and with the load that may be milliseconds: they are not the server's. It begins to stamp a
//! little after the first socket asked for it; until then, an answer has come when it is read.

use std::io::{IoSliceMut, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::moment::Moment;

/// No answer takes longer than this.
const PATIENCE: Duration = Duration::from_mins(1);
/// What is read at once: more than the answers of the scenarios that ask like this.
const BUFFER: usize = 64 * 1024;

/// See the module.
pub struct Connection {
    stream: TcpStream,
    buffer: Box<[u8]>,
}

/// An answer, whatever it says.
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
    /// When the last of it came.
    pub arrived: Moment,
}

impl Connection {
    /// Connects to `HOST:PORT`.
    pub fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        #[cfg(target_os = "linux")]
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::ReceiveTimestampns, &true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER].into() })
    }

    /// Sends `request` and reads the answer.
    pub fn call(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        self.send(request)?;
        self.answer()
    }

    fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(request)?)
    }

    fn answer(&mut self) -> anyhow::Result<Answer> {
        let (mut read, mut arrived) = (Vec::new(), Moment::now());
        loop {
            if let Some((status, head, length)) = head(&read)? {
                ensure!(read.len() <= head + length, "the answer is longer than it says");
                if read.len() == head + length {
                    return Ok(Answer { status, body: read.split_off(head), arrived });
                }
            }
            let count;
            (count, arrived) = receive(&self.stream, &mut self.buffer)?;
            if count == 0 {
                bail!("the connection was closed before the answer was there");
            }
            read.extend_from_slice(&self.buffer[..count]);
        }
    }
}

/// The status, the length of the head and that of the body, once the head is there.
fn head(read: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&read[..end])?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
    let length =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|(_, length)| length.trim().parse().ok());
    let status = status.with_context(|| format!("no status in {first:?}"))?;
    Ok(Some((status, end + 4, length.context("the answer does not say how long it is")?)))
}

/// Reads what is there, or waits for it; with the instant at which the system got the last of it.
#[cfg(target_os = "linux")]
fn receive(stream: &TcpStream, buffer: &mut [u8]) -> anyhow::Result<(usize, Moment)> {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
    use nix::sys::time::TimeSpec;

    let mut stamp = nix::cmsg_space!(TimeSpec);
    let mut into = [IoSliceMut::new(buffer)];
    let received = recvmsg::<()>(stream.as_raw_fd(), &mut into, Some(&mut stamp), MsgFlags::empty())?;
    let stamped = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(at) => Some(at),
        _ => None,
    });
    Ok((received.bytes, stamped.map_or_else(Moment::now, |at| Moment::of_epoch(Duration::from(at)))))
}

/// Reads what is there, or waits for it; with the instant at which it was read.
#[cfg(not(target_os = "linux"))]
fn receive(mut stream: &TcpStream, buffer: &mut [u8]) -> anyhow::Result<(usize, Moment)> {
    let count = std::io::Read::read(&mut stream, buffer)?;
    Ok((count, Moment::now()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::spawn;
    use std::time::Instant;

    use super::*;

    /// Sends an answer in two parts to each request: it has come when its last part has, between the two moments.
    fn serve(listener: &TcpListener, moments: &Sender<(Moment, Moment)>) -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        // Else the system holds back the second part.
        stream.set_nodelay(true)?;
        let mut request = [0; 4];
        loop {
            stream.read_exact(&mut request)?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")?;
            let before_the_end = Moment::now();
            stream.write_all(b"llo")?;
            moments.send((before_the_end, Moment::now())).expect("somebody waits for it");
        }
    }

    #[test]
    fn an_answer_has_come_when_the_system_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = Connection::open(&listener.local_addr().unwrap().to_string()).unwrap();
        let (moments, served) = channel();
        spawn(move || serve(&listener, &moments));
        let begun = Instant::now();
        loop {
            connection.send(b"ask\n").unwrap();
            // It is read when the server is long done with it.
            let (before, after) = served.recv().unwrap();
            let answer = connection.answer().unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (200, b"hello".as_slice()));
            assert!(before <= answer.arrived, "{before:?} {:?}", answer.arrived);
            if answer.arrived <= after {
                return;
            }
            // The system may not stamp yet.
            assert!(begun.elapsed() < PATIENCE, "{:?} {after:?}", answer.arrived);
        }
    }

    #[test]
    fn what_is_not_an_answer_is_an_error() {
        assert!(head(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap().is_none());
        assert_eq!(head(b"HTTP/1.1 503 Busy\r\nx: y\r\ncontent-length: 7\r\n\r\n").unwrap(), Some((503, 46, 7)));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(head(b"hello\r\n\r\n").is_err());
    }
}
