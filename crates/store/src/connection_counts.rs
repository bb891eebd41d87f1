//! How many connections a store has open, and how many of them are at work: for the metrics.
//!
//! A connection of SQLite is a thread's. Counting costs two atomic additions a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The counts of one store.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    open: AtomicUsize,
    in_use: AtomicUsize,
}

impl ConnectionCounts {
    /// How many are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// How many of them are at work.
    pub fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }
}

/// An open connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct CountedConnection {
    counts: Arc<ConnectionCounts>,
    /// How many calls it serves at once.
    calls: AtomicUsize,
}

impl CountedConnection {
    pub(crate) fn open(counts: &Arc<ConnectionCounts>) -> Self {
        counts.open.fetch_add(1, Ordering::Relaxed);
        Self { counts: Arc::clone(counts), calls: AtomicUsize::new(0) }
    }

    /// A call begins; it ends when this is dropped.
    pub(crate) fn call(&self) -> CountedCall<'_> {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            self.counts.in_use.fetch_add(1, Ordering::Relaxed);
        }
        CountedCall(self)
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call under way.
#[derive(Debug)]
pub(crate) struct CountedCall<'a>(&'a CountedConnection);

impl Drop for CountedCall<'_> {
    fn drop(&mut self) {
        if self.0.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.counts.in_use.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_with_many_calls_counts_once() {
        let counts = Arc::<ConnectionCounts>::default();
        let (first, second) = (CountedConnection::open(&counts), CountedConnection::open(&counts));
        let (one, another, other) = (first.call(), first.call(), second.call());
        assert_eq!((counts.open(), counts.in_use()), (2, 2));
        drop(one);
        drop(other);
        assert_eq!(counts.in_use(), 1, "one call is still under way");
        drop(another);
        assert_eq!((counts.open(), counts.in_use()), (2, 0));
        drop(second);
        assert_eq!(counts.open(), 1);
    }
}
