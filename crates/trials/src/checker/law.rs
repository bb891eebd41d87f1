//! The laws, with their numbers in the design of the reliability tests.

use std::fmt;

use punctual_core::ids::TaskId;

/// A promise of the product that an outside observer can check: [`Law::sentence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// 1: acknowledged submissions.
    AcknowledgedIsKept,
    /// 2: submissions and tasks.
    NothingInvented,
    /// 3: final states.
    FinalIsFinal,
    /// 4: completions.
    OneCompletion,
    /// 5: fencing tokens.
    TokensFence,
    /// 5: leases that overlap.
    LeaseIsKept,
    /// 6: the counting of attempts.
    AttemptsCounted,
    /// 7: due instants, delays and expiries.
    NeverEarly,
    /// 7: expiries.
    NeverExpired,
    /// 8: cancellations.
    CancelHolds,
    /// 9: new times and new payloads.
    EditHolds,
    /// 10: the audit trail.
    TrailIsTrue,
    /// 11: recurring schedules.
    EachInstantOnce,
    /// 12: ordering keys.
    InTurn,
    /// 12: the concurrency of a queue.
    LimitHolds,
    /// 13: dependencies.
    DependenciesHold,
    /// 17: terms of partitions and of the leadership.
    OneOwner,
    /// 18: answers.
    AnswersHold,
    /// 21: the end of every task.
    EverythingEnds,
    /// 22: holds that ran out.
    NothingHeldForever,
    /// 23: the database after the quiet time.
    NothingLeftBehind,
}

impl Law {
    /// Every law.
    pub const ALL: [Law; 21] = [
        Law::AcknowledgedIsKept,
        Law::NothingInvented,
        Law::FinalIsFinal,
        Law::OneCompletion,
        Law::TokensFence,
        Law::LeaseIsKept,
        Law::AttemptsCounted,
        Law::NeverEarly,
        Law::NeverExpired,
        Law::CancelHolds,
        Law::EditHolds,
        Law::TrailIsTrue,
        Law::EachInstantOnce,
        Law::InTurn,
        Law::LimitHolds,
        Law::DependenciesHold,
        Law::OneOwner,
        Law::AnswersHold,
        Law::EverythingEnds,
        Law::NothingHeldForever,
        Law::NothingLeftBehind,
    ];

    /// The law in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Law::AcknowledgedIsKept => "a task that was acknowledged or delivered can be read afterwards",
            Law::NothingInvented => "every task was submitted, a key has one task, and every answer names that task",
            Law::FinalIsFinal => "a final state is left only by the re-drive of a dead letter",
            Law::OneCompletion => "a task completes at most once between two re-drives, by the newest token",
            Law::TokensFence => {
                "a token is handed out once, tokens grow, and a token older than one seen has no effect"
            }
            Law::LeaseIsKept => "no run is taken from its worker before the end of the lease in the answer",
            Law::AttemptsCounted => {
                "attempts count 1, 2, 3 …; a dead letter has used up its retries or has an error not worth one"
            }
            Law::NeverEarly => "no task is delivered before its time, no retry before its delay",
            Law::NeverExpired => "no task is delivered after its expiry",
            Law::CancelHolds => {
                "a cancelled task is not delivered afterwards, and the next heartbeat of its worker is refused"
            }
            Law::EditHolds => "a delivered task has the time and the payload of the last edit before it",
            Law::TrailIsTrue => "the trail is a legal path without a gap, ends with the row, and has every delivery",
            Law::EachInstantOnce => {
                "every instant of a schedule has one record and one task, and no task is without a record"
            }
            Law::InTurn => "one task of an ordering key runs at a time, and the first waiting one is next",
            Law::LimitHolds => "no more tasks of a queue are claimed at once than its limit allows",
            Law::DependenciesHold => {
                "a task begins once all its dependencies have finished as its policy requires, and not before"
            }
            Law::OneOwner => {
                "a partition and the leadership have one holder a term, and no node writes under an older term"
            }
            Law::AnswersHold => "a call answered with 2xx has its effect for good; a call answered with 4xx has none",
            Law::EverythingEnds => "in the end every task has finished",
            Law::NothingHeldForever => "a hold that ran out is taken back within seconds",
            Law::NothingLeftBehind => {
                "in the end no transaction is open, no lock is held, no partition is unowned, no key is without its task"
            }
        }
    }
}

/// A broken law and its evidence.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The law.
    pub law: Law,
    /// The task; none for a submission without a task.
    pub task: Option<TaskId>,
    /// What was seen.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { law, task, evidence } = self;
        write!(f, "{law:?} ({}): ", law.sentence())?;
        if let Some(task) = task {
            write!(f, "{task}: ")?;
        }
        f.write_str(evidence)
    }
}
