//! Claims due tasks.
//!
//! One statement locks and reads due tasks in the lanes of all claims and skips rows that other
//! transactions have locked. The state machine makes the changes; another statement writes them. A
//! claim whose node has lost a partition that it names (`terms`) takes nothing. No claim takes more
//! than the limits of its queues allow (`limits`). A task whose concurrency key is full is parked
//! (`places`).

pub(crate) mod held_places;
pub(crate) mod held_rows;
mod pick;
pub(crate) mod scan_cursors;
mod terms;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::partitions::Partition;
use punctual_core::state::{By, Change, Event};
use punctual_core::store::{Claim, Claimed};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use tokio_postgres::Row;
use uuid::Uuid;

use super::apply::change::{self, RowChange};
use super::connection::Session;
use super::fault::Fault;
use super::limits::Allowances;
use super::statements::Sql;
use super::tid::Tid;
use super::writer::{TransactionEnd, Writer};
use super::{limits, quarantine, row};
use crate::claims::{self, expect_change, update_task};
use crate::columns::count_column;
use crate::effects::{Effects, LaneInstant};
use crate::task_row::{DUE_AT, ID, LANE, task_with_small_payload};
use held_places::HeldPlace;
use held_rows::HeldRow;
use pick::{DueRow, LaneRows, Need, PickedRow, Picker, SMALL_BYTES};
use scan_cursors::{LaneRange, Place};
use terms::Terms;

/// Makes claims, one after the other.
pub(crate) async fn claim(writer: &mut Writer, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
    let mut now = writer.now();
    let mut picker = Picker::new(claims, now);
    let mut need = picker.first_need();
    let terms = Terms::of(claims);
    if need.looks.is_empty() && terms.is_empty() {
        return Ok(claims.iter().map(|_| Claimed::default()).collect());
    }
    let mut lanes = writer.shared.lanes.get(&writer.session, need.looks.iter().map(|(range, _)| range.lane)).await?;
    let wanted = limits::ClaimedQueues::of(lanes.values(), &writer.shared.limits);
    let mut begins: HashMap<LaneRange, Place> = HashMap::new();
    // Limited queues are read once their limits are known.
    if !wanted.is_limited {
        begin(writer, &need, &mut begins);
    }
    let opening = wanted.begin();
    let (begun, held, limits, rows) = tokio::join!(
        biased;
        writer.session.run(&opening),
        terms.hold(&writer.session, writer.shared.node),
        wanted.lock(&writer.session),
        async { if wanted.is_limited { Ok(Vec::new()) } else { read(&writer.session, &picker, &need, &begins, now).await } },
    );
    begun?;
    let held = held?;
    let lost: Vec<Vec<Partition>> = claims.iter().map(|claim| terms::lost(claim, &held)).collect();
    for (claim, _) in lost.iter().enumerate().filter(|(_, lost)| !lost.is_empty()) {
        picker.refuse(claim);
    }
    let (limits, mut rows) = (limits?, rows?);
    if wanted.is_limited {
        // Waiting for the locks took time.
        now = writer.now();
    }
    if !limits.is_empty() {
        picker.restrict(now, Allowances::of(&writer.session, &writer.shared.limits, limits, &lanes, now).await?);
    }
    if wanted.is_limited {
        need = picker.first_need();
        begin(writer, &need, &mut begins);
        if !need.looks.is_empty() {
            rows = read(&writer.session, &picker, &need, &begins, now).await?;
        }
    }
    loop {
        let missing = rows.iter().map(|row| row.get(LANE.0)).filter(|lane| !lanes.contains_key(lane));
        let found = writer.shared.lanes.get(&writer.session, missing).await?;
        lanes.extend(found);
        let due: Vec<DueRow> = rows.iter().map(|row| due(row, &lanes)).collect();
        let keys = due.iter().filter_map(|due| Some((due.lane, due.concurrency?)));
        picker.allowances.meet_keys(&writer.session, keys).await?;
        picker.take_in(&need, due);
        let Some(more) = picker.go_on() else { break };
        need = more;
        begin(writer, &need, &mut begins);
        rows = read(&writer.session, &picker, &need, &begins, now).await?;
    }
    let next = next_after(&picker, &begins);
    let written = Box::pin(write(writer, claims, &mut picker, now, &next)).await?;
    for range in begins.into_keys() {
        writer.shared.cursors.taken(range, picker.streams.get(&range).and_then(LaneRows::done));
    }
    // Other nodes may have skipped rows that were locked here and not taken.
    writer.shared.notifier.note_waiting(&picker.left(), now);
    quarantine::put_away(writer, &picker.unreadable).await?;
    Ok(answer(claims, picker, written, lost))
}

/// Notes where the first read of each lane begins.
fn begin(writer: &Writer, need: &Need, begins: &mut HashMap<LaneRange, Place>) {
    for (range, _) in &need.looks {
        begins.entry(*range).or_insert_with(|| writer.shared.cursors.begin(*range));
    }
}

/// Locks and reads the needed rows. Each lane continues behind its last row that was read.
async fn read(
    session: &Session,
    picker: &Picker<'_>,
    need: &Need,
    begins: &HashMap<LaneRange, Place>,
    now: Timestamp,
) -> Result<Vec<Row>, Fault> {
    let after = |(range, _): &(LaneRange, usize)| {
        picker.streams.get(range).and_then(|stream| stream.read).unwrap_or(begins[range])
    };
    let lanes: Vec<i64> = need.looks.iter().map(|(range, _)| range.lane).collect();
    let (after_due, after_seq): (Vec<i64>, Vec<i64>) = need.looks.iter().map(after).unzip();
    let most: Vec<i64> = need.looks.iter().map(|(_, most)| count_column(*most)).collect();
    let due_by: Vec<i64> = need.looks.iter().map(|(range, _)| picker.due_by(*range, now).as_millis()).collect();
    let limit = count_column(need.limit);
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
        [&lanes, &after_due, &after_seq, &most, &limit, &SMALL_BYTES, &due_by];
    session.query(Sql::ClaimDue, &parameters).await
}

fn due(row: &Row, lanes: &HashMap<i64, Arc<Lane>>) -> DueRow {
    let lane: i64 = row.get(LANE.0);
    DueRow {
        id: row.get(ID.0),
        lane,
        look: row::index(row, row::LOOK),
        place: (row.get(DUE_AT.0), row.get(row::SEQ)),
        tid: row.get(row::PLACE),
        bytes: row.get(row::PAYLOAD_BYTES),
        gives_way: row.get(row::GIVES_WAY),
        concurrency: row.get(row::CONCURRENCY),
        task: task_with_small_payload(row, lanes.get(&lane).cloned()),
    }
}

/// The lanes that were read, and the place behind which each has its next waiting task.
fn next_after(picker: &Picker<'_>, begins: &HashMap<LaneRange, Place>) -> Vec<(LaneRange, Place)> {
    let mut visited: Vec<LaneRange> = picker.visited.iter().flatten().copied().collect();
    visited.sort_unstable();
    visited.dedup();
    let done = |range: LaneRange| picker.streams.get(&range).and_then(LaneRows::done);
    let begin = |range: LaneRange| begins.get(&range).copied().unwrap_or(range.front());
    visited.into_iter().map(|range| (range, done(range).unwrap_or_else(|| begin(range)))).collect()
}

/// The claimed tasks, in the order of the picking, and when the lanes are due next.
struct WrittenClaims {
    /// None: its payload turned out to be unreadable.
    tasks: Vec<Option<Task>>,
    next_due: HashMap<LaneRange, Option<i64>>,
}

async fn write(
    writer: &mut Writer,
    claims: &[Claim],
    picker: &mut Picker<'_>,
    now: Timestamp,
    next: &[(LaneRange, Place)],
) -> Result<WrittenClaims, Fault> {
    let by: Vec<By<'_>> = claims.iter().map(|claim| writer.by(now, claims::actor(&claim.claimant))).collect();
    let node = writer.shared.node;
    let taken = changes(&picker.taken, |picked, task| {
        // A task that is due a little later is taken at its due instant.
        let by = By { now: now.max(task.due_at), ..by[picked.claim].clone() };
        let event = claims::claim_event(&claims[picked.claim].claimant, node, by.now, task.body.timeout_millis);
        expect_change(&task.position, event, &by).shortening(&task.trail)
    });
    let expired =
        changes(&picker.expired, |picked, task| expect_change(&task.position, Event::Expire, &by[picked.claim]));
    let mut gone: Vec<RowChange<'_>> = expired.iter().map(|(id, change)| RowChange::in_place(*id, change)).collect();
    gone.sort_unstable_by_key(|wanted| wanted.id);
    for (picked, (_, change)) in picker.taken.iter().zip(&taken) {
        let effects = Effects::in_place(change, LaneInstant::of_columns(picked.due.lane, picked.due.place.0));
        debug_assert!(effects.leaves_no_note(), "a claim leaves no note: {effects:?}");
        writer.tally.record(&effects, || now);
    }
    let takes: Vec<HeldRow<'_>> =
        picker.taken.iter().zip(&taken).map(|(picked, (_, change))| HeldRow { tid: picked.due.tid, change }).collect();
    let finished = change::finish(writer, &gone).await?;
    if finished.len() != gone.len() {
        return Err(Fault::Corrupt("a task that was locked for a claim has changed meanwhile".to_owned()));
    }
    change::record(writer, &finished, &gone, now);
    // A place may come free while its last waiter is parked: the resolver looks once both are done.
    let full: HashSet<Uuid> = picker.parked.iter().filter_map(|due| due.concurrency).collect();
    for key in full {
        writer.notes.places(key, None);
    }
    let end = TransactionEnd::of(writer);
    let large = picker.taken.iter().filter(|picked| picked.due.is_large());
    let large: Vec<Uuid> = large.map(|picked| picked.due.id).collect();
    let (session, allowances) = (&writer.session, &picker.allowances);
    // All rows are locked, so no write should fail its condition: everything is sent at once. One
    // that does fails the transaction.
    let (written, parked, spent, payloads, next_due, committed) = tokio::join!(
        biased;
        held_rows::write(session, &takes),
        park(session, &picker.parked),
        allowances.write(session),
        held_rows::payloads(session, &large),
        next_due(session, next),
        end.commit(session),
    );
    if committed.as_ref().is_err_and(Fault::breaks_connection) {
        let held = picker.taken.iter().zip(&taken).filter_map(|(picked, (id, change))| {
            let task = picked.due.task.as_ref().ok()?;
            Some((*id, change.position_after(&task.position), change.hold.as_ref()?))
        });
        writer.shared.in_doubt.note(held, &writer.by(now, Actor::Node));
    }
    let written = written?;
    parked?;
    spent?;
    let (mut payloads, next_due) = (payloads?, next_due?);
    writer.shared.outbox.wake_resolver(committed?);
    writer.shared.held_places.note(written.into_iter().filter_map(|(at, tid)| {
        let (id, change) = &taken[at];
        let lane = Arc::clone(&picker.taken[at].due.task.as_ref().ok()?.lane);
        Some((*id, HeldPlace { tid, version: change.version, lane }))
    }));
    let mut tasks = Vec::with_capacity(taken.len());
    for (picked, (_, change)) in picker.taken.iter_mut().zip(taken) {
        let mut task = std::mem::replace(&mut picked.due.task, Err(crate::columns::Unreadable("task")))
            .expect("invariant: picked rows are readable");
        if picked.due.is_large() {
            let Some(payload) = payloads.remove(&picked.due.id) else {
                picker.unreadable.push((picked.due.id, "payload"));
                tasks.push(None);
                continue;
            };
            task.body.payload = payload;
        }
        update_task(&mut task, change);
        tasks.push(Some(task));
    }
    Ok(WrittenClaims { tasks, next_due })
}

/// Parks rows that this transaction has locked.
async fn park(session: &Session, rows: &[DueRow]) -> Result<(), Fault> {
    if !rows.is_empty() {
        let tids: Vec<Tid> = rows.iter().map(|due| due.tid).collect();
        session.execute(Sql::PlacePark, &[&tids]).await?;
    }
    Ok(())
}

fn changes(picked: &[PickedRow], change: impl Fn(&PickedRow, &Task) -> Change) -> Vec<(TaskId, Change)> {
    let read = picked.iter().filter_map(|picked| picked.due.task.as_ref().ok().map(|task| (picked, task)));
    read.map(|(picked, task)| (task.id, change(picked, task))).collect()
}

async fn next_due(session: &Session, next: &[(LaneRange, Place)]) -> Result<HashMap<LaneRange, Option<i64>>, Fault> {
    let lanes: Vec<i64> = next.iter().map(|(range, _)| range.lane).collect();
    let (after_due, after_seq): (Vec<i64>, Vec<i64>) = next.iter().map(|(_, place)| *place).unzip();
    let rows = session.query(Sql::LaneNextDue, &[&lanes, &after_due, &after_seq]).await?;
    Ok(next.iter().zip(&rows).map(|((range, _), row)| (*range, row.get(0))).collect())
}

/// The answer of each claim.
fn answer(claims: &[Claim], picker: Picker<'_>, written: WrittenClaims, lost: Vec<Vec<Partition>>) -> Vec<Claimed> {
    let limited = |claim: &Claim, lost: &[Partition]| match lost {
        [] => picker.allowances.limited(claim),
        _ => Vec::new(),
    };
    let empty = |(claim, lost): (&Claim, Vec<Partition>)| Claimed {
        limited: limited(claim, &lost),
        not_owned: lost,
        ..Claimed::default()
    };
    let mut answers: Vec<Claimed> = claims.iter().zip(lost).map(empty).collect();
    for (picked, task) in picker.taken.iter().zip(written.tasks) {
        answers[picked.claim].tasks.extend(task);
    }
    for picked in &picker.expired {
        answers[picked.claim].expired += 1;
    }
    for (answer, mut visited) in answers.iter_mut().zip(picker.visited) {
        visited.sort_unstable();
        visited.dedup();
        let due = |range: &LaneRange| written.next_due.get(range).copied().flatten().map(Timestamp::from_millis);
        answer.next_due = visited.iter().map(|range| (LaneId::new(range.lane), due(range))).collect();
    }
    answers
}
