//! Long loops and large answers that yield the processor every now and then.
//!
//! When all processors are busy, a thread that wakes to hand out a due task waits until a running
//! thread has used up its time slice, which is some milliseconds. So work that takes longer than
//! a fraction of a millisecond yields between its parts. If no thread waits, a yield costs next
//! to nothing. Called by the routes that read and write many tasks at once.

use std::io;
use std::thread::yield_now;

/// About a tenth of a millisecond of work.
const YIELD_ITEMS: usize = 64;
const YIELD_BYTES: usize = 32 * 1024;

/// The same items, with a yield after every 64.
pub fn yielding<T>(items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
    items.into_iter().enumerate().map(|(number, item)| {
        if number % YIELD_ITEMS == YIELD_ITEMS - 1 {
            yield_now();
        }
        item
    })
}

/// A buffer in memory that yields after every 32 KiB written to it.
pub struct YieldingBuffer {
    bytes: Vec<u8>,
    /// Its length at the last yield.
    yielded_at: usize,
}

impl Default for YieldingBuffer {
    fn default() -> Self {
        // Room for a task, so that the usual answer is not copied while it grows.
        Self { bytes: Vec::with_capacity(1_024), yielded_at: 0 }
    }
}

impl YieldingBuffer {
    /// All bytes written.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl io::Write for YieldingBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() - self.yielded_at >= YIELD_BYTES {
            self.yielded_at = self.bytes.len();
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
    fn yielding_loses_nothing() {
        let items: Vec<usize> = (0..=3 * YIELD_ITEMS).collect();
        assert_eq!(yielding(items.clone()).collect::<Vec<_>>(), items);
        let mut buffer = YieldingBuffer::default();
        for item in &items {
            buffer.write_all(&[u8::try_from(item % 256).unwrap(); 1_000]).unwrap();
        }
        let expected: Vec<u8> = items.iter().flat_map(|item| [u8::try_from(item % 256).unwrap(); 1_000]).collect();
        assert_eq!(buffer.into_bytes(), expected);
    }
}
