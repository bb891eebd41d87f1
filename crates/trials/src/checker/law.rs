//! The laws, by the numbers they have in the design of the reliability tests.

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
    /// 5: leases against each other.
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
    NothingHeldForEver,
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
        Law::NothingHeldForEver,
        Law::NothingLeftBehind,
    ];

    /// The law in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Law::AcknowledgedIsKept => "an acknowledged task, or one that somebody was given, can be read afterwards",
            Law::NothingInvented => "every task was submitted, a key has one task, and every answer names that one",
            Law::FinalIsFinal => "a final state is left only by the re-drive of a dead letter",
            Law::OneCompletion => "a task completes at most once between two re-drives, by the newest token",
            Law::TokensFence => "a token is handed out once, tokens grow, and an older one than was seen has no effect",
            Law::LeaseIsKept => "no run is taken from its worker before the end of the lease that it was answered",
            Law::AttemptsCounted => "attempts count 1, 2, 3 …; only used up or hopeless tasks are dead letters",
            Law::NeverEarly => "nothing is delivered before its time, a retry not before its delay",
            Law::NeverExpired => "nothing is delivered after its expiry",
            Law::CancelHolds => {
                "a cancelled task is not delivered afterwards, and its worker learns of it at the next heartbeat"
            }
            Law::EditHolds => "what is delivered has the time and the payload of the last edit before it",
            Law::TrailIsTrue => "the trail is a legal path without a gap, ends with the row, and tells every delivery",
            Law::EachInstantOnce => "every instant of a schedule has one record and one task, and no task is without",
            Law::InTurn => "of an ordering key one task is at work at a time, and then the first of those that wait",
            Law::LimitHolds => "never are more tasks of a queue in hands than its limit allows",
            Law::DependenciesHold => {
                "what depends on others begins when all of them are at rest as it should be, and then it does begin"
            }
            Law::OneOwner => {
                "a partition and the leadership have one holder a term, and nobody writes once a greater one began"
            }
            Law::AnswersHold => "what was answered with 2xx is so for good; what was answered with 4xx had no effect",
            Law::EverythingEnds => "in the end every task has come to rest",
            Law::NothingHeldForEver => "a hold that ran out is taken back within seconds",
            Law::NothingLeftBehind => {
                "in the end no transaction is open, no lock held, no partition unowned, no key without its task"
            }
        }
    }
}

/// A broken law, and how it shows.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The law.
    pub law: Law,
    /// The task it was broken for; none when it is about a submission that has none.
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
