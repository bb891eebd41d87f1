//! Why a run failed, as far as retries and breakers ask. Pure.
//!
//! A worker or the reaper names the cause. The retry policy decides by it whether the task is
//! retried ([`RetryPolicy::retries`](crate::retry::RetryPolicy::retries)), and breakers what the
//! run says about its target ([`FailureCause::health`]).

use crate::trail::FailedHow;

/// Why a run failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The webhook answered with this status.
    Status(u16),
    /// It did not end within the task's timeout.
    Timeout,
    /// The target gave no answer, or none that is HTTP.
    Connection,
    /// The target may not be called, so it was not.
    NotCalled,
    /// A worker reported the failure.
    Reported,
    /// The worker was lost.
    Lost,
}

/// What a failed run says about the target that it went to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetHealth {
    /// The target works: it refused this task only.
    Well,
    /// The target does not work.
    Ill,
    /// Nothing: the target did not decide how the run ended.
    Unknown,
}

impl FailureCause {
    /// How the run ended, as the trail records it.
    pub const fn how(self) -> FailedHow {
        match self {
            Self::Status(_) | Self::Connection | Self::NotCalled | Self::Reported => FailedHow::Failed,
            Self::Timeout => FailedHow::TimedOut,
            Self::Lost => FailedHow::Lost,
        }
    }

    /// What it says about the target. A worker that calls its failure not worth a retry
    /// (`retryable`) refuses the task, as a target does with a 4xx.
    pub const fn health(self, retryable: bool) -> TargetHealth {
        match self {
            Self::Status(429 | 500..) | Self::Timeout | Self::Connection => TargetHealth::Ill,
            Self::Reported if retryable => TargetHealth::Ill,
            Self::Status(_) | Self::Reported => TargetHealth::Well,
            Self::NotCalled | Self::Lost => TargetHealth::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_429_and_5xx_are_answers_of_an_ill_target() {
        let is_ill = |status: &u16| FailureCause::Status(*status).health(true) == TargetHealth::Ill;
        let ill: Vec<u16> = (300..600).filter(is_ill).collect();
        assert_eq!(ill, std::iter::once(429).chain(500..600).collect::<Vec<u16>>());
        assert_eq!(FailureCause::Status(402).health(true), TargetHealth::Well, "also if it is retried");
    }

    #[test]
    fn a_worker_that_refuses_a_task_is_well() {
        assert_eq!(FailureCause::Reported.health(true), TargetHealth::Ill);
        assert_eq!(FailureCause::Reported.health(false), TargetHealth::Well);
    }
}
