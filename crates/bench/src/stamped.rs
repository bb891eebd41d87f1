//! A bare, blocking HTTP/1.1 connection that knows when an answer reached this machine.
//!
//! The quiet tenant's workers of `fairness` use it. The kernel stamps what arrives. The worker
//! reads it later, when it gets a processor. On a machine shared with the server and the load that
//! can be milliseconds, and they are not the server's. The kernel begins to stamp a little after
//! the first socket asked for it; until then an answer arrives when it is read.

use std::io::{IoSliceMut, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::http_head::AnswerHead;
use crate::micro_instant::MicroInstant;

/// No answer takes longer than this.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// Read at once: more than any answer to the workers that use this.
const BUFFER_BYTES: usize = 64 * 1024;

/// A connection whose answers are stamped on arrival.
pub struct StampedConnection {
    stream: TcpStream,
    buffer: Box<[u8]>,
}

/// An answer of any status.
pub struct StampedAnswer {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
    /// When its last byte arrived.
    pub arrived: MicroInstant,
}

impl StampedConnection {
    /// Connects to `HOST:PORT`.
    pub fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        #[cfg(target_os = "linux")]
        nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::ReceiveTimestampns, &true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES].into() })
    }

    /// Sends `request` and reads the answer.
    pub fn call(&mut self, request: &[u8]) -> anyhow::Result<StampedAnswer> {
        self.send(request)?;
        self.answer()
    }

    fn send(&mut self, request: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(request)?)
    }

    fn answer(&mut self) -> anyhow::Result<StampedAnswer> {
        let (mut read, mut arrived) = (Vec::new(), MicroInstant::now());
        loop {
            if let Some((status, head, length)) = head(&read)? {
                ensure!(read.len() <= head + length, "the answer is longer than it says");
                if read.len() == head + length {
                    return Ok(StampedAnswer { status, body: read.split_off(head), arrived });
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

/// The status, the length of the head and that of the body, once the head is complete.
fn head(read: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return Ok(None) };
    let head = AnswerHead::parse(std::str::from_utf8(&read[..end])?)?;
    Ok(Some((head.status, end + 4, head.length.context("the answer does not say how long it is")?)))
}

/// Reads the available bytes, or waits for some. The instant is when the kernel got the last one.
#[cfg(target_os = "linux")]
fn receive(stream: &TcpStream, buffer: &mut [u8]) -> anyhow::Result<(usize, MicroInstant)> {
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
    Ok((received.bytes, stamped.map_or_else(MicroInstant::now, |at| MicroInstant::of_epoch(Duration::from(at)))))
}

/// Reads the available bytes, or waits for some. The instant is that of the read.
#[cfg(not(target_os = "linux"))]
fn receive(mut stream: &TcpStream, buffer: &mut [u8]) -> anyhow::Result<(usize, MicroInstant)> {
    let count = std::io::Read::read(&mut stream, buffer)?;
    Ok((count, MicroInstant::now()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::mpsc::{Sender, channel};
    use std::thread::spawn;
    use std::time::Instant;

    use super::*;

    /// Answers each request in two parts. The answer arrives with the second, between the two
    /// instants.
    fn serve(listener: &TcpListener, moments: &Sender<(MicroInstant, MicroInstant)>) -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        // Otherwise the kernel holds the second part back.
        stream.set_nodelay(true)?;
        let mut request = [0; 4];
        loop {
            stream.read_exact(&mut request)?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")?;
            let before_the_end = MicroInstant::now();
            stream.write_all(b"llo")?;
            moments.send((before_the_end, MicroInstant::now())).expect("the test receives it");
        }
    }

    #[test]
    fn an_answer_arrives_when_the_kernel_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut connection = StampedConnection::open(&listener.local_addr().unwrap().to_string()).unwrap();
        let (moments, served) = channel();
        spawn(move || serve(&listener, &moments));
        let begun = Instant::now();
        loop {
            connection.send(b"ask\n").unwrap();
            // Read long after the server has sent it.
            let (before, after) = served.recv().unwrap();
            let answer = connection.answer().unwrap();
            assert_eq!((answer.status, answer.body.as_slice()), (200, b"hello".as_slice()));
            assert!(before <= answer.arrived, "{before:?} {:?}", answer.arrived);
            if answer.arrived <= after {
                return;
            }
            // The kernel may not stamp yet.
            assert!(begun.elapsed() < ANSWER_TIMEOUT, "{:?} {after:?}", answer.arrived);
        }
    }

    #[test]
    fn an_incomplete_or_malformed_head_is_no_answer() {
        assert!(head(b"HTTP/1.1 200 OK\r\ncontent-le").unwrap().is_none());
        assert_eq!(head(b"HTTP/1.1 503 Busy\r\nx: y\r\ncontent-length: 7\r\n\r\n").unwrap(), Some((503, 46, 7)));
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(head(b"hello\r\n\r\n").is_err());
    }
}
