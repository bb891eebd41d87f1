//! The polls that wait for tasks, by what they poll. Pure.
//!
//! The pull side of the dispatcher is the only caller. Invariant: a poll is under each of its keys
//! until it is removed, and keys without polls are not kept.

use std::collections::{BTreeSet, HashMap};

use crate::lanes::PollKey;
use crate::polls::{PollFilter, WaitingPoll};

/// Identifies a waiting poll. Later polls have higher numbers.
pub(crate) type PollNumber = u64;

/// The waiting polls, in the order of their arrival.
#[derive(Default)]
pub(crate) struct WaitingPolls {
    next: PollNumber,
    polls: HashMap<PollNumber, WaitingPoll>,
    by_key: HashMap<PollKey, BTreeSet<PollNumber>>,
}

impl WaitingPolls {
    /// Adds a poll; returns its number.
    pub fn add(&mut self, poll: WaitingPoll) -> PollNumber {
        let number = self.next;
        self.next += 1;
        for key in poll_keys(&poll) {
            self.by_key.entry(key).or_default().insert(number);
        }
        self.polls.insert(number, poll);
        number
    }

    /// Removes a poll.
    pub fn remove(&mut self, number: PollNumber) -> Option<WaitingPoll> {
        let poll = self.polls.remove(&number)?;
        for key in poll_keys(&poll) {
            if let Some(numbers) = self.by_key.get_mut(&key) {
                let was_there = numbers.remove(&number);
                debug_assert!(was_there, "a waiting poll is under each of its keys");
                if numbers.is_empty() {
                    self.by_key.remove(&key);
                }
            }
        }
        Some(poll)
    }

    /// The poll with this number, if it still waits.
    pub fn get(&self, number: PollNumber) -> Option<&WaitingPoll> {
        self.polls.get(&number)
    }

    /// The first polls with a key, in the order of their arrival. Removes those whose workers have
    /// disconnected: a claim for one of them would cost two writes and delay the others.
    pub fn first_with(&mut self, key: &PollKey, polls_max: usize) -> Vec<PollNumber> {
        let (mut first, mut gone) = (Vec::new(), Vec::new());
        for number in self.by_key.get(key).into_iter().flatten() {
            if self.polls.get(number).is_none_or(|poll| poll.reply.is_closed()) {
                gone.push(*number);
            } else {
                first.push(*number);
            }
            if first.len() == polls_max {
                break;
            }
        }
        for number in gone {
            self.remove(number);
        }
        first
    }

    /// Removes the polls whose workers have disconnected.
    pub fn remove_disconnected(&mut self) {
        let gone: Vec<PollNumber> =
            self.polls.iter().filter(|(_, poll)| poll.reply.is_closed()).map(|(number, _)| *number).collect();
        for number in gone {
            self.remove(number);
        }
    }

    /// How many polls wait.
    pub fn len(&self) -> usize {
        self.polls.len()
    }

    /// Removes all polls.
    pub fn drain(&mut self) -> impl Iterator<Item = WaitingPoll> {
        self.by_key.clear();
        self.polls.drain().map(|(_, poll)| poll)
    }
}

/// The keys of a poll.
pub(crate) fn poll_keys(poll: &WaitingPoll) -> Vec<PollKey> {
    let tenant = &poll.request.tenant;
    match &poll.request.filter {
        PollFilter::Queues(queues) => {
            queues.iter().map(|queue| PollKey::Queue(tenant.clone(), queue.clone())).collect()
        }
        PollFilter::Kinds(kinds) => kinds.iter().map(|kind| PollKey::Kind(tenant.clone(), kind.clone())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;
    use crate::polls::{Grant, PollError, PollRequest};

    type Reply = oneshot::Receiver<Result<Grant, PollError>>;

    fn poll(queues: &[&str]) -> (WaitingPoll, Reply) {
        let filter = PollFilter::Queues(queues.iter().map(ToString::to_string).collect());
        let request = PollRequest {
            tenant: "t".into(),
            worker: "w".into(),
            filter,
            max_tasks: 1,
            lease_millis: 1,
            wait: Duration::ZERO,
        };
        let (reply, received) = oneshot::channel();
        (WaitingPoll { request, reply }, received)
    }

    fn key(queue: &str) -> PollKey {
        PollKey::Queue("t".into(), queue.into())
    }

    #[test]
    fn first_come_first_served_for_every_key() {
        let mut waiting = WaitingPolls::default();
        let ((one, _reply), (two, _other_reply)) = (poll(&["a", "b"]), poll(&["b"]));
        let (first, second) = (waiting.add(one), waiting.add(two));
        assert_eq!(waiting.first_with(&key("b"), 9), [first, second]);
        assert_eq!(waiting.first_with(&key("b"), 1), [first]);
        waiting.remove(first);
        assert_eq!(waiting.first_with(&key("b"), 9), [second]);
        assert!(waiting.first_with(&key("a"), 9).is_empty());
        waiting.remove(second);
        assert!(waiting.by_key.is_empty());
    }

    #[test]
    fn polls_of_disconnected_workers_are_removed() {
        let mut waiting = WaitingPolls::default();
        waiting.add(poll(&["a"]).0);
        let (patient, _reply) = poll(&["a"]);
        let patient = waiting.add(patient);
        assert_eq!(waiting.first_with(&key("a"), 1), [patient]);
        assert_eq!(waiting.len(), 1);
        waiting.add(poll(&["b"]).0);
        waiting.remove_disconnected();
        assert_eq!(waiting.len(), 1);
    }
}
