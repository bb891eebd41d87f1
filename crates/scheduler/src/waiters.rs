//! The pull workers that wait at the desk, by the shelves they look at. Pure.

use std::collections::{BTreeSet, HashMap};

use crate::board::Shelf;
use crate::desk::{Waiting, Wants};

/// Waiting workers, in the order in which they came.
#[derive(Default)]
pub(crate) struct Waiters {
    next: u64,
    waiting: HashMap<u64, Waiting>,
    by_shelf: HashMap<Shelf, BTreeSet<u64>>,
}

impl Waiters {
    /// Takes a worker in; answers its number.
    pub fn add(&mut self, waiting: Waiting) -> u64 {
        let number = self.next;
        self.next += 1;
        for shelf in shelves(&waiting) {
            self.by_shelf.entry(shelf).or_default().insert(number);
        }
        self.waiting.insert(number, waiting);
        number
    }

    /// Lets a worker go.
    pub fn remove(&mut self, number: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&number)?;
        for shelf in shelves(&waiting) {
            if let Some(numbers) = self.by_shelf.get_mut(&shelf) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.by_shelf.remove(&shelf);
                }
            }
        }
        Some(waiting)
    }

    pub fn get(&self, number: u64) -> Option<&Waiting> {
        self.waiting.get(&number)
    }

    /// The workers that look at a shelf, in the order in which they came.
    pub fn at(&self, shelf: &Shelf) -> impl Iterator<Item = u64> {
        self.by_shelf.get(shelf).into_iter().flatten().copied()
    }

    /// Lets go of workers that have hung up.
    pub fn sweep(&mut self) {
        let gone: Vec<u64> =
            self.waiting.iter().filter(|(_, waiting)| waiting.reply.is_closed()).map(|(number, _)| *number).collect();
        for number in gone {
            self.remove(number);
        }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Waiting> {
        self.by_shelf.clear();
        self.waiting.drain().map(|(_, waiting)| waiting)
    }
}

/// The shelves a worker looks at.
pub(crate) fn shelves(waiting: &Waiting) -> Vec<Shelf> {
    let tenant = &waiting.ask.tenant;
    match &waiting.ask.wants {
        Wants::Queues(queues) => queues.iter().map(|queue| Shelf::Queue(tenant.clone(), queue.clone())).collect(),
        Wants::Kinds(kinds) => kinds.iter().map(|kind| Shelf::Kind(tenant.clone(), kind.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::Ask;
    use std::time::Duration;
    use tokio::sync::oneshot;

    fn waiting(queues: &[&str]) -> Waiting {
        let wants = Wants::Queues(queues.iter().map(ToString::to_string).collect());
        let ask = Ask { tenant: "t".into(), worker: "w".into(), wants, max_tasks: 1, lease_millis: 1, wait: Duration::ZERO };
        Waiting { ask, reply: oneshot::channel().0 }
    }

    fn shelf(queue: &str) -> Shelf {
        Shelf::Queue("t".into(), queue.into())
    }

    #[test]
    fn first_come_first_served_on_every_shelf() {
        let mut waiters = Waiters::default();
        let first = waiters.add(waiting(&["a", "b"]));
        let second = waiters.add(waiting(&["b"]));
        assert!(waiters.at(&shelf("b")).eq([first, second]));
        waiters.remove(first);
        assert!(waiters.at(&shelf("b")).eq([second]));
        assert_eq!(waiters.at(&shelf("a")).count(), 0);
        waiters.remove(second);
        assert!(waiters.by_shelf.is_empty());
    }

    #[test]
    fn who_has_hung_up_is_let_go() {
        let mut waiters = Waiters::default();
        waiters.add(waiting(&["a"]));
        waiters.sweep();
        assert_eq!(waiters.len(), 0);
    }
}
