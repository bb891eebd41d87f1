//! What the server does about what a worker says: the rules of `punctual_scheduler::settle`, in the
//! model's terms.
//!
//! A completion is first written blind, as if the token held the task. Everything else, and a
//! completion that found nothing to write to, is judged by the task as it is read.

use punctual_core::state::{Position, State};

use crate::bug::Bug;
use crate::law::is_told;
use crate::machine::complete_held;
use crate::operation::What;
use crate::protocol::Protocol;
use crate::row::{Cause, Deed, Letter, ModelRow, Said, Version};
use crate::store::WriteCondition;

/// What a worker is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerAnswer {
    /// Accepted, now or before.
    Accepted,
    /// No effect.
    Stale,
    /// Stop.
    Cancelled,
}

/// What to do about something that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelDecision {
    /// It needs no change.
    Answer(WorkerAnswer),
    /// This is to be written.
    Write(What),
}

impl Protocol {
    /// A completion, written without reading the task first.
    pub(crate) fn complete(&self, row: &ModelRow, token: Version, letter: Letter) -> Option<ModelRow> {
        let condition = self.completion_condition(row, token);
        if condition == WriteCondition::Full && row.stand.version != token {
            return None; // What `apply` would find; most of what is said is stale, and asking for it takes time.
        }
        self.apply(row, &complete_held(token, letter), condition)
    }

    fn completion_condition(&self, row: &ModelRow, token: Version) -> WriteCondition {
        let newest = row.newest_token() == token;
        let waived = newest
            && match row.stand.state {
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

    /// What to do about one item, given its task as it was read.
    pub(crate) fn judge(&self, row: &ModelRow, token: Version, said: Said) -> ModelDecision {
        let position = Position::from(row.stand);
        if position.is_asked_to_stop(u64::from(token)) {
            return ModelDecision::Write(What::Stop { token });
        }
        if position.is_held_by(u64::from(token)) {
            return match said {
                Said::Heartbeat => ModelDecision::Answer(WorkerAnswer::Stale),
                _ => ModelDecision::Write(What::Settle { token, said }),
            };
        }
        ModelDecision::Answer(self.answer_from_history(row, token, said))
    }

    /// The token does not hold the task any more: was this very settlement accepted before?
    fn answer_from_history(&self, row: &ModelRow, token: Version, said: Said) -> WorkerAnswer {
        let held = row.mark_at(token).is_some_and(|mark| matches!(mark.deed, Deed::Started(_)));
        let Some(next) = row.mark_at(token + 1).filter(|_| held) else { return WorkerAnswer::Stale };
        match (next.deed, said) {
            (Deed::CancelRequested, _) => WorkerAnswer::Cancelled,
            _ if self.has(Bug::RepeatRefused) => WorkerAnswer::Stale,
            (Deed::Completed, Said::Completed(letter))
                if row.result == Some(letter) || self.has(Bug::RepeatIgnoresResult) =>
            {
                WorkerAnswer::Accepted
            }
            (Deed::Failed(cause) | Deed::Spared(cause), Said::Failed { retryable })
                if cause == (Cause::Told { retryable }) =>
            {
                WorkerAnswer::Accepted
            }
            (Deed::GivenBack, Said::Released) => WorkerAnswer::Accepted,
            _ => WorkerAnswer::Stale,
        }
    }

    /// Whether everything that was accepted would be accepted again now, and change nothing.
    pub(crate) fn repeats_are_accepted(&self, row: &ModelRow) -> bool {
        row.accepted.iter().all(|&(token, said)| {
            let writes = matches!(said, Said::Completed(letter) if self.complete(row, token, letter).is_some());
            !writes
                && self.judge(row, token, said) == ModelDecision::Answer(WorkerAnswer::Accepted)
                && is_told(row, token, said)
        })
    }
}
