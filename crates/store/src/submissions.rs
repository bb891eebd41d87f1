//! Decides whether a submitted task is stored, replayed or refused.
//!
//! The inserts of both stores make these verdicts and answer by them. Only a task whose verdict is
//! [`SubmissionVerdict::New`] is written.

use std::collections::{HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::store::FullQueue;
use punctual_core::task::NewTask;

use crate::dependencies::{DependencyBatch, KnownParent, MemberPlan, MemberStatus, Prerequisites};

/// The verdict about one submitted task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubmissionVerdict {
    /// It is stored, with its idempotency key.
    New,
    /// It was submitted before, as this task.
    Replay(TaskId),
    /// Its idempotency key was used before, for this task.
    KeyReused(TaskId),
    /// It depends on this task, which does not exist.
    UnknownDependency(TaskId),
    /// Its queue is full.
    QueueFull(FullQueue),
    /// It needs a lane beyond this number, which its tenant may have.
    TooManyLanes(u64),
    /// It is new, but another task of its call is refused, and the call stores all or nothing.
    Withheld,
}

/// Whether a call stores what it can, or all or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InsertMode {
    /// Each task by itself.
    Each,
    /// All tasks or none.
    All,
}

impl SubmissionVerdict {
    /// The status that members of the batch which depend on this one see.
    fn member_status(&self) -> MemberStatus {
        match self {
            Self::New => MemberStatus::New,
            Self::Replay(first) => MemberStatus::As(*first),
            Self::KeyReused(_) | Self::UnknownDependency(_) => MemberStatus::Refused,
            Self::QueueFull(_) | Self::TooManyLanes(_) | Self::Withheld => MemberStatus::PutOff,
        }
    }
}

/// The verdicts of a batch, and what its new tasks wait for.
pub(crate) struct BatchPlan {
    pub verdicts: Vec<SubmissionVerdict>,
    /// The prerequisites of the new tasks; the other members have none.
    pub waits: Vec<Prerequisites>,
    /// The indices of tasks that were new and are not stored: they free their keys.
    pub refused: Vec<usize>,
}

/// Withholds the new tasks of a batch, and the replays of them, if one of the batch is refused.
/// Returns the indices of those that were new.
pub(crate) fn withhold(tasks: &[NewTask], verdicts: &mut [SubmissionVerdict]) -> Vec<usize> {
    use SubmissionVerdict::{New, Replay, Withheld};
    if verdicts.iter().all(|verdict| matches!(verdict, New | Replay(_))) {
        return Vec::new();
    }
    let new: Vec<usize> = (0..verdicts.len()).filter(|place| verdicts[*place] == New).collect();
    let ids: HashSet<TaskId> = new.iter().map(|place| tasks[*place].id).collect();
    for verdict in verdicts {
        if *verdict == New || matches!(verdict, Replay(first) if ids.contains(first)) {
            *verdict = Withheld;
        }
    }
    new
}

impl BatchPlan {
    /// Plans tasks of one batch by their verdicts so far and the parents outside it. If a member is
    /// refused, so are its replays in the batch.
    pub(crate) fn new(
        tasks: &[NewTask],
        batch: &DependencyBatch<'_>,
        known: &HashMap<TaskId, KnownParent>,
        verdicts: Vec<SubmissionVerdict>,
        mode: InsertMode,
    ) -> Self {
        let mut plan = Self { verdicts, waits: Vec::with_capacity(tasks.len()), refused: Vec::new() };
        let mut missing_of: HashMap<TaskId, TaskId> = HashMap::new();
        for (place, member) in batch.plan(known).into_iter().enumerate() {
            let waits = match member {
                MemberPlan::Create(waits) => waits,
                MemberPlan::Stays => Prerequisites::default(),
                MemberPlan::Unknown(missing) => {
                    missing_of.insert(tasks[place].id, missing);
                    let before = &mut plan.verdicts[place];
                    if std::mem::replace(before, SubmissionVerdict::UnknownDependency(missing))
                        == SubmissionVerdict::New
                    {
                        plan.refused.push(place);
                    }
                    Prerequisites::default()
                }
            };
            plan.waits.push(waits);
        }
        for verdict in &mut plan.verdicts {
            if let SubmissionVerdict::Replay(first) = verdict
                && let Some(missing) = missing_of.get(first)
            {
                *verdict = SubmissionVerdict::UnknownDependency(*missing);
            }
        }
        if mode == InsertMode::All {
            plan.refused.extend(withhold(tasks, &mut plan.verdicts));
        }
        debug_assert_eq!(plan.waits.len(), tasks.len(), "every member has a plan");
        plan
    }
}

/// The statuses of the members of a batch with these verdicts.
pub(crate) fn member_statuses(verdicts: &[SubmissionVerdict]) -> Vec<MemberStatus> {
    verdicts.iter().map(SubmissionVerdict::member_status).collect()
}
