//! The laws that always hold.
//!
//! Laws about a step compare the row before with the row after, and know the author. They are
//! checked at the write, and a broken law stays in the world. Laws about a row alone are checked
//! there too: a row changes only by a write or by a tick, and a tick breaks none of them.

use punctual_core::state::State;

use crate::bounds::ModelBounds;
use crate::row::{Cause, ModelRow, SettleReport, StepKind, StepMark, Version};

/// A sentence that is true in every reachable world: [`Law::sentence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Law {
    /// The order of tokens.
    TokensGrow,
    /// How often a task completes.
    OneCompletion,
    /// Which token completes it.
    NewestCompletes,
    /// An old token can do nothing.
    Fenced,
    /// A finished task stays as it is.
    FinalAbsorbs,
    /// How many attempts there are.
    AttemptsBounded,
    /// How they are counted.
    AttemptsCounted,
    /// A cancelled task.
    NoLeaseAfterCancel,
    /// A cancelled run.
    StopIsKept,
    /// The numbers in the trail.
    TrailGapless,
    /// The steps in the trail.
    StepsLegal,
    /// A repeated settlement.
    RepeatAccepted,
    /// An answer and its effect.
    AnswersTrue,
    /// The promise to a worker, or to a run that was detached from its node.
    LeaseKept,
    /// How long a task is held.
    WithinDeadline,
    /// The purpose of a re-drive.
    RedrivenRuns,
}

impl Law {
    /// Every law.
    pub const ALL: [Law; 16] = [
        Law::TokensGrow,
        Law::OneCompletion,
        Law::NewestCompletes,
        Law::Fenced,
        Law::FinalAbsorbs,
        Law::AttemptsBounded,
        Law::AttemptsCounted,
        Law::NoLeaseAfterCancel,
        Law::StopIsKept,
        Law::TrailGapless,
        Law::StepsLegal,
        Law::RepeatAccepted,
        Law::AnswersTrue,
        Law::LeaseKept,
        Law::WithinDeadline,
        Law::RedrivenRuns,
    ];

    /// The law in words.
    pub const fn sentence(self) -> &'static str {
        match self {
            Law::TokensGrow => "the tokens handed out for a task strictly grow",
            Law::OneCompletion => "a task completes at most once between two re-drives",
            Law::NewestCompletes => "a task is completed with its newest token only",
            Law::Fenced => "once a token was handed out, older ones change nothing",
            Law::FinalAbsorbs => "a final state is left only by the re-drive of a dead letter",
            Law::AttemptsBounded => "between two re-drives there are at most max_retries + 1 attempts",
            Law::AttemptsCounted => {
                "every claim, unless given back or failed under a breaker, and every lost worker is counted once"
            }
            Law::NoLeaseAfterCancel => "a cancelled task is never claimed",
            Law::StopIsKept => "a run that was asked to stop ends cancelled, whatever its worker reports",
            Law::TrailGapless => "the versions in the trail have no gap and end with the task's",
            Law::StepsLegal => "every step in the trail is one of the diagram",
            Law::RepeatAccepted => "an accepted report is accepted again and changes nothing",
            Law::AnswersTrue => "an accepted report is in the trail, with its result",
            Law::LeaseKept => "only its holder ends a run before the last lease end that it was promised",
            Law::WithinDeadline => {
                "a task is held exactly while queued or running, never past the deadline; no hold that ran out is extended"
            }
            Law::RedrivenRuns => "a task that was re-driven does not expire",
        }
    }
}

/// A set of laws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Laws(u16);

impl Laws {
    /// Whether it is in the set.
    pub const fn has(self, law: Law) -> bool {
        self.0 & (1 << law as u8) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn add_unless(&mut self, holds: bool, law: Law) {
        if !holds {
            self.0 |= 1 << law as u8;
        }
    }

    pub(crate) fn with(self, others: Laws) -> Laws {
        Laws(self.0 | others.0)
    }
}

/// The author of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The holder of this token, or the server on its behalf.
    Holder(Version),
    /// Any other author.
    Other,
}

/// The laws that the write from `before` to `after` breaks.
pub(crate) fn broken_by(bounds: &ModelBounds, before: &ModelRow, after: &ModelRow, author: Author) -> Laws {
    let mut broken = Laws::default();
    let newest = before.newest_token();
    if let Author::Holder(token) = author {
        broken
            .add_unless(token >= newest || (before.position, before.hold) == (after.position, after.hold), Law::Fenced);
    }
    let begins = after.tokens().count() > before.tokens().count();
    broken.add_unless(!begins || after.handed > before.handed, Law::TokensGrow);
    let ends = before.position.state == State::Running && (begins || after.position.state != State::Running);
    broken.add_unless(!ends || before.promised == 0 || author == Author::Holder(newest), Law::LeaseKept);
    let mut last = *before.trail.last().expect("invariant: a trail begins with the submission");
    for mark in &after.trail[before.trail.len()..] {
        step(&mut broken, last, *mark, before, author);
        last = *mark;
    }
    broken.add_unless(last.version == after.position.version && last.to == after.position.state, Law::TrailGapless);
    counts(&mut broken, bounds, after);
    let held = after.hold.is_some() == after.position.state.is_held();
    let revived =
        !begins && matches!((before.hold, after.hold), (Some(old), Some(new)) if old.ticks == 0 && new.ticks > 0);
    let in_time = after.hold.is_none_or(|hold| hold.ticks <= hold.deadline);
    broken.add_unless(held && in_time && !revived, Law::WithinDeadline);
    broken
}

/// The laws that one more step breaks.
fn step(broken: &mut Laws, last: StepMark, mark: StepMark, before: &ModelRow, author: Author) {
    broken.add_unless(mark.version == last.version + 1, Law::TrailGapless);
    broken.add_unless(legal(last, mark), Law::StepsLegal);
    let redriven = last.to == State::DeadLettered && mark.kind == StepKind::Redriven;
    broken.add_unless(!last.to.is_final() || redriven, Law::FinalAbsorbs);
    broken.add_unless(last.kind != StepKind::CancelRequested || mark.kind == StepKind::Cancelled, Law::StopIsKept);
    if mark.kind == StepKind::Expired {
        broken.add_unless(before.times(StepKind::Redriven) == 0, Law::RedrivenRuns);
    }
    if mark.kind == StepKind::Claimed {
        broken.add_unless(before.times(StepKind::Cancelled) == 0, Law::NoLeaseAfterCancel);
    }
    if mark.kind == StepKind::Completed {
        broken.add_unless(author == Author::Holder(before.newest_token()), Law::NewestCompletes);
    }
}

/// The laws about counts since the task was submitted or re-driven.
fn counts(broken: &mut Laws, bounds: &ModelBounds, after: &ModelRow) {
    let generation = after.generation();
    let times = |kind: StepKind| generation.iter().filter(|mark| mark.kind == kind).count();
    let spared = generation.iter().filter(|mark| matches!(mark.kind, StepKind::Spared(_))).count();
    broken.add_unless(times(StepKind::Completed) <= 1, Law::OneCompletion);
    let attempts = times(StepKind::Claimed).saturating_sub(times(StepKind::GivenBack) + spared);
    broken.add_unless(attempts <= usize::from(bounds.max_retries) + 1, Law::AttemptsBounded);
    let started = match after.trail.last().map(|mark| mark.kind) {
        Some(StepKind::Started(attempt)) => attempt == after.position.attempts,
        _ => true,
    };
    let lost = times(StepKind::Failed(Cause::Lost)) + times(StepKind::Spared(Cause::Lost))
        == usize::from(after.position.crashes);
    broken.add_unless(attempts == usize::from(after.position.attempts) && started && lost, Law::AttemptsCounted);
}

/// The state diagram, written a second time: the machine under test must not judge itself.
fn legal(last: StepMark, mark: StepMark) -> bool {
    use State::{Cancelled, Completed, DeadLettered, Failed, Pending, Queued, Running};
    let asked = last.kind == StepKind::CancelRequested;
    match (last.to, mark.kind, mark.to) {
        (Pending, StepKind::Claimed, Queued)
        | (Queued, StepKind::Started(_), Running)
        | (Queued, StepKind::GivenBack, Pending)
        | (Pending | Queued, StepKind::Cancelled, Cancelled)
        | (Pending | Queued, StepKind::Expired, Failed)
        | (DeadLettered, StepKind::Redriven, Pending) => true,
        (Running, StepKind::Cancelled, Cancelled) => asked,
        (Running, StepKind::CancelRequested, Running)
        | (Running, StepKind::Completed, Completed)
        | (Running, StepKind::GivenBack | StepKind::Spared(_), Pending)
        | (Running, StepKind::Failed(_), Pending | DeadLettered) => !asked,
        _ => false,
    }
}

/// Whether a report is in the trail, as it must be if it was accepted.
pub(crate) fn is_in_trail(row: &ModelRow, token: Version, report: SettleReport) -> bool {
    let next = row.mark_at(token + 1).map(|mark| mark.kind);
    match report {
        SettleReport::Completed(letter) => next == Some(StepKind::Completed) && row.result == Some(letter),
        SettleReport::Failed { retryable } => {
            let cause = Cause::Reported { retryable };
            next == Some(StepKind::Failed(cause)) || (retryable && next == Some(StepKind::Spared(cause)))
        }
        SettleReport::Released => next == Some(StepKind::GivenBack),
        SettleReport::Heartbeat => true,
    }
}
