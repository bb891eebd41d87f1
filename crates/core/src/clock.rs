//! The current instant. The store's clock decides which tasks are due and which have expired. So
//! every loop uses a [`Clock`] that it is given, and none asks the system. A test steps a
//! [`ManualClock`].

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::time::{Timestamp, signed_millis};

/// A source of the current instant.
pub trait Clock: Send + Sync {
    /// The current instant, in the store's time.
    fn now(&self) -> Timestamp;
}

/// The wall clock of this machine, which is the store's clock when the store is embedded.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
    fn now(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_millis(signed_millis(since_epoch))
    }
}

/// A clock that a test moves by hand.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that stands at `at`.
    pub fn new(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_millis()))
    }

    /// Moves the clock forward (or, with a negative number, back).
    pub fn advance_millis(&self, millis: i64) {
        self.0.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}
