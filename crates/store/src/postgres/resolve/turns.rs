//! Works off the notes about ordering keys: reads what [`TurnDecision`] asks for, and writes what
//! it decides.
//!
//! The row of a key is locked, so one resolver decides at a time. It sees everything that was
//! committed before; a later commit leaves a note of its own. The turn is taken from a task that
//! has not begun by a conditional write, which fails if a claim was faster.

use std::collections::{BTreeMap, HashMap, HashSet};

use punctual_core::state::State;
use punctual_core::upkeep::Resolved;
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::fault::Fault;
use super::super::row::state_column;
use super::super::statements::Sql;
use super::super::writer::Writer;
use super::{announce, letters};
use crate::ordering::{TurnChoice, TurnDecision, TurnRow};

/// Notes that are worked off at once.
const NOTES: i64 = 1_000;

/// The keys of some notes, and the turn of each while it is decided.
type KeyTurns = BTreeMap<Uuid, TurnDecision<Uuid>>;

/// Works off some notes.
pub(super) async fn resolve(writer: &mut Writer) -> Result<Resolved, Fault> {
    let Some(from) = writer.shared.outbox.turns.begin() else { return Ok(Resolved::default()) };
    let resolved = work_off(writer, from).await;
    if resolved.is_err() {
        writer.shared.outbox.turns.note(from);
    }
    resolved
}

async fn work_off(writer: &mut Writer, from: i64) -> Result<Resolved, Fault> {
    let notes = writer.session.begin(Sql::OrderNotes, &[&from, &NOTES]).await?;
    if notes.is_empty() {
        writer.session.run("ROLLBACK").await?;
        return Ok(Resolved::default());
    }
    let mut turns = read(writer, &notes).await?;
    let holders = holders(writer, &turns).await?;
    choose(writer, &mut turns, &holders).await?;
    let waiting = hand_over(writer, &mut turns, &holders).await?;
    write(writer, &turns).await?;
    writer.commit().await?;
    let more = i64::try_from(notes.len()).is_ok_and(|count| count == NOTES);
    if more && let Some(last) = notes.iter().map(|row| row.get::<_, i64>(0)).max() {
        writer.shared.outbox.turns.note(last + 1);
    }
    Ok(Resolved { tasks: waiting.len(), waiting: announce(writer, &waiting).await?, more })
}

/// Locks the keys of the notes and reads their turns, with the dead letters that the notes name.
async fn read(writer: &Writer, notes: &[Row]) -> Result<KeyTurns, Fault> {
    let mut keys: Vec<Uuid> = notes.iter().map(|row| row.get(1)).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows = writer.session.query(Sql::OrderLock, &[&keys]).await?;
    let mut noted: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
    for row in notes {
        if let Some(letter) = row.get::<_, Option<Uuid>>(2) {
            noted.entry(row.get(1)).or_default().push(letter);
        }
    }
    let held_by = rows.iter().filter_map(|row| row.get::<_, Option<Uuid>>(2));
    let ids: Vec<Uuid> = noted.values().flatten().copied().chain(held_by).collect();
    let known = letters(&writer.session, &ids).await?;
    let holds = |letter: Uuid| known.get(&letter).is_some_and(|letter| letter.holds);
    let turn = |row: &Row| {
        let key: Uuid = row.get(0);
        let noted = noted.get(&key).into_iter().flatten().copied();
        (key, TurnDecision::new(row.get(1), row.get(2), noted, holds))
    };
    Ok(rows.iter().map(turn).collect())
}

/// Chooses the next task of every key.
async fn choose(writer: &Writer, turns: &mut KeyTurns, holders: &TurnHolders) -> Result<(), Fault> {
    let mut open = Vec::new();
    for (key, turn) in turns.iter_mut() {
        // A task whose key was edited has no turn of this one any more.
        let row_of =
            |id: Uuid| holders.get(&id).filter(|holder| holder.ordering == Some(*key)).map(|holder| holder.row);
        if turn.choose(row_of) == TurnChoice::FirstWaiting {
            open.push(*key);
        }
    }
    if open.is_empty() {
        return Ok(());
    }
    let first = writer.session.query(Sql::TurnFirst, &[&open]).await?;
    let first: HashMap<Uuid, Uuid> = first.iter().map(|row| (row.get(0), row.get(1))).collect();
    for key in open {
        if let Some(turn) = turns.get_mut(&key) {
            turn.choose_first(first.get(&key).copied());
        }
    }
    Ok(())
}

/// The tasks that have a turn or may get it back, as they were read.
type TurnHolders = HashMap<Uuid, TurnHolder>;

struct TurnHolder {
    ordering: Option<Uuid>,
    row: TurnRow,
    version: i64,
}

async fn holders(writer: &Writer, turns: &KeyTurns) -> Result<TurnHolders, Fault> {
    let mut ids: Vec<Uuid> = turns.values().flat_map(TurnDecision::asks_for).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    ids.sort_unstable();
    ids.dedup();
    let rows = writer.session.query(Sql::TurnHolders, &[&ids]).await?;
    let row = |row: &Row| {
        let (state, attempts): (i16, i32) = (row.get(2), row.get(3));
        let holder = TurnHolder {
            ordering: row.get(1),
            row: TurnRow::of_columns(state.into(), attempts.into(), row.get(4)),
            version: row.get(5),
        };
        (row.get(0), holder)
    };
    Ok(rows.iter().map(row).collect())
}

/// Takes the turn from the losers and gives it to the winners. Returns where the winners wait.
///
/// A loser that changed since it was read keeps its turn: it may have been claimed when the first
/// waiting task was read, and so passed over. Its next note decides again. A winner whose key was
/// edited since gets nothing: the edit has left a note for both keys.
async fn hand_over(writer: &Writer, turns: &mut KeyTurns, holders: &TurnHolders) -> Result<Vec<(i64, i64)>, Fault> {
    let pending = state_column(State::Pending);
    let mut losers: Vec<Uuid> = turns.values().filter_map(TurnDecision::loser).collect();
    if !losers.is_empty() {
        losers.sort_unstable();
        let version = |loser: &Uuid| holders.get(loser).map_or(0, |holder| holder.version);
        let versions: Vec<i64> = losers.iter().map(version).collect();
        let lost = writer.session.query(Sql::TurnTake, &[&losers, &versions, &pending]).await?;
        let lost: HashSet<Uuid> = lost.iter().map(|row| row.get(0)).collect();
        for turn in turns.values_mut().filter(|turn| turn.loser().is_some_and(|loser| !lost.contains(&loser))) {
            turn.keep();
        }
    }
    let mut winners: Vec<(Uuid, Uuid)> = turns.iter().filter_map(|(key, turn)| Some((turn.winner()?, *key))).collect();
    let mut given = Vec::new();
    if !winners.is_empty() {
        winners.sort_unstable();
        let (winners, keys): (Vec<Uuid>, Vec<Uuid>) = winners.into_iter().unzip();
        given = writer.session.query(Sql::TurnGive, &[&winners, &keys, &writer.now().as_millis(), &pending]).await?;
    }
    let got: HashSet<Uuid> = given.iter().map(|row| row.get(0)).collect();
    for turn in turns.values_mut() {
        turn.hand_over(turn.winner().is_some_and(|winner| got.contains(&winner)));
    }
    Ok(given.iter().map(|row| (row.get(1), row.get(2))).collect())
}

/// Writes which task has the turn of each key. A key without tasks is removed.
async fn write(writer: &Writer, turns: &KeyTurns) -> Result<(), Fault> {
    let over: Vec<Uuid> = turns.iter().filter(|(_, turn)| turn.is_over()).map(|(key, _)| *key).collect();
    let kept = || turns.iter().filter(|(_, turn)| !turn.is_over());
    let keys: Vec<Uuid> = kept().map(|(key, _)| *key).collect();
    let heads: Vec<Option<Uuid>> = kept().map(|(_, turn)| turn.head).collect();
    let held: Vec<Option<Uuid>> = kept().map(|(_, turn)| turn.held_by).collect();
    if !over.is_empty() {
        writer.session.execute(Sql::OrderRemove, &[&over]).await?;
    }
    if !keys.is_empty() {
        writer.session.execute(Sql::OrderWrite, &[&keys, &heads, &held]).await?;
    }
    Ok(())
}
