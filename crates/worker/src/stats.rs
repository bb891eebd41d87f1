//! The worker's counters, which the node copies to its metrics.
//!
//! They are plain atomics, without a metrics library. Invariant: every run counts once, by its
//! [`RunEnd`].

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use punctual_core::run_end::RunEnd;

/// The counters of one worker.
pub struct WorkerStats {
    in_flight: AtomicUsize,
    ended: [AtomicU64; RunEnd::ALL.len()],
    on_started: Box<dyn Fn(u64) + Send + Sync>,
}

impl WorkerStats {
    /// Counts from zero. `on_started` is called with the lateness of every run, in milliseconds.
    pub fn new(on_started: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { in_flight: AtomicUsize::new(0), ended: Default::default(), on_started: Box::new(on_started) }
    }

    /// Calls in flight now.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Runs with this end since the start.
    pub fn ended(&self, end: RunEnd) -> u64 {
        self.ended[end as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, end: RunEnd) {
        self.ended[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A call begins; it is in flight until the returned value is dropped.
    pub(crate) fn start(&self, lateness_millis: u64) -> InFlightCall<'_> {
        (self.on_started)(lateness_millis);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightCall(self)
    }
}

impl Default for WorkerStats {
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl fmt::Debug for WorkerStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("WorkerStats");
        shown.field("in_flight", &self.in_flight());
        for end in RunEnd::ALL {
            shown.field(&format!("{end:?}"), &self.ended(end));
        }
        shown.finish()
    }
}

/// A call in flight.
pub(crate) struct InFlightCall<'a>(&'a WorkerStats);

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "more calls ended than began");
    }
}
