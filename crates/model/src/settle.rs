//! How the server settles a report: the rules of `punctual_scheduler::settle`, in the model's
//! terms.
//!
//! A completion is first written without a read, as if the token held the task. Other reports, and
//! completions whose write was lost, are judged after a read.

use punctual_core::state::{Position, State};

use crate::bug::Bug;
use crate::law::is_in_trail;
use crate::machine::complete_held;
use crate::operation::PlannedWrite;
use crate::protocol::Protocol;
use crate::row::{Cause, Letter, ModelRow, SettleReport, StepKind, Version};
use crate::store::WriteCondition;

/// The answer to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerAnswer {
    /// Accepted, now or before.
    Accepted,
    /// No effect.
    Stale,
    /// Stop.
    Cancelled,
}

/// What to do about a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelDecision {
    /// It needs no change.
    Answer(WorkerAnswer),
    /// It needs this write.
    Write(PlannedWrite),
}

impl Protocol {
    /// A completion, written without reading the task first.
    pub(crate) fn complete(&self, row: &ModelRow, token: Version, letter: Letter) -> Option<ModelRow> {
        let condition = self.completion_condition(row, token);
        if condition == WriteCondition::Full && row.position.version != token {
            return None; // As `apply` would find. Most reports are stale, and this is quicker.
        }
        self.apply(row, &complete_held(token, letter), condition)
    }

    fn completion_condition(&self, row: &ModelRow, token: Version) -> WriteCondition {
        let newest = row.newest_token() == token;
        let waived = newest
            && match row.position.state {
                State::Pending => self.has(Bug::ReapedTokenCompletes),
                State::DeadLettered => self.has(Bug::DeadLetterCompletes),
                State::Completed => self.has(Bug::CompletesTwice),
                State::Running => self.has(Bug::StopIgnoredByCompletion),
                _ => false,
            };
        match () {
            () if waived => WriteCondition::Waived,
            () if self.has(Bug::TokenIgnored) => WriteCondition::StateOnly,
            () => WriteCondition::Full,
        }
    }

    /// Decides about one report, given its task as it was read.
    pub(crate) fn judge(&self, row: &ModelRow, token: Version, report: SettleReport) -> ModelDecision {
        let position = Position::from(row.position);
        if position.is_asked_to_stop(u64::from(token)) {
            return ModelDecision::Write(PlannedWrite::Stop { token });
        }
        if position.is_held_by(u64::from(token)) {
            return match report {
                SettleReport::Heartbeat => ModelDecision::Answer(WorkerAnswer::Stale),
                _ => ModelDecision::Write(PlannedWrite::Settle { token, report }),
            };
        }
        ModelDecision::Answer(self.answer_from_history(row, token, report))
    }

    /// The token no longer holds the task: was this report accepted before?
    fn answer_from_history(&self, row: &ModelRow, token: Version, report: SettleReport) -> WorkerAnswer {
        let held = row.mark_at(token).is_some_and(|mark| matches!(mark.kind, StepKind::Started(_)));
        let Some(next) = row.mark_at(token + 1).filter(|_| held) else { return WorkerAnswer::Stale };
        match (next.kind, report) {
            (StepKind::CancelRequested, _) => WorkerAnswer::Cancelled,
            _ if self.has(Bug::RepeatRefused) => WorkerAnswer::Stale,
            (StepKind::Completed, SettleReport::Completed(letter))
                if row.result == Some(letter) || self.has(Bug::RepeatIgnoresResult) =>
            {
                WorkerAnswer::Accepted
            }
            (StepKind::Failed(cause) | StepKind::Spared(cause), SettleReport::Failed { retryable })
                if cause == (Cause::Reported { retryable }) =>
            {
                WorkerAnswer::Accepted
            }
            (StepKind::GivenBack, SettleReport::Released) => WorkerAnswer::Accepted,
            _ => WorkerAnswer::Stale,
        }
    }

    /// Whether all accepted reports would be accepted again now, without a change.
    pub(crate) fn repeats_are_accepted(&self, row: &ModelRow) -> bool {
        row.accepted.iter().all(|&(token, report)| {
            let writes =
                matches!(report, SettleReport::Completed(letter) if self.complete(row, token, letter).is_some());
            !writes
                && self.judge(row, token, report) == ModelDecision::Answer(WorkerAnswer::Accepted)
                && is_in_trail(row, token, report)
        })
    }
}
