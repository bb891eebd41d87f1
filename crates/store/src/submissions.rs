//! What becomes of a submitted task, decided before it is stored.
//!
//! The inserts of both stores make these verdicts and answer by them. Only a task whose verdict is
//! [`SubmissionVerdict::New`] is written.

use punctual_core::ids::TaskId;
use punctual_core::store::FullQueue;

use crate::dependencies::MemberStatus;

/// The verdict about one submitted task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubmissionVerdict {
    /// It is stored; its idempotency key is its own from now on.
    New,
    /// It was submitted before, as this task.
    Replay(TaskId),
    /// Its idempotency key was used before, for this task.
    KeyReused(TaskId),
    /// It depends on this task, which does not exist.
    UnknownDependency(TaskId),
    /// Its queue is full.
    QueueFull(FullQueue),
}

impl SubmissionVerdict {
    /// What tasks of the same batch that depend on this one need to know.
    pub(crate) fn member_status(&self) -> MemberStatus {
        match self {
            Self::New => MemberStatus::New,
            Self::Replay(first) => MemberStatus::As(*first),
            Self::KeyReused(_) | Self::UnknownDependency(_) => MemberStatus::Refused,
            Self::QueueFull(_) => MemberStatus::PutOff,
        }
    }
}
