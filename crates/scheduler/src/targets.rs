//! How many webhooks are on their way to each target.
//!
//! The dispatcher takes places before it publishes, the worker gives them back when a
//! run has ended. A target that answers nobody fills its own places and no others. And
//! when many targets hang at once, a target may take at most a quarter of the places that
//! are left (but always a first one), so that the last places are not for the crowd.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The places of every target; shared by the dispatcher and the worker of one process.
#[derive(Debug)]
pub struct Targets {
    per_target: usize,
    in_all: usize,
    taken: Mutex<Taken>,
    given_back: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    by_target: HashMap<String, usize>,
    in_all: usize,
}

impl Targets {
    /// Every target has `per_target` places, and all of them together `in_all`.
    pub fn new(per_target: usize, in_all: usize) -> Self {
        Self { per_target, in_all, taken: Mutex::default(), given_back: Notify::new() }
    }

    /// How many places `target` may take now.
    pub fn free(&self, target: &str) -> usize {
        let taken = self.taken.lock();
        let left = self.in_all.saturating_sub(taken.in_all);
        match taken.by_target.get(target) {
            Some(own) => self.per_target.saturating_sub(*own).min(left / 4),
            None => self.per_target.min((left / 4).max(left.min(1))),
        }
    }

    /// Takes a place. The caller has looked at `free`; one too many does no harm.
    pub fn take(&self, target: &str) {
        let mut taken = self.taken.lock();
        taken.in_all += 1;
        match taken.by_target.get_mut(target) {
            Some(count) => *count += 1,
            None => drop(taken.by_target.insert(target.to_owned(), 1)),
        }
    }

    /// Gives a place back.
    pub fn give_back(&self, target: &str) {
        let mut taken = self.taken.lock();
        if let Some(count) = taken.by_target.get_mut(target) {
            *count -= 1;
            if *count == 0 {
                taken.by_target.remove(target);
            }
            taken.in_all -= 1;
        }
        drop(taken);
        self.given_back.notify_one();
    }

    /// Returns after a place was given back.
    pub async fn wait_for_place(&self) {
        self.given_back.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_fills_its_own_places_and_no_others() {
        let targets = Targets::new(2, 100);
        targets.take("a");
        targets.take("a");
        assert_eq!((targets.free("a"), targets.free("b")), (0, 2));
        targets.give_back("a");
        assert_eq!(targets.free("a"), 1);
    }

    #[test]
    fn many_that_hang_leave_a_place_for_one_that_does_not() {
        let targets = Targets::new(64, 512);
        for target in 0..20 {
            let target = target.to_string();
            for _ in 0..targets.free(&target) {
                targets.take(&target);
            }
        }
        assert!(targets.free("healthy") > 0);
    }

    #[test]
    fn not_even_a_first_place_beyond_all_of_them() {
        let targets = Targets::new(1, 2);
        targets.take("a");
        assert_eq!(targets.free("b"), 1);
        targets.take("b");
        assert_eq!(targets.free("c"), 0);
    }
}
