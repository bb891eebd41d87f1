//! How many webhooks are on their way to each target.
//!
//! The dispatcher takes places before it publishes, the worker gives them back when a
//! run has ended. A target that answers nobody fills its own places and no others.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The places of every target; shared by the dispatcher and the worker of one process.
#[derive(Debug)]
pub struct Targets {
    per_target: usize,
    taken: Mutex<HashMap<String, usize>>,
    given_back: Notify,
}

impl Targets {
    /// Every target has `per_target` places.
    pub fn new(per_target: usize) -> Self {
        Self { per_target, taken: Mutex::default(), given_back: Notify::new() }
    }

    /// How many places of `target` are free.
    pub fn free(&self, target: &str) -> usize {
        self.per_target.saturating_sub(self.taken.lock().get(target).copied().unwrap_or(0))
    }

    /// Takes a place. The caller has looked at `free`; one too many does no harm.
    pub fn take(&self, target: &str) {
        let mut taken = self.taken.lock();
        match taken.get_mut(target) {
            Some(count) => *count += 1,
            None => drop(taken.insert(target.to_owned(), 1)),
        }
    }

    /// Gives a place back.
    pub fn give_back(&self, target: &str) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.get_mut(target) {
            *count -= 1;
            if *count == 0 {
                taken.remove(target);
            }
        }
        drop(taken);
        self.given_back.notify_one();
    }

    /// Returns after a place was given back.
    pub async fn wait_for_place(&self) {
        self.given_back.notified().await;
    }
}
