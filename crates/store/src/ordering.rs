//! Ordering keys: how a column names one, and which task has its turn.
//!
//! The resolvers of both stores call this. They only read rows and write what is decided here.
//! Invariant: a task that has begun keeps the turn of its key until it finishes.

use punctual_core::state::State;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The name of a tenant's ordering key in a column: a digest of both. A digest needs no table of
/// numbers. Two keys with the same digest would share their turns, which 128 bits rule out.
pub(crate) fn ordering(tenant: &str, key: &str) -> Uuid {
    let mut digest = Sha256::new();
    digest.update(tenant.len().to_le_bytes());
    digest.update(tenant);
    digest.update(key);
    let digest: [u8; 32] = digest.finalize().into();
    let (first, _) = digest.split_first_chunk::<16>().expect("invariant: 32 bytes are more than 16");
    Uuid::from_bytes(*first)
}

/// A live task that has the turn of its key, or may get it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnRow {
    is_waiting: bool,
    has_turn: bool,
    has_begun: bool,
}

impl TurnRow {
    /// The row with these columns. A task that was claimed once has begun, also while it waits for
    /// a retry. An unreadable state counts as begun: the turn stays until the row is in quarantine.
    pub(crate) fn of_columns(state: i64, attempts: i64, has_turn: bool) -> Self {
        let state = State::from_code(state);
        let is_waiting = state == Some(State::Pending);
        let is_idle = is_waiting || state == Some(State::Blocked);
        Self { is_waiting, has_turn, has_begun: has_turn && (!is_idle || attempts > 0) }
    }
}

/// The turn of one ordering key while it is decided. `T` names a task in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TurnDecision<T> {
    /// The task that has the turn.
    pub head: Option<T>,
    /// The dead letter that holds the key.
    pub held_by: Option<T>,
    /// A dead letter that held the key until now. If it was re-driven, it comes first.
    returned: Option<T>,
    /// The task that gets the turn.
    next: Option<T>,
    /// Whether the head has a turn that it must give up before another gets it.
    head_has_turn: bool,
    /// The turn stays where it is.
    is_settled: bool,
}

/// What the caller must do after [`TurnDecision::choose`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnChoice {
    /// Nothing more: the next task is known, or there is none.
    Known,
    /// Read the first waiting task of the key and pass it to [`TurnDecision::choose_first`].
    FirstWaiting,
}

impl<T: Copy + Eq> TurnDecision<T> {
    /// The turn as it is stored, with the dead letters that notes named since. `holds` says whether
    /// a dead letter holds its key.
    pub(crate) fn new(
        head: Option<T>,
        held_by: Option<T>,
        noted: impl IntoIterator<Item = T>,
        holds: impl Fn(T) -> bool,
    ) -> Self {
        let returned = held_by.filter(|letter| !holds(*letter));
        let held_by = held_by.filter(|letter| holds(*letter));
        let held_by = held_by.or_else(|| noted.into_iter().find(|letter| holds(*letter)));
        Self { head, held_by, returned, next: None, head_has_turn: false, is_settled: false }
    }

    /// The tasks whose rows [`TurnDecision::choose`] asks for.
    pub(crate) fn asks_for(&self) -> impl Iterator<Item = T> + use<T> {
        [self.head, self.returned].into_iter().flatten()
    }

    /// Chooses the next task as far as these rows allow.
    pub(crate) fn choose(&mut self, row_of: impl Fn(T) -> Option<TurnRow>) -> TurnChoice {
        let head = self.head.and_then(&row_of);
        self.head_has_turn = head.is_some_and(|row| row.has_turn);
        if head.is_some_and(|row| row.has_begun) {
            self.is_settled = true;
            return TurnChoice::Known;
        }
        if self.held_by.is_some() {
            self.settle_on(None);
            return TurnChoice::Known;
        }
        let returned = self.returned.filter(|id| row_of(*id).is_some_and(|row| row.is_waiting));
        if returned.is_none() {
            return TurnChoice::FirstWaiting;
        }
        self.settle_on(returned);
        TurnChoice::Known
    }

    /// Chooses the first waiting task of the key.
    pub(crate) fn choose_first(&mut self, first: Option<T>) {
        debug_assert!(self.held_by.is_none() && !self.is_settled, "the turn is still open");
        self.settle_on(first);
    }

    fn settle_on(&mut self, next: Option<T>) {
        self.next = next;
        self.is_settled = self.head_has_turn && next == self.head;
    }

    /// The task that must give up the turn.
    pub(crate) fn loser(&self) -> Option<T> {
        self.head.filter(|_| self.head_has_turn && !self.is_settled)
    }

    /// The loser could not give up the turn: it has begun meanwhile and keeps it, or it has
    /// finished and left a note.
    pub(crate) fn keep(&mut self) {
        self.is_settled = true;
    }

    /// The task that gets the turn.
    pub(crate) fn winner(&self) -> Option<T> {
        self.next.filter(|_| !self.is_settled)
    }

    /// Records whether the winner got its turn. A winner that is gone has left a note.
    pub(crate) fn hand_over(&mut self, got_it: bool) {
        if !self.is_settled {
            self.head = self.next.filter(|_| got_it);
        }
    }

    /// Whether no task waits for the key: then its row can be removed.
    pub(crate) fn is_over(&self) -> bool {
        self.head.is_none() && self.held_by.is_none() && self.next.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAITING: TurnRow = TurnRow { is_waiting: true, has_turn: false, has_begun: false };
    const WAITING_WITH_TURN: TurnRow = TurnRow { is_waiting: true, has_turn: true, has_begun: false };
    const BEGUN: TurnRow = TurnRow { is_waiting: false, has_turn: true, has_begun: true };

    /// Decides a key whose first waiting task is `first`; returns loser, winner and key.
    fn decide(
        mut key: TurnDecision<u8>,
        rows: &[(u8, TurnRow)],
        first: Option<u8>,
    ) -> (Option<u8>, Option<u8>, TurnDecision<u8>) {
        let row_of = |id: u8| rows.iter().find(|(row, _)| *row == id).map(|(_, row)| *row);
        if key.choose(row_of) == TurnChoice::FirstWaiting {
            key.choose_first(first);
        }
        let (loser, winner) = (key.loser(), key.winner());
        key.hand_over(winner.is_some());
        (loser, winner, key)
    }

    fn key(head: Option<u8>, held_by: Option<u8>, noted: &[u8], holding: &[u8]) -> TurnDecision<u8> {
        TurnDecision::new(head, held_by, noted.iter().copied(), |letter| holding.contains(&letter))
    }

    #[test]
    fn tenants_and_keys_do_not_run_into_each_other() {
        assert_eq!(ordering("a", "bc"), ordering("a", "bc"));
        assert_ne!(ordering("a", "bc"), ordering("ab", "c"));
        assert_ne!(ordering("a", "b"), ordering("a", "B"));
    }

    #[test]
    fn a_task_has_begun_once_it_was_claimed() {
        let row = |state: State, attempts, has_turn| TurnRow::of_columns(i64::from(state.code()), attempts, has_turn);
        for (state, has_begun) in
            [(State::Blocked, false), (State::Pending, false), (State::Queued, true), (State::Running, true)]
        {
            assert_eq!(row(state, 0, true).has_begun, has_begun, "{state:?}");
            assert!(row(state, 1, true).has_begun, "{state:?} for a retry");
            assert!(!row(state, 1, false).has_begun, "{state:?} without the turn");
            assert_eq!(row(state, 0, true).is_waiting, state == State::Pending);
        }
    }

    #[test]
    fn the_first_waiting_task_gets_a_free_turn() {
        let (loser, winner, after) = decide(key(None, None, &[], &[]), &[], Some(2));
        assert_eq!((loser, winner, after.head, after.is_over()), (None, Some(2), Some(2), false));
        let (loser, winner, after) = decide(key(Some(1), None, &[], &[]), &[], None);
        assert_eq!((loser, winner, after.head, after.is_over()), (None, None, None, true), "the head has finished");
    }

    #[test]
    fn a_task_that_has_begun_keeps_its_turn() {
        for held_by in [None, Some(9)] {
            let (loser, winner, after) = decide(key(Some(1), held_by, &[], &[9]), &[(1, BEGUN)], Some(2));
            assert_eq!((loser, winner, after.head, after.held_by), (None, None, Some(1), held_by));
        }
    }

    #[test]
    fn an_earlier_task_takes_the_turn_from_one_that_waits() {
        let (loser, winner, after) = decide(key(Some(1), None, &[], &[]), &[(1, WAITING_WITH_TURN)], Some(2));
        assert_eq!((loser, winner, after.head), (Some(1), Some(2), Some(2)));
        let (loser, winner, after) = decide(key(Some(1), None, &[], &[]), &[(1, WAITING_WITH_TURN)], Some(1));
        assert_eq!((loser, winner, after.head), (None, None, Some(1)), "it is the first");
    }

    #[test]
    fn a_loser_that_was_claimed_meanwhile_keeps_the_turn() {
        let mut key = key(Some(1), None, &[], &[]);
        assert_eq!(key.choose(|_| Some(WAITING_WITH_TURN)), TurnChoice::FirstWaiting);
        key.choose_first(Some(2));
        assert_eq!(key.loser(), Some(1));
        key.keep();
        assert_eq!((key.winner(), key.head), (None, Some(1)));
    }

    #[test]
    fn a_dead_letter_that_holds_its_key_keeps_everyone_waiting() {
        let (loser, winner, after) = decide(key(Some(1), None, &[8, 9], &[9]), &[(1, WAITING_WITH_TURN)], Some(1));
        assert_eq!((loser, winner), (Some(1), None));
        assert_eq!((after.head, after.held_by, after.is_over()), (None, Some(9), false));
    }

    #[test]
    fn a_dead_letter_that_was_re_driven_comes_first() {
        let (_, winner, after) = decide(key(None, Some(9), &[], &[]), &[(9, WAITING)], Some(2));
        assert_eq!((winner, after.head, after.held_by), (Some(9), Some(9), None));
        let (_, winner, after) = decide(key(None, Some(9), &[], &[]), &[], Some(2));
        assert_eq!((winner, after.head), (Some(2), Some(2)), "it was removed");
    }

    #[test]
    fn a_winner_that_is_gone_leaves_the_key_open() {
        let mut key = key(None, None, &[], &[]);
        assert_eq!(key.choose(|_| None), TurnChoice::FirstWaiting);
        key.choose_first(Some(2));
        key.hand_over(false);
        assert_eq!((key.head, key.is_over()), (None, false));
    }
}
