//! Takes due tasks for takers.
//!
//! One statement locks and reads what is due in the lanes of all claims, passing by what
//! others have; the state machine makes the changes; another statement writes them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use punctual_core::ids::TaskId;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::state::{By, Change, Event, State};
use punctual_core::store::{Claim, Claimed};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::change::{self, Wanted};
use super::fault::Fault;
use super::hand::{Counts, Hand};
use super::marks::{Begin, Place};
use super::pick::{Due, Need, Picked, Picker, SMALL_BYTES};
use super::session::Session;
use super::statements::Sql;
use super::take::Take;
use super::{quarantine, row, take};
use crate::taking::{self, advance, made};

/// Makes claims one after the other.
pub(crate) async fn claim(hand: &mut Hand, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
    let began = Instant::now();
    let now = hand.now();
    let mut picker = Picker::new(claims, now);
    let mut need = picker.first_need();
    if need.looks.is_empty() {
        return Ok(claims.iter().map(|_| Claimed::default()).collect());
    }
    let mut begins: HashMap<i64, Begin> = HashMap::new();
    let mut lanes = HashMap::new();
    let mut is_first = true;
    loop {
        for (lane, _) in &need.looks {
            begins.entry(*lane).or_insert_with(|| hand.desk.marks.begin(*lane));
        }
        let rows = read(&hand.session, &picker, &need, &begins, now, std::mem::take(&mut is_first)).await?;
        let missing = rows.iter().map(|row| row.get(row::LANE)).filter(|lane| !lanes.contains_key(lane));
        let found = hand.desk.lanes.get(&hand.session, missing).await?;
        lanes.extend(found);
        picker.take_in(&need, rows.iter().map(|row| due(row, &lanes)).collect());
        match picker.go_on() {
            Some(more) => need = more,
            None => break,
        }
    }
    let next = next_after(&picker, &begins);
    let written = write(hand, claims, &mut picker, now, &next).await?;
    let took = began.elapsed();
    for (lane, begin) in begins {
        let used = picker.streams.get(&lane).and_then(|stream| stream.used);
        hand.desk.marks.taken(lane, begin, used, took);
    }
    quarantine::put_away(hand, &picker.unreadable).await?;
    Ok(answer(claims, picker, written))
}

/// Locks and reads what is needed, each lane behind what was read of it before.
async fn read(
    session: &Session,
    picker: &Picker<'_>,
    need: &Need,
    begins: &HashMap<i64, Begin>,
    now: Timestamp,
    is_first: bool,
) -> Result<Vec<Row>, Fault> {
    let after = |lane: i64| picker.streams.get(&lane).and_then(|stream| stream.read).unwrap_or(begins[&lane].place);
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let lanes: Vec<i64> = need.looks.iter().map(|(lane, _)| *lane).collect();
    let (after_due, after_seq): (Vec<i64>, Vec<i64>) = lanes.iter().map(|lane| after(*lane)).unzip();
    let most: Vec<i64> = need.looks.iter().map(|(_, most)| count(*most)).collect();
    let (now, limit) = (now.as_millis(), count(need.limit));
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
        [&lanes, &after_due, &after_seq, &most, &now, &limit, &SMALL_BYTES];
    if is_first {
        session.begin(Sql::ClaimDue, &parameters).await
    } else {
        session.query(Sql::ClaimDue, &parameters).await
    }
}

fn due(row: &Row, lanes: &HashMap<i64, Arc<Lane>>) -> Due {
    let lane: i64 = row.get(row::LANE);
    Due {
        id: row.get(row::ID),
        lane,
        place: (row.get(row::DUE_AT), row.get(row::SEQ)),
        tid: row.get(row::PLACE),
        bytes: row.get(row::PAYLOAD_BYTES),
        task: row::due(row, lanes.get(&lane).cloned()),
    }
}

/// The lanes that were looked at, and behind which place their next waiting task is.
fn next_after(picker: &Picker<'_>, begins: &HashMap<i64, Begin>) -> Vec<(i64, Place)> {
    let mut lanes: Vec<i64> = picker.visited.iter().flatten().copied().collect();
    lanes.sort_unstable();
    lanes.dedup();
    let used = |lane: i64| picker.streams.get(&lane).and_then(|stream| stream.used);
    let begin = |lane: i64| begins.get(&lane).map_or(super::marks::FRONT, |begin| begin.place);
    lanes.into_iter().map(|lane| (lane, used(lane).unwrap_or_else(|| begin(lane)))).collect()
}

/// What was written: the tasks as they are from now on, in the order of the picking, and when the lanes are due next.
struct Written {
    /// None: its payload turned out to be unreadable.
    tasks: Vec<Option<Task>>,
    next_due: HashMap<i64, Option<i64>>,
}

async fn write(
    hand: &mut Hand,
    claims: &[Claim],
    picker: &mut Picker<'_>,
    now: Timestamp,
    next: &[(i64, Place)],
) -> Result<Written, Fault> {
    let by: Vec<By<'_>> = claims.iter().map(|claim| hand.by(now, taking::actor(&claim.taker))).collect();
    let node = hand.desk.node;
    let taken = changes(&picker.taken, |picked, task| {
        let event = taking::claimed(&claims[picked.claim].taker, node, now, task.body.timeout_millis);
        made(&task.position, event, &by[picked.claim])
    });
    let expired = changes(&picker.expired, |picked, task| made(&task.position, Event::Expire, &by[picked.claim]));
    let mut gone: Vec<Wanted<'_>> = expired.iter().map(|(id, change)| Wanted { id: *id, change, lane: None }).collect();
    gone.sort_unstable_by_key(|wanted| wanted.id);
    for (picked, (_, change)) in picker.taken.iter().zip(&taken) {
        hand.tally.moved((picked.due.lane, change.from), (picked.due.lane, change.to));
    }
    for picked in &picker.expired {
        hand.tally.add(picked.due.lane, State::Pending, -1);
    }
    let takes: Vec<Take<'_>> =
        picker.taken.iter().zip(&taken).map(|(picked, (_, change))| Take { tid: picked.due.tid, change }).collect();
    let counts = Counts::take(&mut hand.tally);
    let large = picker.taken.iter().filter(|picked| picked.due.is_large());
    let large: Vec<Uuid> = large.map(|picked| picked.due.id).collect();
    let (session, slot) = (&hand.session, hand.slot);
    // Everything is locked, so that nothing of this can be lost: it is sent at once.
    let (written, finished, payloads, next_due, counted, committed) = tokio::join!(
        biased;
        take::write(session, &takes, now),
        change::finish(session, &gone),
        take::payloads(session, &large),
        next_due(session, next),
        counts.write(session, slot),
        session.run("COMMIT"),
    );
    let (written, finished) = (written?, finished?);
    let (mut payloads, next_due) = (payloads?, next_due?);
    counted?;
    committed?;
    if written != taken.len() as u64 || finished.len() != gone.len() {
        return Err(Fault::Corrupt("a task that was locked for a claim was changed all the same".to_owned()));
    }
    let mut tasks = Vec::with_capacity(taken.len());
    for (picked, (_, change)) in picker.taken.iter_mut().zip(taken) {
        let mut task = std::mem::replace(&mut picked.due.task, Err(crate::columns::Unreadable("task")))
            .expect("invariant: what was picked could be read");
        if picked.due.is_large() {
            let Some(payload) = payloads.remove(&picked.due.id) else {
                picker.unreadable.push((picked.due.id, "payload"));
                tasks.push(None);
                continue;
            };
            task.body.payload = payload;
        }
        advance(&mut task, change);
        tasks.push(Some(task));
    }
    Ok(Written { tasks, next_due })
}

fn changes(picked: &[Picked], change: impl Fn(&Picked, &Task) -> Change) -> Vec<(TaskId, Change)> {
    let read = picked.iter().filter_map(|picked| picked.due.task.as_ref().ok().map(|task| (picked, task)));
    read.map(|(picked, task)| (task.id, change(picked, task))).collect()
}

async fn next_due(session: &Session, next: &[(i64, Place)]) -> Result<HashMap<i64, Option<i64>>, Fault> {
    let lanes: Vec<i64> = next.iter().map(|(lane, _)| *lane).collect();
    let (after_due, after_seq): (Vec<i64>, Vec<i64>) = next.iter().map(|(_, place)| *place).unzip();
    let rows = session.query(Sql::LaneNextDue, &[&lanes, &after_due, &after_seq]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}

/// Gives each claim its own.
fn answer(claims: &[Claim], picker: Picker<'_>, written: Written) -> Vec<Claimed> {
    let mut answers: Vec<Claimed> = claims.iter().map(|_| Claimed::default()).collect();
    for (picked, task) in picker.taken.iter().zip(written.tasks) {
        answers[picked.claim].tasks.extend(task);
    }
    for picked in &picker.expired {
        answers[picked.claim].expired += 1;
    }
    for (answer, mut lanes) in answers.iter_mut().zip(picker.visited) {
        lanes.sort_unstable();
        lanes.dedup();
        let due = |lane: i64| written.next_due.get(&lane).copied().flatten().map(Timestamp::from_millis);
        answer.next_due = lanes.into_iter().map(|lane| (LaneId::new(lane), due(lane))).collect();
    }
    answers
}
