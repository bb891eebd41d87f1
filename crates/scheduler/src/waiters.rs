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

    /// The first workers that look at a shelf, in the order in which they came. Who has hung up is let go on the
    /// way: a claim for nobody would be two writes and a delay for everybody behind.
    pub fn first_at(&mut self, shelf: &Shelf, most: usize) -> Vec<u64> {
        let (mut first, mut gone) = (Vec::new(), Vec::new());
        for number in self.by_shelf.get(shelf).into_iter().flatten() {
            let hung_up = self.waiting.get(number).is_none_or(|waiting| waiting.reply.is_closed());
            if hung_up {
                gone.push(*number);
            } else {
                first.push(*number);
            }
            if first.len() == most {
                break;
            }
        }
        for number in gone {
            self.remove(number);
        }
        first
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

    type Line = oneshot::Receiver<Result<crate::desk::Handout, crate::desk::DeskError>>;

    fn waiting(queues: &[&str]) -> (Waiting, Line) {
        let wants = Wants::Queues(queues.iter().map(ToString::to_string).collect());
        let ask =
            Ask { tenant: "t".into(), worker: "w".into(), wants, max_tasks: 1, lease_millis: 1, wait: Duration::ZERO };
        let (reply, line) = oneshot::channel();
        (Waiting { ask, reply }, line)
    }

    fn shelf(queue: &str) -> Shelf {
        Shelf::Queue("t".into(), queue.into())
    }

    #[test]
    fn first_come_first_served_on_every_shelf() {
        let mut waiters = Waiters::default();
        let ((one, _line), (two, _other_line)) = (waiting(&["a", "b"]), waiting(&["b"]));
        let (first, second) = (waiters.add(one), waiters.add(two));
        assert_eq!(waiters.first_at(&shelf("b"), 9), [first, second]);
        assert_eq!(waiters.first_at(&shelf("b"), 1), [first]);
        waiters.remove(first);
        assert_eq!(waiters.first_at(&shelf("b"), 9), [second]);
        assert!(waiters.first_at(&shelf("a"), 9).is_empty());
        waiters.remove(second);
        assert!(waiters.by_shelf.is_empty());
    }

    #[test]
    fn who_has_hung_up_is_let_go() {
        let mut waiters = Waiters::default();
        waiters.add(waiting(&["a"]).0);
        let (patient, _line) = waiting(&["a"]);
        let patient = waiters.add(patient);
        assert_eq!(waiters.first_at(&shelf("a"), 1), [patient]);
        assert_eq!(waiters.len(), 1);
        waiters.add(waiting(&["b"]).0);
        waiters.sweep();
        assert_eq!(waiters.len(), 1);
    }
}
