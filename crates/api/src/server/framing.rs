//! A strict check of where one HTTP/1.1 request ends and the next begins.
//!
//! Hyper is lenient where RFC 9112 allows it: it accepts lines that end in a bare LF, two equal
//! `Content-Length`, and `Content-Length` beside `Transfer-Encoding`. A proxy in front may read the
//! same bytes another way, and the difference is a smuggled request. We ask operators to put a
//! proxy in front, so every byte passes here before hyper sees it, and bytes with two readings are
//! refused. HTTP/2 frames its requests itself; a connection that begins with its preface passes.
//! Called by the socket of [`super::connection`].

use std::str;

/// The first bytes of an HTTP/2 connection.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The longest line. Hyper has its own, smaller bound on heads and chunk lines.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Follows the framing of one connection.
#[derive(Default)]
pub(super) struct Framing {
    expected: ExpectedPart,
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// Whether the connection begins with the HTTP/2 preface.
    preface: Preface,
    length: Option<u64>,
    chunked: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ExpectedPart {
    #[default]
    RequestLine,
    Header,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    /// Nothing more passes.
    Refused,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Preface {
    Matched(usize),
    Differs,
    Whole,
}

impl Default for Preface {
    fn default() -> Self {
        Self::Matched(0)
    }
}

/// The bytes have two readings.
struct AmbiguousFraming;

impl Framing {
    /// Checks `bytes`, the next of the connection. The error is the number of bytes that may pass.
    pub(super) fn check(&mut self, bytes: &[u8]) -> Result<(), usize> {
        self.match_preface(bytes);
        if self.preface == Preface::Whole {
            return Ok(());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let Ok(left) = self.step(rest) else {
                self.expected = ExpectedPart::Refused;
                return Err(bytes.len() - rest.len());
            };
            rest = left;
        }
        Ok(())
    }

    /// Whether the bytes so far may be those of an HTTP/2 connection.
    pub(super) fn may_be_http2(&self) -> bool {
        self.preface != Preface::Differs
    }

    fn match_preface(&mut self, bytes: &[u8]) {
        if let Preface::Matched(so_far) = self.preface {
            let wanted = &PREFACE[so_far..];
            let common = wanted.len().min(bytes.len());
            self.preface = match wanted[..common] == bytes[..common] {
                false => Preface::Differs,
                true if common == wanted.len() => Preface::Whole,
                true => Preface::Matched(so_far + common),
            };
        }
    }

    /// Takes one line, or the available part of a body, off the front of `bytes`.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], AmbiguousFraming> {
        match self.expected {
            ExpectedPart::Body(left) => Ok(self.skip(bytes, left, ExpectedPart::Body, ExpectedPart::RequestLine)),
            ExpectedPart::Chunk(left) => Ok(self.skip(bytes, left, ExpectedPart::Chunk, ExpectedPart::ChunkEnd)),
            ExpectedPart::Refused => Err(AmbiguousFraming),
            _ => {
                let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                    self.line.extend_from_slice(bytes);
                    return if self.line.len() > LINE_BYTES_MAX { Err(AmbiguousFraming) } else { Ok(&[]) };
                };
                let (piece, rest) = bytes.split_at(end + 1);
                if self.line.is_empty() {
                    self.take_line(piece)?;
                } else {
                    let mut line = std::mem::take(&mut self.line);
                    line.extend_from_slice(piece);
                    self.take_line(&line)?;
                    line.clear();
                    self.line = line;
                }
                Ok(rest)
            }
        }
    }

    fn skip<'a>(&mut self, bytes: &'a [u8], left: u64, more: fn(u64) -> ExpectedPart, done: ExpectedPart) -> &'a [u8] {
        let taken = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - taken as u64;
        self.expected = if left == 0 { done } else { more(left) };
        &bytes[taken..]
    }

    fn take_line(&mut self, line: &[u8]) -> Result<(), AmbiguousFraming> {
        let line = line.strip_suffix(b"\r\n").ok_or(AmbiguousFraming)?;
        if line.contains(&b'\r') {
            return Err(AmbiguousFraming);
        }
        self.expected = match (self.expected, line) {
            // Clients may send an empty line after a body; RFC 9112 wants it ignored.
            (ExpectedPart::RequestLine | ExpectedPart::Trailer, []) => ExpectedPart::RequestLine,
            (ExpectedPart::RequestLine, _) => ExpectedPart::Header,
            (ExpectedPart::Header, []) => self.end_head(),
            (ExpectedPart::Header, line) => {
                self.take_header(line)?;
                ExpectedPart::Header
            }
            (ExpectedPart::ChunkSize, line) => match chunk_size(line)? {
                0 => ExpectedPart::Trailer,
                size => ExpectedPart::Chunk(size),
            },
            (ExpectedPart::ChunkEnd, []) => ExpectedPart::ChunkSize,
            (ExpectedPart::Trailer, line) => {
                let (name, _) = split_header(line)?;
                if is_framing(name) {
                    return Err(AmbiguousFraming);
                }
                ExpectedPart::Trailer
            }
            (ExpectedPart::ChunkEnd | ExpectedPart::Body(_) | ExpectedPart::Chunk(_) | ExpectedPart::Refused, _) => {
                return Err(AmbiguousFraming);
            }
        };
        Ok(())
    }

    fn take_header(&mut self, line: &[u8]) -> Result<(), AmbiguousFraming> {
        let (name, value) = split_header(line)?;
        if !is_framing(name) {
            return Ok(());
        }
        if self.length.is_some() || self.chunked {
            return Err(AmbiguousFraming);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            self.length = Some(decimal(value)?);
        } else if value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
        } else {
            return Err(AmbiguousFraming);
        }
        Ok(())
    }

    fn end_head(&mut self) -> ExpectedPart {
        let chunked = std::mem::take(&mut self.chunked);
        match self.length.take() {
            _ if chunked => ExpectedPart::ChunkSize,
            Some(length @ 1..) => ExpectedPart::Body(length),
            _ => ExpectedPart::RequestLine,
        }
    }
}

fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

/// A header's name, and its value without the blanks around it. Readers disagree about a line that
/// begins with a blank and about a blank before the colon: both are refused.
fn split_header(line: &[u8]) -> Result<(&[u8], &[u8]), AmbiguousFraming> {
    let colon = line.iter().position(|&byte| byte == b':').ok_or(AmbiguousFraming)?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || name.iter().any(|byte| !byte.is_ascii_graphic()) {
        return Err(AmbiguousFraming);
    }
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    Ok((name, &value[start..end]))
}

fn decimal(digits: &[u8]) -> Result<u64, AmbiguousFraming> {
    // `parse` would take a sign.
    let digits = Some(digits).filter(|digits| digits.iter().all(u8::is_ascii_digit)).ok_or(AmbiguousFraming)?;
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(AmbiguousFraming)
}

fn chunk_size(line: &[u8]) -> Result<u64, AmbiguousFraming> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, extension) = line.split_at(digits);
    if !matches!(extension.first(), None | Some(b';')) {
        return Err(AmbiguousFraming);
    }
    str::from_utf8(size).ok().and_then(|size| u64::from_str_radix(size, 16).ok()).ok_or(AmbiguousFraming)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the bytes whole and cut at every place: where a packet ends must not matter.
    fn passes(bytes: &[u8]) -> bool {
        let whole = Framing::default().check(bytes).is_ok();
        for cut in 1..bytes.len() {
            let mut framing = Framing::default();
            let parts = framing.check(&bytes[..cut]).and_then(|()| framing.check(&bytes[cut..]));
            assert_eq!(parts.is_ok(), whole, "cut at {cut}: {:?}", String::from_utf8_lossy(bytes));
        }
        whole
    }

    #[test]
    fn plain_requests_pass_one_after_the_other() {
        assert!(passes(
            b"GET / HTTP/1.1\r\nhost: a\r\n\r\n\
              POST /x HTTP/1.1\r\nHost: a\r\nContent-Length:  5 \r\n\r\nab\n\rc\r\n\
              POST /y HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3;x=y\r\na\nb\r\n0A\r\n0123456789\r\n0\r\nx: y\r\n\r\n\
              GET / HTTP/1.1\r\n\r\n"
        ));
    }

    #[test]
    fn ambiguous_bytes_are_refused() {
        let corpus: &[&[u8]] = &[
            b"POST / HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 5\r\nContent-Length: 5\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 5, 5\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: +5\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 0x5\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length:\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
            b"POST / HTTP/1.1\r\ncontent-length : 5\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: xchunked\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: \x0bchunked\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n",
            b"POST / HTTP/1.1\r\nx: y\r\n transfer-encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\nhost: a\n\n",
            b"GET / HTTP/1.1\r\nhost: a\r\nx: y\n\r\n",
            b"GET / HTTP/1.1\r\nhost: a\rx: y\r\n\r\n",
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n-3\r\nabc\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nabc\r\n0\r\n\r\n",
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\ncontent-length: 3\r\n\r\n",
        ];
        for bytes in corpus {
            assert!(!passes(bytes), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn an_http_2_connection_frames_itself() {
        let mut bytes = PREFACE.to_vec();
        bytes.extend_from_slice(b"\0\n\0\x04content-length: 5\n");
        assert!(Framing::default().check(&bytes).is_ok());
        let mut framing = Framing::default();
        assert!(framing.check(&PREFACE[..20]).is_ok());
        assert!(framing.check(&bytes[20..]).is_ok());
        assert!(!passes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX\n"));
    }

    #[test]
    fn only_the_ambiguous_line_is_held_back() {
        let bytes = b"GET / HTTP/1.1\r\nhost: a\r\nx: y\n\r\n";
        assert_eq!(Framing::default().check(bytes), Err(b"GET / HTTP/1.1\r\nhost: a\r\n".len()));
    }

    #[test]
    fn an_overlong_line_is_refused() {
        let mut framing = Framing::default();
        assert!(framing.check(b"GET /").is_ok());
        assert!((0..20).any(|_| framing.check(&[b'a'; 8 * 1024]).is_err()));
    }
}
