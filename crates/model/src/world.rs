//! The world, and the actions in it.

use std::fmt;

use crate::law::Laws;
use crate::operation::Operation;
use crate::row::{Letter, ModelRow, SettleReport, Version};

/// The state of everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// The tasks, as they are stored.
    pub rows: Vec<ModelRow>,
    /// The open operations of workers, clients and the dispatcher, sorted.
    pub clients: Vec<Operation>,
    /// The open operation of the reaper.
    pub reaper: Option<Operation>,
    /// Crashes to come.
    pub crashes: u8,
    /// The laws that were broken so far.
    pub broken: Laws,
}

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Time passes.
    Tick,
    /// A worker, or the dispatcher, claims a task. If the claimant does not get it (the worker hung
    /// up, the broker refused it), the dispatcher gives it back.
    Claim {
        /// The task.
        task: usize,
        /// Whether the claimant gets it.
        taken: bool,
    },
    /// The broker delivers the message of this version, and a node starts the run.
    Start {
        /// The task.
        task: usize,
        /// The version in the message.
        version: Version,
    },
    /// The holder of a token completes: the write without a read.
    Complete {
        /// The task.
        task: usize,
        /// The token.
        token: Version,
        /// The result.
        letter: Letter,
    },
    /// The holder of a token sends a heartbeat.
    Beat {
        /// The task.
        task: usize,
        /// The token.
        token: Version,
        /// Whether the run goes on outside of the node that began it.
        detach: bool,
    },
    /// The server reads the task to settle a report.
    Settle {
        /// The task.
        task: usize,
        /// The token.
        token: Version,
        /// The report.
        report: SettleReport,
    },
    /// An operation of a client or the reaper reads the task.
    Open(Operation),
    /// An open operation writes.
    Write(Operation),
    /// The server dies; open operations are lost.
    Crash,
}

impl World {
    /// Whether every task has finished.
    pub fn is_finished(&self) -> bool {
        self.rows.iter().all(|row| row.position.state.is_final())
    }

    /// Whether an open operation will find the task changed.
    pub fn has_a_late_write(&self) -> bool {
        self.clients.iter().chain(&self.reaper).any(|operation| {
            let now = self.rows[operation.task].position;
            (now.state, now.version) != (operation.read.state, operation.read.version)
        })
    }

    /// Whether the reaper has judged a hold that was extended or detached since.
    pub fn has_a_stale_judgement(&self) -> bool {
        self.reaper.is_some_and(|Operation { task, read, judged, .. }| {
            let row = &self.rows[task];
            row.position == read && row.hold.zip(judged).is_some_and(|(hold, judged)| !hold.is_as(judged))
        })
    }

    pub(crate) fn open(&mut self, operation: Operation) {
        let place = self.clients.partition_point(|other| *other <= operation);
        self.clients.insert(place, operation);
    }

    pub(crate) fn close(&mut self, operation: &Operation) {
        if self.reaper.as_ref() == Some(operation) {
            self.reaper = None;
        } else if let Some(place) = self.clients.iter().position(|other| other == operation) {
            self.clients.remove(place);
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Tick => f.write_str("a tick"),
            Action::Claim { task, taken: true } => write!(f, "task {task} is claimed"),
            Action::Claim { task, taken: false } => write!(f, "task {task} is claimed for a worker that hung up"),
            Action::Start { task, version } => write!(f, "task {task} is started by the message of v{version}"),
            Action::Complete { task, token, letter } => {
                write!(f, "task {task}, token {token}: completed with {letter:?}")
            }
            Action::Beat { task, token, detach: false } => write!(f, "task {task}, token {token}: heartbeat"),
            Action::Beat { task, token, detach: true } => {
                write!(f, "task {task}, token {token}: detached from its node")
            }
            Action::Settle { task, token, report } => {
                write!(f, "task {task}, token {token}: the server reads the task for {report:?}")
            }
            Action::Open(operation) => write!(f, "{operation}, to be written"),
            Action::Write(operation) => write!(f, "{operation}, written"),
            Action::Crash => f.write_str("the server crashes"),
        }
    }
}
