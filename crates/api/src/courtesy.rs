//! Long work that makes way.
//!
//! Where all processors are busy, a thread that wakes up to give out a task which is due waits until one of those that run
//! has used up its slice, some milliseconds. So whatever works for longer than a fraction of one offers its processor to
//! those who wait, every now and then; if nobody does, that costs nearly nothing.

use std::io;
use std::thread::yield_now;

/// About a tenth of a millisecond's work.
const ITEMS: usize = 64;
const BYTES: usize = 32 * 1024;

/// The same items.
pub fn in_turns<T>(items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    items.into_iter().enumerate().map(|(number, item)| {
        if number % ITEMS == ITEMS - 1 {
            yield_now();
        }
        item
    })
}

/// What is written, in memory.
pub struct Text {
    bytes: Vec<u8>,
    /// So many bytes had been written when it made way last.
    last: usize,
}

impl Default for Text {
    fn default() -> Self {
        // Room for a task, so that the usual answer is not copied while it grows.
        Self { bytes: Vec::with_capacity(1_024), last: 0 }
    }
}

impl Text {
    /// All of it.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() - self.last >= BYTES {
            self.last = self.bytes.len();
            yield_now();
        }
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write(bytes).map(drop)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let items: Vec<usize> = (0..=3 * ITEMS).collect();
        assert_eq!(in_turns(items.clone()).collect::<Vec<_>>(), items);
        let mut text = Text::default();
        for item in &items {
            text.write_all(&[u8::try_from(item % 256).unwrap(); 1_000]).unwrap();
        }
        let expected: Vec<u8> = items.iter().flat_map(|item| [u8::try_from(item % 256).unwrap(); 1_000]).collect();
        assert_eq!(text.into_bytes(), expected);
    }
}
