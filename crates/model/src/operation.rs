//! Operations that have read a task and not yet written: what a crash loses, and what others get in
//! between of.

use std::fmt;

use punctual_core::state::State;

use crate::bug::Bug;
use crate::law::Author;
use crate::machine::Happening;
use crate::protocol::Protocol;
use crate::row::{Cause, HoldLeft, ModelRow, Said, Stand, Version};
use crate::store::WriteCondition;

/// What an operation is about to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum What {
    /// What the holder of a token said.
    Settle {
        /// The token.
        token: Version,
        /// What it said.
        said: Said,
    },
    /// The holder of a token was told to stop.
    Stop {
        /// The token.
        token: Version,
    },
    /// The dispatcher gives back what it claimed: the worker hung up, or the broker refused it.
    GiveBack,
    /// The submitter does not want it any more.
    Cancel,
    /// The operator wants it tried again.
    Redrive,
    /// The reaper takes it back.
    Reap(Reaped),
}

/// Why the reaper takes a task back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reaped {
    /// It was not started by its `expires_at`.
    Expired,
    /// It was dispatched and not started in time.
    Unstarted,
    /// It was asked to stop and its worker has not answered.
    Stopped,
    /// The run went past its deadline.
    TimedOut,
    /// The worker was not heard of any more, or its node.
    Lost {
        /// Whether it was one of our nodes: those do not die of a task.
        of_node: bool,
    },
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// The task's number.
    pub task: usize,
    /// Where the task stood when it was read.
    pub read: Stand,
    /// The hold that was read, if the reaper read it: it must still be that when the reaper writes.
    pub judged: Option<HoldLeft>,
    /// What is to be written.
    pub what: What,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}, read at v{}: {:?}", self.task, self.read.version, self.what)
    }
}

impl Operation {
    /// On whose behalf it writes.
    pub(crate) fn author(&self) -> Author {
        match self.what {
            What::Settle { token, .. } | What::Stop { token } => Author::Holder(token),
            What::GiveBack => Author::Holder(self.read.version),
            What::Cancel | What::Redrive | What::Reap(_) => Author::Other,
        }
    }
}

impl Protocol {
    /// What an operation on a task tells the state machine.
    pub(crate) fn happening(&self, operation: &Operation, row: &ModelRow) -> Happening {
        match operation.what {
            What::Settle { said: Said::Completed(letter), .. } => Happening::Complete(letter),
            What::Settle { said: Said::Failed { retryable }, .. } => self.failure(row, Cause::Told { retryable }, 0),
            What::Settle { said: Said::Released, .. } | What::GiveBack | What::Reap(Reaped::Unstarted) => {
                Happening::GiveBack
            }
            What::Settle { said: Said::Heartbeat, .. } => unreachable!("a heartbeat settles nothing"),
            What::Stop { .. } | What::Reap(Reaped::Stopped) => Happening::Stopped,
            What::Cancel => Happening::Cancel,
            What::Redrive => Happening::Redrive,
            What::Reap(Reaped::Expired) => Happening::Expire,
            What::Reap(Reaped::TimedOut) => self.failure(row, Cause::TimedOut, self.bounds.poison_after),
            What::Reap(Reaped::Lost { of_node }) => {
                self.failure(row, Cause::Lost, if of_node { 0 } else { self.bounds.poison_after })
            }
        }
    }

    /// What an operation's write compares.
    pub(crate) fn condition(&self, operation: &Operation) -> WriteCondition {
        let ignored = match operation.what {
            What::Reap(_) => self.has(Bug::ReaperIgnoresVersion),
            What::Settle { .. } => self.has(Bug::TokenIgnored),
            _ => false,
        };
        if ignored { WriteCondition::StateOnly } else { WriteCondition::Full }
    }

    /// A breaker is open over the task until so many failures were spared. (Who has read another
    /// row than this one loses, whatever it makes of that.)
    fn failure(&self, row: &ModelRow, cause: Cause, poison_after: u8) -> Happening {
        let max_retries = self.bounds.max_retries + u8::from(self.has(Bug::OneRetryTooMany));
        let is_under_breaker = row.times_spared() < self.bounds.spared;
        Happening::Fail { cause, max_retries, poison_after, is_under_breaker }
    }
}

/// What the reaper decides about a task that it was told of, as `punctual_leader::reaper` does.
pub(crate) fn reaped(row: &ModelRow) -> Option<Reaped> {
    match (row.stand.state, row.hold) {
        (State::Pending | State::Queued, _) if row.expires_in == Some(0) => Some(Reaped::Expired),
        (State::Queued, _) => Some(Reaped::Unstarted),
        (State::Running, _) if row.stand.cancel_requested => Some(Reaped::Stopped),
        (State::Running, Some(hold)) if hold.deadline == 0 => Some(Reaped::TimedOut),
        (State::Running, Some(hold)) => Some(Reaped::Lost { of_node: hold.of_node }),
        _ => None,
    }
}
