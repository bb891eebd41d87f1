//! What must always hold.
//!
//! Laws about a step compare the row before with the row after and know who wrote; they are checked
//! at the write, and what they find stays in the world. Laws that speak of a row alone are checked
//! there too: a row changes only by a write or by a tick, and a tick breaks none of them.

use punctual_core::state::State;

use crate::bounds::ModelBounds;
use crate::row::{Cause, Deed, Mark, ModelRow, Said, Version};

/// A sentence that is true in every reachable world: [`Law::sentence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Law {
    /// Tokens against each other.
    TokensGrow,
    /// How often a task completes.
    OneCompletion,
    /// Who completes it.
    NewestCompletes,
    /// What an old token can do: nothing.
    Fenced,
    /// What becomes of a finished task: nothing.
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
    /// A settle that is said again.
    RepeatAccepted,
    /// An answer and what it stands for.
    AnswersTrue,
    /// What a worker, or a run that was detached from its node, was promised.
    LeaseKept,
    /// How long a task is held.
    WithinDeadline,
    /// What a re-drive is for.
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

    /// What it says.
    pub const fn sentence(self) -> &'static str {
        match self {
            Law::TokensGrow => "the tokens handed out for a task strictly grow",
            Law::OneCompletion => "a task completes at most once between two re-drives",
            Law::NewestCompletes => "whoever completes a task holds its newest token",
            Law::Fenced => "once a token was handed out nothing is changed by an older one",
            Law::FinalAbsorbs => "a final state is left only by the re-drive of a dead letter",
            Law::AttemptsBounded => "between two re-drives there are at most max_retries + 1 attempts",
            Law::AttemptsCounted => {
                "every claim is counted once, unless it was given back or failed under a breaker, and every lost worker"
            }
            Law::NoLeaseAfterCancel => "what was cancelled is never claimed",
            Law::StopIsKept => "a run that was asked to stop ends cancelled, whatever its worker says",
            Law::TrailGapless => "the versions in the trail have no gap and end with the task's",
            Law::StepsLegal => "every step in the trail is one of the diagram",
            Law::RepeatAccepted => "what was accepted is accepted again and changes nothing",
            Law::AnswersTrue => "what is answered as accepted is in the trail, with that result",
            Law::LeaseKept => "nobody else ends a run before the end of the lease that its holder was told last",
            Law::WithinDeadline => {
                "a task is held exactly while queued or running, never past the deadline; a hold that ran out stays so"
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

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Author {
    /// The holder of this token, or somebody on its behalf.
    Holder(Version),
    /// Anybody else.
    Other,
}

/// The laws that the write from `before` to `after` breaks.
pub(crate) fn broken_by(bounds: &ModelBounds, before: &ModelRow, after: &ModelRow, author: Author) -> Laws {
    let mut broken = Laws::default();
    let newest = before.newest_token();
    if let Author::Holder(token) = author {
        broken.add_unless(token >= newest || (before.stand, before.hold) == (after.stand, after.hold), Law::Fenced);
    }
    let begins = after.tokens().count() > before.tokens().count();
    broken.add_unless(!begins || after.handed > before.handed, Law::TokensGrow);
    let ends = before.stand.state == State::Running && (begins || after.stand.state != State::Running);
    broken.add_unless(!ends || before.promised == 0 || author == Author::Holder(newest), Law::LeaseKept);
    let mut last = *before.trail.last().expect("invariant: a trail begins with the submission");
    for mark in &after.trail[before.trail.len()..] {
        step(&mut broken, last, *mark, before, author);
        last = *mark;
    }
    broken.add_unless(last.version == after.stand.version && last.to == after.stand.state, Law::TrailGapless);
    counts(&mut broken, bounds, after);
    let held = after.hold.is_some() == after.stand.state.is_held();
    let revived =
        !begins && matches!((before.hold, after.hold), (Some(old), Some(new)) if old.ticks == 0 && new.ticks > 0);
    let in_time = after.hold.is_none_or(|hold| hold.ticks <= hold.deadline);
    broken.add_unless(held && in_time && !revived, Law::WithinDeadline);
    broken
}

/// The laws that one more step breaks.
fn step(broken: &mut Laws, last: Mark, mark: Mark, before: &ModelRow, author: Author) {
    broken.add_unless(mark.version == last.version + 1, Law::TrailGapless);
    broken.add_unless(legal(last, mark), Law::StepsLegal);
    let redriven = last.to == State::DeadLettered && mark.deed == Deed::Redriven;
    broken.add_unless(!last.to.is_final() || redriven, Law::FinalAbsorbs);
    broken.add_unless(last.deed != Deed::CancelRequested || mark.deed == Deed::Cancelled, Law::StopIsKept);
    if mark.deed == Deed::Expired {
        broken.add_unless(before.times(Deed::Redriven) == 0, Law::RedrivenRuns);
    }
    if mark.deed == Deed::Claimed {
        broken.add_unless(before.times(Deed::Cancelled) == 0, Law::NoLeaseAfterCancel);
    }
    if mark.deed == Deed::Completed {
        broken.add_unless(author == Author::Holder(before.newest_token()), Law::NewestCompletes);
    }
}

/// The laws about how often something was done since the task was submitted or re-driven.
fn counts(broken: &mut Laws, bounds: &ModelBounds, after: &ModelRow) {
    let generation = after.generation();
    let times = |deed: Deed| generation.iter().filter(|mark| mark.deed == deed).count();
    let spared = generation.iter().filter(|mark| matches!(mark.deed, Deed::Spared(_))).count();
    broken.add_unless(times(Deed::Completed) <= 1, Law::OneCompletion);
    let attempts = times(Deed::Claimed).saturating_sub(times(Deed::GivenBack) + spared);
    broken.add_unless(attempts <= usize::from(bounds.max_retries) + 1, Law::AttemptsBounded);
    let started = match after.trail.last().map(|mark| mark.deed) {
        Some(Deed::Started(attempt)) => attempt == after.stand.attempts,
        _ => true,
    };
    let lost = times(Deed::Failed(Cause::Lost)) + times(Deed::Spared(Cause::Lost)) == usize::from(after.stand.crashes);
    broken.add_unless(attempts == usize::from(after.stand.attempts) && started && lost, Law::AttemptsCounted);
}

/// The diagram, written out once more: the machine under test is not asked.
fn legal(last: Mark, mark: Mark) -> bool {
    use State::{Cancelled, Completed, DeadLettered, Failed, Pending, Queued, Running};
    let asked = last.deed == Deed::CancelRequested;
    match (last.to, mark.deed, mark.to) {
        (Pending, Deed::Claimed, Queued)
        | (Queued, Deed::Started(_), Running)
        | (Queued, Deed::GivenBack, Pending)
        | (Pending | Queued, Deed::Cancelled, Cancelled)
        | (Pending | Queued, Deed::Expired, Failed)
        | (DeadLettered, Deed::Redriven, Pending) => true,
        (Running, Deed::Cancelled, Cancelled) => asked,
        (Running, Deed::CancelRequested, Running)
        | (Running, Deed::Completed, Completed)
        | (Running, Deed::GivenBack | Deed::Spared(_), Pending)
        | (Running, Deed::Failed(_), Pending | DeadLettered) => !asked,
        _ => false,
    }
}

/// Whether the trail tells of what a holder said, as it must if that was accepted.
pub(crate) fn is_told(row: &ModelRow, token: Version, said: Said) -> bool {
    let next = row.mark_at(token + 1).map(|mark| mark.deed);
    match said {
        Said::Completed(letter) => next == Some(Deed::Completed) && row.result == Some(letter),
        Said::Failed { retryable } => {
            let cause = Cause::Told { retryable };
            next == Some(Deed::Failed(cause)) || (retryable && next == Some(Deed::Spared(cause)))
        }
        Said::Released => next == Some(Deed::GivenBack),
        Said::Heartbeat => true,
    }
}
