//! Whether the disk is full. A small write may still succeed when a task does not fit, so a health
//! check that succeeds proves nothing for a while after a transaction has found no room.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::store::StoreError;

/// For how long after the last failure the disk counts as full.
const FULL_DURATION: Duration = Duration::from_secs(5);

/// When a transaction last found no room (see the module).
#[derive(Default)]
pub(crate) struct Fullness(Mutex<Option<Instant>>);

impl Fullness {
    /// A transaction found no room.
    pub(crate) fn report(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Fails while the disk counts as full.
    pub(crate) fn verdict(&self) -> Result<(), StoreError> {
        match *self.0.lock() {
            Some(last) if last.elapsed() < FULL_DURATION => {
                Err(StoreError::Full("a transaction found no room a moment ago".to_owned()))
            }
            _ => Ok(()),
        }
    }
}
