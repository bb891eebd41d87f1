//! Operations that have read a task and not yet written it. A crash loses them, and other writes
//! may come first.

use std::fmt;

use punctual_core::state::State;

use crate::bug::Bug;
use crate::law::Author;
use crate::machine::ModelEvent;
use crate::protocol::Protocol;
use crate::row::{Cause, HoldLeft, ModelRow, RowPosition, SettleReport, Version};
use crate::store::WriteCondition;

/// What an operation is about to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlannedWrite {
    /// The report of the holder of a token.
    Settle {
        /// The token.
        token: Version,
        /// The report.
        report: SettleReport,
    },
    /// The holder of a token was asked to stop.
    Stop {
        /// The token.
        token: Version,
    },
    /// The dispatcher gives a claimed task back: the worker hung up, or the broker refused it.
    GiveBack,
    /// The submitter cancels it.
    Cancel,
    /// The operator re-drives it.
    Redrive,
    /// The reaper takes it back.
    Reap(ReapReason),
}

/// Why the reaper takes a task back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReapReason {
    /// It was not started by its `expires_at`.
    Expired,
    /// It was dispatched and not started in time.
    Unstarted,
    /// It was asked to stop and its worker has not answered.
    Stopped,
    /// The run went past its deadline.
    TimedOut,
    /// The worker or its node was lost.
    Lost {
        /// Whether it was one of our nodes. A task does not kill those, so they never make it
        /// poison.
        of_node: bool,
    },
}

/// An operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Operation {
    /// The task's number.
    pub task: usize,
    /// The position of the task when it was read.
    pub read: RowPosition,
    /// The hold that the reaper read: its write compares it.
    pub judged: Option<HoldLeft>,
    /// The write that it plans.
    pub what: PlannedWrite,
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
            PlannedWrite::Settle { token, .. } | PlannedWrite::Stop { token } => Author::Holder(token),
            PlannedWrite::GiveBack => Author::Holder(self.read.version),
            PlannedWrite::Cancel | PlannedWrite::Redrive | PlannedWrite::Reap(_) => Author::Other,
        }
    }
}

impl Protocol {
    /// The event of an operation.
    pub(crate) fn event(&self, operation: &Operation, row: &ModelRow) -> ModelEvent {
        match operation.what {
            PlannedWrite::Settle { report: SettleReport::Completed(letter), .. } => ModelEvent::Complete(letter),
            PlannedWrite::Settle { report: SettleReport::Failed { retryable }, .. } => {
                self.failure(row, Cause::Reported { retryable }, 0)
            }
            PlannedWrite::Settle { report: SettleReport::Released, .. }
            | PlannedWrite::GiveBack
            | PlannedWrite::Reap(ReapReason::Unstarted) => ModelEvent::GiveBack,
            PlannedWrite::Settle { report: SettleReport::Heartbeat, .. } => unreachable!("a heartbeat settles nothing"),
            PlannedWrite::Stop { .. } | PlannedWrite::Reap(ReapReason::Stopped) => ModelEvent::Stopped,
            PlannedWrite::Cancel => ModelEvent::Cancel,
            PlannedWrite::Redrive => ModelEvent::Redrive,
            PlannedWrite::Reap(ReapReason::Expired) => ModelEvent::Expire,
            PlannedWrite::Reap(ReapReason::TimedOut) => self.failure(row, Cause::TimedOut, self.bounds.poison_after),
            PlannedWrite::Reap(ReapReason::Lost { of_node }) => {
                self.failure(row, Cause::Lost, if of_node { 0 } else { self.bounds.poison_after })
            }
        }
    }

    /// The condition of an operation's write.
    pub(crate) fn condition(&self, operation: &Operation) -> WriteCondition {
        let ignored = match operation.what {
            PlannedWrite::Reap(_) => self.has(Bug::ReaperIgnoresVersion),
            PlannedWrite::Settle { .. } => self.has(Bug::TokenIgnored),
            _ => false,
        };
        if ignored { WriteCondition::StateOnly } else { WriteCondition::Full }
    }

    /// A failure. A breaker is open over the task until `spared` failures were not counted. An
    /// operation that read an older row loses anyway.
    fn failure(&self, row: &ModelRow, cause: Cause, poison_after: u8) -> ModelEvent {
        let max_retries = self.bounds.max_retries + u8::from(self.has(Bug::OneRetryTooMany));
        let is_under_breaker = row.times_spared() < self.bounds.spared;
        ModelEvent::Fail { cause, max_retries, poison_after, is_under_breaker }
    }
}

/// The decision of the reaper about a task, as in `punctual_leader::reaper`.
pub(crate) fn reap_reason(row: &ModelRow) -> Option<ReapReason> {
    match (row.position.state, row.hold) {
        (State::Pending | State::Queued, _) if row.expires_in == Some(0) => Some(ReapReason::Expired),
        (State::Queued, _) => Some(ReapReason::Unstarted),
        (State::Running, _) if row.position.cancel_requested => Some(ReapReason::Stopped),
        (State::Running, Some(hold)) if hold.deadline == 0 => Some(ReapReason::TimedOut),
        (State::Running, Some(hold)) => Some(ReapReason::Lost { of_node: hold.of_node }),
        _ => None,
    }
}
