//! The outbox: notes for the resolver, written in the transaction that causes them.
//!
//! A note is a row of `orders_due` (the turn of a key may pass), `settled_parents` (a parent has
//! finished), `revived_parents` (a parent is live again, and so are its failed children) or
//! `places_due` (a place of a concurrency key may be free). After
//! the commit the node's own resolver gets the first number and begins there, behind the dead index
//! entries of older notes. Every second it begins at the front and finds the notes of other nodes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::state::State;
use tokio::sync::Notify;
use tokio_postgres::types::ToSql;
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
    /// Its concurrency key.
    pub concurrency: Option<Uuid>,
    /// Whether other tasks may depend on it.
    pub awaited: bool,
}

/// The notes of a transaction that is under way.
#[derive(Debug, Default)]
pub(crate) struct OutboxNotes {
    orderings: Vec<Uuid>,
    dead_letters: Vec<Option<Uuid>>,
    parents: Vec<Uuid>,
    states: Vec<i16>,
    revived: Vec<Uuid>,
    concurrencies: Vec<Uuid>,
    places: Vec<Option<i64>>,
}

/// The first numbers of the notes that a transaction wrote.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstNotes {
    turn: Option<i64>,
    parent: Option<i64>,
    revived: Option<i64>,
    place: Option<i64>,
}

impl OutboxNotes {
    /// Notes that the turn of a key may pass.
    pub(crate) fn turn(&mut self, ordering: Option<Uuid>) {
        if let Some(ordering) = ordering {
            self.orderings.push(ordering);
            self.dead_letters.push(None);
        }
    }

    /// Notes that a task which others may depend on has finished.
    pub(crate) fn parent(&mut self, id: Uuid, state: State) {
        self.parents.push(id);
        self.states.push(state_column(state));
    }

    /// Notes that a task is live again, and that its failed children are to be revived.
    pub(crate) fn revived(&mut self, id: Uuid) {
        self.revived.push(id);
    }

    /// Notes that so many places of a key came free; none: that it must be looked at.
    pub(crate) fn places(&mut self, concurrency: Uuid, places: Option<i64>) {
        self.concurrencies.push(concurrency);
        self.places.push(places);
    }

    /// The notes that a write leaves.
    pub(crate) fn record(&mut self, effects: &Effects, row: &NotedRow) {
        self.record_turn(effects, row);
        if let Some(concurrency) = row.concurrency.filter(|_| effects.frees_place) {
            self.places(concurrency, Some(1));
        }
        if let Some(state) = effects.ended.filter(|_| row.awaited) {
            self.parent(row.id, state);
        }
    }

    /// Leaves only the note about the ordering key, for a caller that follows up the end of the
    /// task itself.
    pub(crate) fn record_turn(&mut self, effects: &Effects, row: &NotedRow) {
        if let (Some(note), Some(ordering)) = (effects.turn, row.ordering) {
            self.orderings.push(ordering);
            self.dead_letters.push((note == TurnNote::DeadLetter).then_some(row.id));
        }
    }

    /// Writes the notes. A kind without notes costs no statement.
    pub(crate) async fn write(&self, session: &Session) -> Result<FirstNotes, Fault> {
        debug_assert_eq!(self.orderings.len(), self.dead_letters.len(), "columns of one length");
        debug_assert_eq!(self.parents.len(), self.states.len(), "columns of one length");
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
        let revived = async {
            if self.revived.is_empty() {
                return Ok(None);
            }
            // Rare, as the next one is: boxed, so that the commit of every transaction stays small.
            let parameters: [&(dyn ToSql + Sync); 1] = [&self.revived];
            let rows = Box::pin(session.query(Sql::RevivedNote, &parameters)).await?;
            Ok::<_, Fault>(rows.iter().map(|row| row.get(0)).min())
        };
        let place = async {
            if self.places.is_empty() {
                return Ok(None);
            }
            let parameters: [&(dyn ToSql + Sync); 2] = [&self.concurrencies, &self.places];
            let rows = Box::pin(session.query(Sql::PlaceNote, &parameters)).await?;
            Ok::<_, Fault>(rows.iter().map(|row| row.get(0)).min())
        };
        let (turn, parent, revived, place) = tokio::join!(biased; turn, parent, revived, place);
        Ok(FirstNotes { turn: turn?, parent: parent?, revived: revived?, place: place? })
    }
}

/// What the resolver of this node knows of the notes (see the module).
#[derive(Default)]
pub(crate) struct Outbox {
    pub turns: NoteFront,
    pub parents: NoteFront,
    pub revived: NoteFront,
    pub places: NoteFront,
    /// Where the next review begins.
    pub reviewed: Mutex<ReviewCursor>,
    /// Where the round continues, if one is under way.
    round: Mutex<Option<ReviewCursor>>,
    noted: Notify,
}

impl Outbox {
    /// Notes were committed.
    pub(crate) fn wake_resolver(&self, noted: FirstNotes) {
        let turn = noted.turn.inspect(|seq| self.turns.note(*seq));
        let parent = noted.parent.inspect(|seq| self.parents.note(*seq));
        let revived = noted.revived.inspect(|seq| self.revived.note(*seq));
        let place = noted.place.inspect(|seq| self.places.note(*seq));
        if turn.or(parent).or(revived).or(place).is_some() {
            self.noted.notify_one();
        }
    }

    /// Begins a round: tasks that wait may go on, because a queue was set otherwise.
    pub(crate) fn begin_round(&self) {
        *self.round.lock() = Some(ReviewCursor::front());
        self.noted.notify_one();
    }

    /// Takes the round to continue it.
    pub(crate) fn take_round(&self) -> Option<ReviewCursor> {
        self.round.lock().take()
    }

    /// Keeps the round at this cursor, unless another one has begun. Returns whether one is under
    /// way.
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
    /// Remembers a note with this number.
    pub(crate) fn note(&self, seq: i64) {
        let first = &mut self.0.lock().first;
        *first = Some(first.map_or(seq, |first| first.min(seq)));
    }

    /// Where to begin. None: no note is known, and it is not time to begin at the front.
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
    fn the_front_is_read_before_the_known_notes() {
        let front = NoteFront::default();
        front.note(7);
        assert_eq!(front.begin(), Some(i64::MIN), "other nodes may have left notes");
        assert_eq!(front.begin(), None);
        front.note(9);
        front.note(8);
        assert_eq!((front.begin(), front.begin()), (Some(8), None));
    }
}
