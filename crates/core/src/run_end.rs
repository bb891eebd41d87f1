//! The end of a run, in one vocabulary for workers, settlers, metrics and breakers.
//!
//! A worker reports a [`RunOutcome`]. [`RunOutcome::end_run`] asks the state machine for the change
//! to write, and returns it with the [`RunEnd`]: what became of the run. Both settlers call it.
//! Metrics and breakers see only the `RunEnd` of a run. Pure.

use std::time::Duration;

use crate::backoff::ExponentialBackoff;
use crate::failure::{FailureCause, TargetHealth};
use crate::json::Json;
use crate::retry::RetryPolicy;
use crate::state::{By, Change, Event, Failure, Position, State, transition};
use crate::time::millis;
use crate::trail::{ResultDropped, RunError};

/// What a worker reports about a run when it stops working on it.
#[derive(Clone, Debug, PartialEq)]
pub enum RunOutcome {
    /// The run succeeded.
    Completed {
        /// What it returned.
        result: Option<Json>,
        /// The status the webhook answered, if it was one.
        http_status: Option<u16>,
        /// Why what the webhook answered is not the result, if it is not.
        dropped: Option<ResultDropped>,
    },
    /// The webhook accepted the task for later completion. The run goes on without the caller.
    Accepted,
    /// The run failed.
    Failed(RunFailure),
    /// The pull worker that holds the task gives it back. The attempt is not counted.
    Released {
        /// How long the task waits before it can be claimed again.
        delay_millis: u64,
    },
    /// The node gives the task back, because it shuts down. The attempt is not counted.
    GivenBack,
}

/// How and why a run failed, as its worker knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFailure {
    /// Why.
    pub cause: FailureCause,
    /// What went wrong.
    pub error: RunError<'static>,
    /// The status the webhook answered, if it answered.
    pub http_status: Option<u16>,
    /// Whether another attempt could succeed, unless the policy names what is retried.
    pub retryable: bool,
    /// The delay that the worker or the webhook asked for.
    pub retry_after_millis: Option<u64>,
}

impl RunFailure {
    /// What it says about the target, or about the pull workers.
    pub const fn health(&self) -> TargetHealth {
        self.cause.health(self.retryable)
    }
}

/// The first releases in a row, after which the task can be claimed again at once.
const FREE_RELEASES: u32 = 3;

/// How long a task waits after further releases in a row. A release uses up no attempt, so workers
/// that release a task at once would otherwise pass it round and round, as fast as the store can
/// write.
const RELEASE_PAUSES: ExponentialBackoff = ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(30));

impl RunOutcome {
    /// The same outcome of a task that was released this often in a row before. A further release
    /// delays it for longer each time.
    #[must_use]
    pub fn after_releases(self, before: u32) -> Self {
        match self {
            Self::Released { delay_millis } if before >= FREE_RELEASES => {
                let pause = millis(RELEASE_PAUSES.longest_pause(before - FREE_RELEASES + 1));
                Self::Released { delay_millis: delay_millis.max(pause) }
            }
            outcome => outcome,
        }
    }

    /// Ends the run of a task at `position`: the change to write, and what becomes of the run when
    /// it is applied. None if the run goes on (it was accepted), or the task is not running.
    /// `is_under_breaker` is called for failures of an ill target only; `random` is any number.
    pub fn end_run(
        self,
        position: &Position,
        policy: &RetryPolicy,
        is_under_breaker: impl FnOnce() -> bool,
        random: u64,
        by: &By<'_>,
    ) -> Option<(Change, RunEnd)> {
        let mut returned = None;
        let event = match self {
            Self::Accepted => return None,
            Self::Completed { result, http_status, dropped } => Event::Complete { result, http_status, dropped },
            Self::Failed(failure) => Event::Fail(Failure {
                // A target that refuses the task itself uses up an attempt: the breaker is not
                // about that.
                is_under_breaker: failure.health() == TargetHealth::Ill && is_under_breaker(),
                cause: failure.cause,
                error: failure.error,
                http_status: failure.http_status,
                retryable: failure.retryable,
                retry_after_millis: failure.retry_after_millis,
                policy: policy.clone(),
                // Only lost workers make a task poison, and this one has reported.
                poison_after: 0,
                random,
            }),
            Self::Released { delay_millis } => {
                returned = Some(RunEnd::Released);
                Event::GiveBack(by.now.plus_unsigned_millis(delay_millis))
            }
            Self::GivenBack => {
                returned = Some(RunEnd::GivenBack);
                Event::GiveBack(by.now)
            }
        };
        let change = transition(position, event, by).ok()?;
        let end = match (change.to, returned) {
            (State::Pending, Some(returned)) => returned,
            (State::Completed, _) => RunEnd::Completed,
            (State::Cancelled, _) => RunEnd::Cancelled,
            (to, _) => RunEnd::failed(to),
        };
        Some((change, end))
    }
}

/// What became of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It succeeded.
    Completed,
    /// The webhook accepted it for later completion: the target is well, the result is not known
    /// yet.
    Accepted,
    /// It failed, and another attempt follows.
    Retried,
    /// It failed, and no attempt follows.
    DeadLettered,
    /// The node gave the task back before the run had an outcome. This says nothing about its
    /// target.
    GivenBack,
    /// The pull worker gave the task back. This says nothing about its target, and may happen at
    /// every run.
    Released,
    /// The run was asked to stop.
    Cancelled,
    /// The task had changed meanwhile, and the outcome was discarded.
    Stale,
}

impl RunEnd {
    /// All of them.
    pub const ALL: [RunEnd; 8] = [
        RunEnd::Completed,
        RunEnd::Accepted,
        RunEnd::Retried,
        RunEnd::DeadLettered,
        RunEnd::GivenBack,
        RunEnd::Released,
        RunEnd::Cancelled,
        RunEnd::Stale,
    ];

    /// The end of a run that failed, when its task goes to this state.
    pub const fn failed(to: State) -> Self {
        if matches!(to, State::Pending) { RunEnd::Retried } else { RunEnd::DeadLettered }
    }

    /// This end as the breakers count it, when it was a failure that says so much about the
    /// target. A refusal of the task shows that the target works.
    #[must_use]
    pub const fn for_breakers(self, health: TargetHealth) -> Self {
        match health {
            _ if !self.is_failure() => self,
            TargetHealth::Ill => self,
            TargetHealth::Well => RunEnd::Completed,
            TargetHealth::Unknown => RunEnd::GivenBack,
        }
    }

    /// Whether the run failed.
    pub const fn is_failure(self) -> bool {
        matches!(self, RunEnd::Retried | RunEnd::DeadLettered)
    }

    /// The value of the metrics' label `outcome`. Two differ from our words, since labels are a
    /// contract: the metric has one word for both ways to give a task back, and `lost` for a stale
    /// outcome.
    pub const fn metric_label(self) -> &'static str {
        match self {
            RunEnd::Completed => "completed",
            RunEnd::Accepted => "accepted",
            RunEnd::Retried => "retried",
            RunEnd::DeadLettered => "dead_lettered",
            RunEnd::GivenBack | RunEnd::Released => "given_back",
            RunEnd::Cancelled => "cancelled",
            RunEnd::Stale => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;
    use crate::time::Timestamp;
    use crate::trail::Actor;

    const RUNNING: Position =
        Position { state: State::Running, version: 5, attempts: 1, crashes: 0, cancel_requested: false };

    const RELEASED: RunOutcome = RunOutcome::Released { delay_millis: 0 };

    fn by() -> By<'static> {
        By { now: Timestamp::from_millis(1_000), node: NodeId::new(7), actor: Actor::Node }
    }

    fn end_of(outcome: RunOutcome, position: Position) -> Option<(State, RunEnd)> {
        let ended = outcome.end_run(&position, &RetryPolicy::default(), || false, 0, &by());
        ended.map(|(change, end)| (change.to, end))
    }

    fn failed(retryable: bool) -> RunOutcome {
        RunOutcome::Failed(RunFailure {
            cause: FailureCause::Reported,
            error: RunError { code: "boom".into(), message: "it broke".into(), details: None },
            http_status: None,
            retryable,
            retry_after_millis: None,
        })
    }

    fn completed() -> RunOutcome {
        RunOutcome::Completed { result: None, http_status: Some(204), dropped: None }
    }

    #[test]
    fn every_outcome_has_its_end() {
        for (outcome, to, end) in [
            (completed(), State::Completed, RunEnd::Completed),
            (failed(true), State::Pending, RunEnd::Retried),
            (failed(false), State::DeadLettered, RunEnd::DeadLettered),
            (RELEASED, State::Pending, RunEnd::Released),
            (RunOutcome::GivenBack, State::Pending, RunEnd::GivenBack),
        ] {
            assert_eq!(end_of(outcome.clone(), RUNNING), Some((to, end)), "{outcome:?}");
            assert_eq!(end.is_failure(), matches!(outcome, RunOutcome::Failed(_)), "{outcome:?}");
        }
        assert_eq!(end_of(RunOutcome::Accepted, RUNNING), None, "the run goes on");
    }

    #[test]
    fn a_run_that_was_asked_to_stop_ends_cancelled() {
        let stopping = Position { version: 6, cancel_requested: true, ..RUNNING };
        for outcome in [completed(), failed(true), RELEASED, RunOutcome::GivenBack] {
            assert_eq!(end_of(outcome, stopping), Some((State::Cancelled, RunEnd::Cancelled)));
        }
    }

    #[test]
    fn releases_in_a_row_delay_the_task() {
        let due = |before| {
            let outcome = RELEASED.after_releases(before);
            let (change, _) = outcome.end_run(&RUNNING, &RetryPolicy::default(), || false, 0, &by()).unwrap();
            change.due_at.unwrap().millis_since(by().now)
        };
        assert_eq!([0, 1, 2, 3, 4, 5, 11, 12, u32::MAX].map(due), [0, 0, 0, 100, 200, 400, 25_600, 30_000, 30_000]);
        let asked = RunOutcome::Released { delay_millis: 60_000 };
        assert_eq!(asked.clone().after_releases(9), asked);
        assert_eq!(RunOutcome::GivenBack.after_releases(9), RunOutcome::GivenBack, "a node gives it back");
    }

    #[test]
    fn only_a_failure_asks_for_the_breaker() {
        let ended = |outcome: RunOutcome, is_open: fn() -> bool| {
            let policy = RetryPolicy { max_retries: 1, ..RetryPolicy::default() };
            outcome.end_run(&Position { attempts: 2, ..RUNNING }, &policy, is_open, 0, &by()).unwrap().1
        };
        assert_eq!(ended(completed(), || panic!("not asked")), RunEnd::Completed);
        assert_eq!(ended(failed(true), || false), RunEnd::DeadLettered);
        assert_eq!(ended(failed(true), || true), RunEnd::Retried, "the attempt is not counted");
    }

    #[test]
    fn a_refusal_uses_up_an_attempt_under_a_breaker() {
        let refusal = |status| {
            let RunOutcome::Failed(failure) = failed(true) else { panic!("it failed") };
            RunOutcome::Failed(RunFailure { cause: FailureCause::Status(status), ..failure })
        };
        let is_counted = |status| {
            let ended = refusal(status).end_run(&RUNNING, &RetryPolicy::default(), || true, 0, &by());
            ended.unwrap().0.attempts.is_none()
        };
        assert_eq!([402, 429, 503].map(is_counted), [true, false, false]);
    }

    #[test]
    fn breakers_count_what_says_that_the_target_is_ill() {
        for failed in [RunEnd::Retried, RunEnd::DeadLettered] {
            assert_eq!(failed.for_breakers(TargetHealth::Ill), failed);
            assert_eq!(failed.for_breakers(TargetHealth::Well), RunEnd::Completed);
            assert_eq!(failed.for_breakers(TargetHealth::Unknown), RunEnd::GivenBack);
        }
        assert_eq!(RunEnd::Cancelled.for_breakers(TargetHealth::Well), RunEnd::Cancelled);
    }

    #[test]
    fn labels_are_those_of_the_metric() {
        let mut labels: Vec<_> = RunEnd::ALL.map(RunEnd::metric_label).into();
        labels.dedup();
        assert_eq!(labels, ["completed", "accepted", "retried", "dead_lettered", "given_back", "cancelled", "lost"]);
        for (index, end) in RunEnd::ALL.into_iter().enumerate() {
            assert_eq!(end as usize, index, "counters are indexed by it");
        }
    }
}
