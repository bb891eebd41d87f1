//! What a write does besides its row: the counts, the forecast and the notes for the resolver.
//!
//! Both stores call this for every change, insert and quarantine, and record what it returns. It is
//! pure, so the two stores cannot disagree. Invariant: the counts and the forecast always equal a
//! count of all live rows (`effects/tests.rs`).

use punctual_core::state::{Change, State};
use punctual_core::time::Timestamp;

/// The columns of a row that its effects depend on, apart from its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneInstant {
    /// The number of its lane.
    pub lane: i64,
    /// When it is due.
    pub due_at: Timestamp,
}

impl LaneInstant {
    /// The same from its columns.
    pub(crate) fn of_columns(lane: i64, due_at: i64) -> Self {
        Self { lane, due_at: Timestamp::from_millis(due_at) }
    }
}

/// A live row as the counts see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedRow {
    /// Where it is.
    pub at: LaneInstant,
    /// In which state.
    pub state: State,
}

impl CountedRow {
    fn new(state: State, at: LaneInstant) -> Option<Self> {
        (!state.is_final()).then_some(Self { at, state })
    }

    /// Where the forecast counts it. Only waiting rows are counted.
    pub(crate) fn forecast(&self) -> Option<LaneInstant> {
        (self.state == State::Pending).then_some(self.at)
    }
}

/// The note that the resolver gets about the ordering key of a row, if the row has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnNote {
    /// The turn may pass to another task.
    MayPass,
    /// The same, and the task became a dead letter: it may hold its key.
    DeadLetter,
}

/// The effects of one write on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effects {
    /// The live row that was there before, if any.
    pub before: Option<CountedRow>,
    /// The live row that is there afterwards, if any.
    pub after: Option<CountedRow>,
    /// The note about the row's ordering key.
    pub turn: Option<TurnNote>,
    /// How the task finished: the note for tasks that depend on it.
    pub ended: Option<State>,
    /// Whether a place of the row's concurrency key may be free for another task: this one held it,
    /// or was woken to take it.
    pub frees_place: bool,
}

impl Effects {
    /// The effects of a change that moved a row from `before` to `after`. If the row is in the
    /// history before or after the change, that side is ignored.
    pub(crate) fn of(change: &Change, before: LaneInstant, after: LaneInstant) -> Self {
        let ended = change.to.is_final().then_some(change.to);
        Self::new(CountedRow::new(change.from, before), CountedRow::new(change.to, after), ended)
    }

    /// The effects of a change that leaves the row in its lane, with its due instant.
    pub(crate) fn in_place(change: &Change, at: LaneInstant) -> Self {
        Self::of(change, at, at)
    }

    /// The effects of storing a new task.
    pub(crate) fn of_insert(state: State, at: LaneInstant) -> Self {
        Self::new(None, CountedRow::new(state, at), None)
    }

    /// The effects of moving a live row to the quarantine. Its task will not run, so it counts as
    /// failed for the tasks behind it. A row in an unreadable state was never counted.
    pub(crate) fn of_quarantine(state: Option<State>, at: LaneInstant) -> Self {
        let before = state.and_then(|state| CountedRow::new(state, at));
        Self { frees_place: true, ..Self::new(before, None, Some(State::Failed)) }
    }

    fn new(before: Option<CountedRow>, after: Option<CountedRow>, ended: Option<State>) -> Self {
        let turn = match (ended, after.and_then(|after| after.forecast())) {
            (Some(State::DeadLettered), _) => Some(TurnNote::DeadLetter),
            (Some(_), _) | (None, Some(_)) => Some(TurnNote::MayPass),
            (None, None) => None,
        };
        let frees_place = before.is_some_and(|before| before.state != State::Blocked)
            && !after.is_some_and(|after| after.state.is_held());
        Self { before, after, turn, ended, frees_place }
    }

    /// How the write changes the counts by lane and state: the rows that come and go, each with the
    /// number of tasks to add. Nothing if the row stays where it is counted.
    pub(crate) fn count_changes(&self) -> impl Iterator<Item = (CountedRow, i64)> + use<> {
        let place = |row: &CountedRow| (row.at.lane, row.state);
        let moved = self.before.as_ref().map(place) != self.after.as_ref().map(place);
        let changes = [(self.before, -1), (self.after, 1)];
        changes.into_iter().filter(move |_| moved).filter_map(|(row, tasks)| Some((row?, tasks)))
    }

    /// Whether the write leaves no note for the resolver. No claim and no start leaves one.
    pub(crate) fn leaves_no_note(&self) -> bool {
        self.turn.is_none() && self.ended.is_none() && !self.frees_place
    }
}

#[cfg(test)]
mod tests;
