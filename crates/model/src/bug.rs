//! Bugs that can be planted in the model, to show that the checker finds them.
//!
//! The state machine is the real one and stays correct. The bugs are in the store, the settlement,
//! the dispatcher and the reaper around it.

use crate::bounds::{ModelBounds, Route};
use crate::law::Law;

/// How a bug shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A law is broken.
    Broken(Law),
    /// A task stays unfinished forever.
    Stuck,
}

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bug {
    /// A report is written if the task runs, whatever the token.
    TokenIgnored,
    /// A heartbeat extends the hold whatever the token.
    HeartbeatIgnoresToken,
    /// A heartbeat extends the hold past the deadline.
    HeartbeatPassesDeadline,
    /// A heartbeat extends a hold that has run out, if the task was not taken back yet.
    ExtendRevives,
    /// The token is the number of the attempt, which a give-back and a re-drive use again.
    TokenIsAttempt,
    /// A re-drive begins at version 1 again.
    RedriveResetsVersion,
    /// A re-drive leaves the expiry that has passed.
    RedriveKeepsExpiry,
    /// The reaper takes back at `expires_at <= now + 1`, when the worker still has
    /// `now < expires_at`.
    ExpiryOffByOne,
    /// The reaper writes if the task still runs, whatever the version it read.
    ReaperIgnoresVersion,
    /// The reaper writes although the hold it judged was extended or detached since, which changes
    /// no version.
    ReaperJudgesStaleHold,
    /// The attempt is counted when it completes, not when it is claimed.
    AttemptCountedAtCompletion,
    /// A task that was given back keeps the attempt.
    GiveBackCounts,
    /// A failure under a breaker keeps the attempt.
    SparedCounts,
    /// A lease, two steps in one write, leaves the first out of the trail.
    LeaseSkipsAStep,
    /// One retry more than the policy allows is made.
    OneRetryTooMany,
    /// A request to stop leaves the version.
    CancelKeepsVersion,
    /// A completion is accepted from a run that was asked to stop.
    StopIgnoredByCompletion,
    /// The claim takes cancelled tasks too.
    CancelledIsClaimed,
    /// A completion is accepted from a token that was reaped, while no other worker has the task.
    ReapedTokenCompletes,
    /// A completion is accepted for a dead letter.
    DeadLetterCompletes,
    /// A completed task completes again, with the later result.
    CompletesTwice,
    /// A message that is delivered twice starts two runs.
    StartsTwice,
    /// A settle that is repeated is stale.
    RepeatRefused,
    /// A completion that is repeated with another result is accepted.
    RepeatIgnoresResult,
    /// The reaper ignores runs that were asked to stop.
    StopsNotReaped,
    /// The reaper ignores tasks that were dispatched and never started.
    UnstartedNotReaped,
    /// The reaper does nothing.
    ReaperOff,
    /// After a crash there is no sweep for waiting tasks, and their hints are lost.
    SweepOff,
    /// A report is acknowledged before it is written.
    AcknowledgedBeforeWritten,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Bug; 29] = [
        Bug::TokenIgnored,
        Bug::HeartbeatIgnoresToken,
        Bug::HeartbeatPassesDeadline,
        Bug::ExtendRevives,
        Bug::TokenIsAttempt,
        Bug::RedriveResetsVersion,
        Bug::RedriveKeepsExpiry,
        Bug::ExpiryOffByOne,
        Bug::ReaperIgnoresVersion,
        Bug::ReaperJudgesStaleHold,
        Bug::AttemptCountedAtCompletion,
        Bug::GiveBackCounts,
        Bug::SparedCounts,
        Bug::LeaseSkipsAStep,
        Bug::OneRetryTooMany,
        Bug::CancelKeepsVersion,
        Bug::StopIgnoredByCompletion,
        Bug::CancelledIsClaimed,
        Bug::ReapedTokenCompletes,
        Bug::DeadLetterCompletes,
        Bug::CompletesTwice,
        Bug::StartsTwice,
        Bug::RepeatRefused,
        Bug::RepeatIgnoresResult,
        Bug::StopsNotReaped,
        Bug::UnstartedNotReaped,
        Bug::ReaperOff,
        Bug::SweepOff,
        Bug::AcknowledgedBeforeWritten,
    ];

    /// How it must show.
    pub const fn finding(self) -> Finding {
        Finding::Broken(match self {
            Bug::TokenIgnored => Law::NewestCompletes,
            Bug::HeartbeatIgnoresToken => Law::Fenced,
            Bug::HeartbeatPassesDeadline | Bug::ExtendRevives => Law::WithinDeadline,
            Bug::TokenIsAttempt | Bug::RedriveResetsVersion => Law::TokensGrow,
            Bug::RedriveKeepsExpiry => Law::RedrivenRuns,
            Bug::ExpiryOffByOne | Bug::ReaperJudgesStaleHold => Law::LeaseKept,
            Bug::AttemptCountedAtCompletion | Bug::GiveBackCounts | Bug::SparedCounts => Law::AttemptsCounted,
            Bug::LeaseSkipsAStep => Law::TrailGapless,
            Bug::OneRetryTooMany => Law::AttemptsBounded,
            Bug::CancelKeepsVersion | Bug::StopIgnoredByCompletion | Bug::ReaperIgnoresVersion => Law::StopIsKept,
            Bug::CancelledIsClaimed => Law::NoLeaseAfterCancel,
            Bug::ReapedTokenCompletes | Bug::StartsTwice => Law::StepsLegal,
            Bug::DeadLetterCompletes => Law::FinalAbsorbs,
            Bug::CompletesTwice => Law::OneCompletion,
            Bug::RepeatRefused => Law::RepeatAccepted,
            Bug::RepeatIgnoresResult | Bug::AcknowledgedBeforeWritten => Law::AnswersTrue,
            Bug::StopsNotReaped | Bug::UnstartedNotReaped | Bug::ReaperOff | Bug::SweepOff => return Finding::Stuck,
        })
    }

    /// A world in which it shows.
    pub fn bounds(self) -> ModelBounds {
        match self {
            Bug::StartsTwice | Bug::UnstartedNotReaped | Bug::ReaperJudgesStaleHold => ModelBounds::life(Route::Push),
            Bug::RedriveKeepsExpiry => ModelBounds::expiring(Route::Pull),
            Bug::SparedCounts => ModelBounds::under_breaker(Route::Pull),
            _ => ModelBounds::life(Route::Pull),
        }
    }
}
