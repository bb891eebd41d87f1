//! What the worker counts, for whoever shows metrics. Plain atomics: no metrics library
//! is known here.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How a run ended, as far as this worker saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was completed.
    Completed,
    /// The target took it on and tells by itself.
    Accepted,
    /// It failed and is tried again.
    Retried,
    /// It failed for good.
    DeadLettered,
    /// It was given back uncounted.
    GivenBack,
    /// It was cancelled while it ran.
    Cancelled,
    /// Somebody else had changed the task: what came of this run is discarded.
    Lost,
}

impl Ended {
    /// All of them.
    pub const ALL: [Ended; 7] = [
        Ended::Completed,
        Ended::Accepted,
        Ended::Retried,
        Ended::DeadLettered,
        Ended::GivenBack,
        Ended::Cancelled,
        Ended::Lost,
    ];

    /// The word in a metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            Ended::Completed => "completed",
            Ended::Accepted => "accepted",
            Ended::Retried => "retried",
            Ended::DeadLettered => "dead_lettered",
            Ended::GivenBack => "given_back",
            Ended::Cancelled => "cancelled",
            Ended::Lost => "lost",
        }
    }
}

/// The counts of one worker.
pub struct WorkerStats {
    in_flight: AtomicUsize,
    ended: [AtomicU64; Ended::ALL.len()],
    on_started: Box<dyn Fn(u64) + Send + Sync>,
}

impl WorkerStats {
    /// Counts from zero; `on_started` is told of every run that begins, with the milliseconds by which it is late.
    pub fn new(on_started: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self { in_flight: AtomicUsize::new(0), ended: Default::default(), on_started: Box::new(on_started) }
    }

    /// Calls on their way now.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Runs that ended so since the start.
    pub fn ended(&self, how: Ended) -> u64 {
        self.ended[how as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, how: Ended) {
        self.ended[how as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// A call begins; it counts as in flight until the answer is dropped.
    pub(crate) fn start(&self, lateness_millis: u64) -> InFlight<'_> {
        (self.on_started)(lateness_millis);
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
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
        for how in Ended::ALL {
            shown.field(how.as_str(), &self.ended(how));
        }
        shown.finish()
    }
}

/// A call on its way.
pub(crate) struct InFlight<'a>(&'a WorkerStats);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
