//! Notes that transactions leave for the resolver, and how it hears of them.
//!
//! A transaction that may have made it another's turn, or has ended what others wait for, writes
//! a row about it (`orders_due`, `settled_parents`): the note. After the commit the node's own
//! resolver is told the first number, and begins there: what was worked off before it may have
//! left dead entries. Now and then it begins at the front, and finds what others left.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::state::State;
use tokio::sync::Notify;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::resolve::ReviewCursor;
use super::row::state_column;
use super::statements::Sql;
use crate::effects::{Effects, TurnNote};

/// How often the resolver begins at the front.
const SWEEP: Duration = Duration::from_secs(1);

/// The row that a write was about, as the notes name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotedRow {
    /// The id of its task.
    pub id: Uuid,
    /// Its ordering key.
    pub ordering: Option<Uuid>,
    /// Whether other tasks may depend on it.
    pub awaited: bool,
}

/// The notes of a transaction that is under way.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    orderings: Vec<Uuid>,
    dead_letters: Vec<Option<Uuid>>,
    parents: Vec<Uuid>,
    states: Vec<i16>,
}

/// The first numbers of notes that were written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstNotes {
    turn: Option<i64>,
    parent: Option<i64>,
}

impl Notes {
    /// It may be another's turn.
    pub(crate) fn turn(&mut self, ordering: Option<Uuid>) {
        if let Some(ordering) = ordering {
            self.orderings.push(ordering);
            self.dead_letters.push(None);
        }
    }

    /// A task that others may wait for has come to rest.
    pub(crate) fn parent(&mut self, id: Uuid, state: State) {
        self.parents.push(id);
        self.states.push(state_column(state));
    }

    /// The notes that a write leaves.
    pub(crate) fn record(&mut self, effects: &Effects, row: &NotedRow) {
        self.record_turn(effects, row);
        if let Some(state) = effects.ended.filter(|_| row.awaited) {
            self.parent(row.id, state);
        }
    }

    /// The note about the ordering key alone, for a caller that follows up the end of the task itself.
    pub(crate) fn record_turn(&mut self, effects: &Effects, row: &NotedRow) {
        if let (Some(note), Some(ordering)) = (effects.turn, row.ordering) {
            self.orderings.push(ordering);
            self.dead_letters.push((note == TurnNote::DeadLetter).then_some(row.id));
        }
    }

    /// Writes them; those that there are none of cost nothing.
    pub(crate) async fn write(&self, session: &Session) -> Result<FirstNotes, Fault> {
        let turn = async {
            if self.orderings.is_empty() {
                return Ok(None);
            }
            let rows = session.query(Sql::OrderNote, &[&self.orderings, &self.dead_letters]).await?;
            Ok::<_, Fault>(rows.iter().map(|row| row.get(0)).min())
        };
        let parent = async {
            if self.parents.is_empty() {
                return Ok(None);
            }
            let rows = session.query(Sql::ParentNote, &[&self.parents, &self.states]).await?;
            Ok::<_, Fault>(rows.iter().map(|row| row.get(0)).min())
        };
        let (turn, parent) = tokio::join!(biased; turn, parent);
        Ok(FirstNotes { turn: turn?, parent: parent? })
    }
}

/// What the resolver of this node has heard of (see the module).
#[derive(Default)]
pub(crate) struct Outbox {
    pub turns: NoteFront,
    pub parents: NoteFront,
    /// Behind which keys and dead letters what is held is reviewed next.
    pub reviewed: Mutex<ReviewCursor>,
    /// Where the resolver goes on to look at it, since a queue has ceased to hold.
    round: Mutex<Option<ReviewCursor>>,
    noted: Notify,
}

impl Outbox {
    /// Notes were committed.
    pub(crate) fn tell(&self, noted: FirstNotes) {
        let turn = noted.turn.inspect(|seq| self.turns.note(*seq));
        let parent = noted.parent.inspect(|seq| self.parents.note(*seq));
        if turn.or(parent).is_some() {
            self.noted.notify_one();
        }
    }

    /// A queue has ceased to hold what waits behind its dead letters: everything that is held is to be looked at.
    pub(crate) fn begin_round(&self) {
        *self.round.lock() = Some(ReviewCursor::front());
        self.noted.notify_one();
    }

    /// Where a round goes on; whoever takes it goes on with it.
    pub(crate) fn take_round(&self) -> Option<ReviewCursor> {
        self.round.lock().take()
    }

    /// A round goes on there, unless another one has begun; whether there is one.
    pub(crate) fn keep_round(&self, place: Option<ReviewCursor>) -> bool {
        let mut round = self.round.lock();
        *round = round.or(place);
        round.is_some()
    }

    /// Returns once notes were committed.
    pub(crate) async fn wait(&self) {
        self.noted.notified().await;
    }
}

/// Where the resolver begins to read notes of one kind.
#[derive(Default)]
pub(crate) struct NoteFront(Mutex<FrontState>);

#[derive(Default)]
struct FrontState {
    first: Option<i64>,
    swept_at: Option<Instant>,
}

impl NoteFront {
    /// There is a note with this number.
    pub(crate) fn note(&self, seq: i64) {
        let first = &mut self.0.lock().first;
        *first = Some(first.map_or(seq, |first| first.min(seq)));
    }

    /// Where to begin; none if there is nothing that is known of, and it is not time to look at the front.
    pub(crate) fn begin(&self) -> Option<i64> {
        let mut known = self.0.lock();
        let first = known.first.take();
        if known.swept_at.is_none_or(|at| at.elapsed() >= SWEEP) {
            known.swept_at = Some(Instant::now());
            return Some(i64::MIN);
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_looked_at_first_and_then_what_is_known_of() {
        let front = NoteFront::default();
        front.note(7);
        assert_eq!(front.begin(), Some(i64::MIN), "whatever others left");
        assert_eq!(front.begin(), None);
        front.note(9);
        front.note(8);
        assert_eq!((front.begin(), front.begin()), (Some(8), None));
    }
}
