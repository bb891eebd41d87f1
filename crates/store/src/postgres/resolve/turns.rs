//! Whose turn it is among the tasks of an ordering key.
//!
//! The row of the key is locked, so that one decides at a time; what it sees is then what was
//! committed before, and whatever is committed later has left a note of its own. A task that
//! has begun keeps its turn until it comes to rest; one that has not loses it only by a write
//! that a claim cannot pass.

use std::collections::{BTreeMap, HashMap, HashSet};

use punctual_core::resolver::Resolved;
use tokio_postgres::Row;
use uuid::Uuid;

use super::super::fault::Fault;
use super::super::hand::Hand;
use super::super::statements::Sql;
use super::{letters, tell};

/// Notes that are worked off at once.
const NOTES: i64 = 1_000;

/// The state of a task that waits, as a column has it.
const PENDING: i16 = 1;

/// What is known of a key.
#[derive(Debug, Default)]
struct Order {
    head: Option<Uuid>,
    held_by: Option<Uuid>,
    /// A dead letter that the key was held behind and that may have come back: it is first then.
    back: Option<Uuid>,
    /// Who is to have the turn from now on.
    next: Option<Uuid>,
    /// The head has begun, or is as it should be.
    is_settled: bool,
}

/// A task that has, or had, a turn.
struct Holder {
    is_waiting: bool,
    has_turn: bool,
    has_begun: bool,
}

/// Works off some notes.
pub(super) async fn resolve(hand: &mut Hand) -> Result<Resolved, Fault> {
    let Some(from) = hand.desk.outbox.turns.begin() else { return Ok(Resolved::default()) };
    let resolved = work_off(hand, from).await;
    if resolved.is_err() {
        hand.desk.outbox.turns.note(from);
    }
    resolved
}

async fn work_off(hand: &mut Hand, from: i64) -> Result<Resolved, Fault> {
    let notes = hand.session.begin(Sql::OrderNotes, &[&from, &NOTES]).await?;
    if notes.is_empty() {
        hand.session.run("ROLLBACK").await?;
        return Ok(Resolved::default());
    }
    let mut orders = lock(hand, &notes).await?;
    look_at_held(hand, &notes, &mut orders).await?;
    let holders = holders(hand, &orders).await?;
    choose(hand, &mut orders, &holders).await?;
    let waiting = hand_over(hand, &mut orders, &holders).await?;
    write(hand, &orders).await?;
    hand.commit().await?;
    let more = i64::try_from(notes.len()).is_ok_and(|count| count == NOTES);
    if more && let Some(last) = notes.iter().map(|row| row.get::<_, i64>(0)).max() {
        hand.desk.outbox.turns.note(last + 1);
    }
    Ok(Resolved { tasks: waiting.len(), waiting: tell(hand, &waiting).await?, more })
}

async fn lock(hand: &Hand, notes: &[Row]) -> Result<BTreeMap<Uuid, Order>, Fault> {
    let mut keys: Vec<Uuid> = notes.iter().map(|row| row.get(1)).collect();
    keys.sort_unstable();
    keys.dedup();
    let rows = hand.session.query(Sql::OrderLock, &[&keys]).await?;
    let order = |row: &Row| (row.get(0), Order { head: row.get(1), held_by: row.get(2), ..Order::default() });
    Ok(rows.iter().map(order).collect())
}

/// Whether the keys are held behind dead letters, from now on or no longer.
async fn look_at_held(hand: &Hand, notes: &[Row], orders: &mut BTreeMap<Uuid, Order>) -> Result<(), Fault> {
    let new: Vec<(Uuid, Uuid)> =
        notes.iter().filter_map(|row| Some((row.get(1), row.get::<_, Option<Uuid>>(2)?))).collect();
    let ids = new.iter().map(|(_, letter)| *letter).chain(orders.values().filter_map(|order| order.held_by));
    let known = letters(&hand.session, &ids.collect::<Vec<_>>()).await?;
    let holds = |letter: Uuid| known.get(&letter).is_some_and(|letter| letter.holds);
    for order in orders.values_mut() {
        order.back = order.held_by.filter(|letter| !holds(*letter));
        order.held_by = order.held_by.filter(|letter| holds(*letter));
    }
    for (key, letter) in new {
        if let Some(order) = orders.get_mut(&key)
            && order.held_by.is_none()
            && holds(letter)
        {
            order.held_by = Some(letter);
        }
    }
    Ok(())
}

/// Where the tasks stand that have a turn, or come back to one.
async fn holders(hand: &Hand, orders: &BTreeMap<Uuid, Order>) -> Result<HashMap<Uuid, Holder>, Fault> {
    let mut ids: Vec<Uuid> = orders.values().flat_map(|order| [order.head, order.back]).flatten().collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    ids.sort_unstable();
    ids.dedup();
    let rows = hand.session.query(Sql::TurnHolders, &[&ids]).await?;
    let holder = |row: &Row| {
        let (state, attempts, has_turn): (i16, i32, bool) = (row.get(2), row.get(3), row.get(4));
        let has_begun = has_turn && (state > PENDING || attempts > 0);
        (row.get(0), Holder { is_waiting: state == PENDING, has_turn, has_begun })
    };
    Ok(rows.iter().map(holder).collect())
}

/// Says of each key who is to have the turn.
async fn choose(hand: &Hand, orders: &mut BTreeMap<Uuid, Order>, holders: &HashMap<Uuid, Holder>) -> Result<(), Fault> {
    let has_begun = |id: Option<Uuid>| id.and_then(|id| holders.get(&id)).is_some_and(|holder| holder.has_begun);
    let mut open = Vec::new();
    for (key, order) in orders.iter_mut() {
        if has_begun(order.head) {
            order.is_settled = true;
        } else if order.held_by.is_none() {
            order.next = order.back.filter(|id| holders.get(id).is_some_and(|holder| holder.is_waiting));
            if order.next.is_none() {
                open.push(*key);
            }
        }
    }
    if !open.is_empty() {
        for row in hand.session.query(Sql::TurnFirst, &[&open]).await? {
            if let Some(order) = orders.get_mut(&row.get::<_, Uuid>(0)) {
                order.next = Some(row.get(1));
            }
        }
    }
    for order in orders.values_mut().filter(|order| !order.is_settled) {
        let has_turn = order.head.and_then(|id| holders.get(&id)).is_some_and(|holder| holder.has_turn);
        order.is_settled = has_turn && order.next == order.head;
    }
    Ok(())
}

/// Takes the turn from those that are not to have it any more, and gives it to the next; gives what waits now.
async fn hand_over(
    hand: &Hand,
    orders: &mut BTreeMap<Uuid, Order>,
    holders: &HashMap<Uuid, Holder>,
) -> Result<Vec<(i64, i64)>, Fault> {
    let has_turn = |id: &Uuid| holders.get(id).is_some_and(|holder| holder.has_turn);
    let open = || orders.values().filter(|order| !order.is_settled);
    let mut losing: Vec<Uuid> = open().filter_map(|order| order.head.filter(has_turn)).collect();
    losing.sort_unstable();
    let lost: HashSet<Uuid> = if losing.is_empty() {
        HashSet::new()
    } else {
        hand.session.query(Sql::TurnTake, &[&losing, &PENDING]).await?.iter().map(|row| row.get(0)).collect()
    };
    for order in orders.values_mut().filter(|order| !order.is_settled) {
        // It has been claimed meanwhile, and keeps its turn; or it has come to rest, and left a note.
        order.is_settled = order.head.filter(has_turn).is_some_and(|head| !lost.contains(&head));
    }
    let mut gaining: Vec<Uuid> =
        orders.values().filter(|order| !order.is_settled).filter_map(|order| order.next).collect();
    gaining.sort_unstable();
    let given = if gaining.is_empty() {
        Vec::new()
    } else {
        let now = hand.now().as_millis();
        hand.session.query(Sql::TurnGive, &[&gaining, &now, &PENDING]).await?
    };
    let gained: HashSet<Uuid> = given.iter().map(|row| row.get(0)).collect();
    for order in orders.values_mut().filter(|order| !order.is_settled) {
        // One that is not there any more has left a note.
        order.head = order.next.filter(|next| gained.contains(next));
    }
    Ok(given.iter().map(|row| (row.get(1), row.get(2))).collect())
}

/// Writes whose turn it is; a key that nobody waits for is forgotten.
async fn write(hand: &Hand, orders: &BTreeMap<Uuid, Order>) -> Result<(), Fault> {
    let is_over = |order: &Order| order.head.is_none() && order.held_by.is_none() && order.next.is_none();
    let over: Vec<Uuid> = orders.iter().filter(|(_, order)| is_over(order)).map(|(key, _)| *key).collect();
    let kept = || orders.iter().filter(|(_, order)| !is_over(order));
    let keys: Vec<Uuid> = kept().map(|(key, _)| *key).collect();
    let heads: Vec<Option<Uuid>> = kept().map(|(_, order)| order.head).collect();
    let held: Vec<Option<Uuid>> = kept().map(|(_, order)| order.held_by).collect();
    if !over.is_empty() {
        hand.session.execute(Sql::OrderRemove, &[&over]).await?;
    }
    if !keys.is_empty() {
        hand.session.execute(Sql::OrderWrite, &[&keys, &heads, &held]).await?;
    }
    Ok(())
}
