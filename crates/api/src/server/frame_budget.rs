//! How many frames that carry nothing an HTTP/2 peer may send.
//!
//! Pings, settings, priorities, resets and empty data cost their sender nothing, and each has to be
//! read, and some to be answered. They also keep a connection from being idle. A peer that sends
//! more of them than any client needs is cut. The parser behind has its own bounds on heads and on
//! requests that are reset at once. Called by the socket of [`super::connection`].

use std::io;

use tokio::time::Instant;

use super::framing::{Framing, PREFACE};

/// What a peer may send at once, and what it may send more each second. A client that cancels a
/// hundred requests a second, all the time, stays below.
const BURST: u32 = 1_000;
const PER_SECOND: u32 = 100;

/// The head of a frame: three bytes of length, its type, its flags and its stream.
const HEAD_BYTES: usize = 9;

/// Follows the frames of one connection.
pub(super) struct FrameBudget {
    /// What is left of the preface, before the first frame.
    preface_left: usize,
    head: [u8; HEAD_BYTES],
    /// How much of the head is there.
    filled: usize,
    /// What is left of the payload.
    payload_left: usize,
    left: u32,
    refilled_at: Instant,
}

impl FrameBudget {
    pub(super) fn new(now: Instant) -> Self {
        let preface_left = PREFACE.len();
        Self { preface_left, head: [0; HEAD_BYTES], filled: 0, payload_left: 0, left: BURST, refilled_at: now }
    }

    /// Counts the frames in `bytes`, the next of the connection, if it speaks HTTP/2.
    pub(super) fn check(&mut self, framing: &Framing, mut bytes: &[u8], now: Instant) -> io::Result<()> {
        if !framing.may_be_http2() {
            return Ok(());
        }
        loop {
            skip(&mut bytes, &mut self.preface_left);
            skip(&mut bytes, &mut self.payload_left);
            if bytes.is_empty() {
                return Ok(());
            }
            let taken = bytes.len().min(HEAD_BYTES - self.filled);
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == HEAD_BYTES {
                self.filled = 0;
                self.take_head(now)?;
            }
        }
    }

    fn take_head(&mut self, now: Instant) -> io::Result<()> {
        let [high, middle, low, kind, flags, ..] = self.head;
        self.payload_left = u32::from_be_bytes([0, high, middle, low]) as usize;
        if !carries_nothing(kind, flags, self.payload_left) {
            return Ok(());
        }
        if self.left == 0 {
            self.refill(now);
        }
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            let error = "the peer sends too many HTTP/2 frames that carry nothing";
            io::Error::new(io::ErrorKind::InvalidData, error)
        })?;
        Ok(())
    }

    fn refill(&mut self, now: Instant) {
        let earned = now.duration_since(self.refilled_at).as_millis() * u128::from(PER_SECOND) / 1_000;
        if earned > 0 {
            self.left = u32::try_from(earned).unwrap_or(BURST).min(BURST);
            self.refilled_at = now;
        }
    }
}

fn carries_nothing(kind: u8, flags: u8, length: usize) -> bool {
    const ENDS_STREAM: u8 = 1;
    match kind {
        // Data.
        0 => length == 0 && flags & ENDS_STREAM == 0,
        // Headers, promises, the end of the connection, windows and more headers.
        1 | 5 | 7 | 8 | 9 => false,
        // Priorities, resets, settings, pings, and what nobody knows.
        _ => true,
    }
}

fn skip(bytes: &mut &[u8], left: &mut usize) {
    let skipped = bytes.len().min(*left);
    *bytes = &bytes[skipped..];
    *left -= skipped;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// Whether a connection with these frames lives, whatever packets they come in.
    fn lives(frames: &[u8], packet: usize) -> bool {
        let now = Instant::now();
        let (mut framing, mut budget) = (Framing::default(), FrameBudget::new(now));
        let bytes = [PREFACE, frames].concat();
        bytes.chunks(packet).all(|bytes| {
            assert!(framing.check(bytes).is_ok());
            budget.check(&framing, bytes, now).is_ok()
        })
    }

    #[test]
    fn frames_that_carry_nothing_are_bounded() {
        let most = BURST as usize;
        for empty in
            [frame(6, 0, &[0; 8]), frame(4, 0, &[]), frame(2, 0, &[0; 5]), frame(3, 0, &[0; 4]), frame(0, 0, &[])]
        {
            for packet in [1, 7, 9, 4_096] {
                assert!(lives(&empty.repeat(most), packet), "{empty:?} in packets of {packet}");
                assert!(!lives(&empty.repeat(most + 1), packet), "{empty:?} in packets of {packet}");
            }
        }
    }

    #[test]
    fn requests_and_data_are_not_counted() {
        for full in [frame(1, 5, &[0x82]), frame(0, 0, b"data"), frame(0, 1, &[]), frame(8, 0, &[0, 0, 0, 1])] {
            assert!(lives(&full.repeat(3 * BURST as usize), 1_000));
        }
    }

    #[test]
    fn time_allows_more() {
        let start = Instant::now();
        let (mut framing, mut budget) = (Framing::default(), FrameBudget::new(start));
        assert!(framing.check(PREFACE).is_ok());
        budget.check(&framing, PREFACE, start).unwrap();
        let mut pings = |count: usize, seconds| {
            let now = start + Duration::from_secs(seconds);
            budget.check(&framing, &frame(6, 0, &[0; 8]).repeat(count), now).is_ok()
        };
        assert!(pings(BURST as usize, 0));
        assert!(pings(PER_SECOND as usize, 1));
        assert!(!pings(PER_SECOND as usize + 1, 2));
    }

    #[test]
    fn http_1_has_no_frames() {
        let now = Instant::now();
        let (mut framing, mut budget) = (Framing::default(), FrameBudget::new(now));
        let get = b"PRI / HTTP/1.1\r\nhost: a\r\n\r\n".repeat(2 * BURST as usize);
        for bytes in get.chunks(100) {
            assert!(framing.check(bytes).is_ok());
            budget.check(&framing, bytes, now).unwrap();
        }
    }
}
