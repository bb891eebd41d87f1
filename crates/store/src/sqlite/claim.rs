//! Claims due tasks, as many as the limits of their queues allow (`limits`). A task whose
//! concurrency key is full is parked (`places`).

use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::partitions::Partition;
use punctual_core::state::{By, Event};
use punctual_core::store::{Claim, Claimant, Claimed};
use punctual_core::task::{Task, limits::CLAIM_PAYLOAD};
use punctual_core::time::Timestamp;
use rusqlite::OptionalExtension;

use crate::claims::{self, EXPIRED_MAX, expect_change, update_task};
use crate::columns::{Unreadable, count_column, node_column, number_column};
use crate::effects::{Effects, LaneInstant};
use crate::places::FreePlaces;

use super::fault::Fault;
use super::limits::{self, Allowances};
use super::outbox::Concurrency;
use super::row;
use super::session::Session;
use super::statements::Sql;
use super::{apply, outbox, quarantine};

/// How many rows are read at once behind expired and parked ones.
const BEHIND_EXPIRED: usize = 256;

/// Makes claims, one after the other.
pub(crate) fn claim(session: &mut Session<'_>, claims: &[Claim]) -> Result<Vec<Claimed>, Fault> {
    claims.iter().map(|claim| claim_one(session, claim)).collect()
}

fn claim_one(session: &mut Session<'_>, claim: &Claim) -> Result<Claimed, Fault> {
    let lost = lost(session, &claim.claimant)?;
    if !lost.is_empty() {
        return Ok(Claimed { not_owned: lost, ..Claimed::default() });
    }
    let now = session.now();
    let by = session.by(now, claims::actor(&claim.claimant));
    let mut visited: Vec<LaneId> = Vec::with_capacity(claim.lanes.len());
    let mut claimed = Claimed::default();
    let mut allowances = Allowances::default();
    let mut keys = KeyLimits::default();
    for (lane, most) in &claim.lanes {
        let before = claimed.tasks.len();
        let mut want = claim.limit.saturating_sub(before).min(*most);
        if want > 0 {
            want = want.min(allowances.room(session, *lane, now)?);
        }
        if want > 0 {
            let due_by = claims::due_by(&claim.claimant, now);
            keys.max_per_key = limits::max_per_key(session, lane.number())?;
            let context = ClaimContext { claimant: &claim.claimant, by: &by, due_by };
            take(session, (*lane, want), &context, &mut keys, &mut claimed)?;
            allowances.take(session, *lane, claimed.tasks.len() - before)?;
            visited.push(*lane);
        }
    }
    claimed.limited = allowances.close(session, &claim.lanes)?;
    visited.sort_unstable();
    visited.dedup();
    for lane in visited {
        claimed.next_due.push((lane, next_due(session, lane, claims::due_from(&claim.claimant))?));
    }
    Ok(claimed)
}

/// The partitions that this node does not own in the terms that the claimant names.
fn lost(session: &mut Session<'_>, claimant: &Claimant) -> Result<Vec<Partition>, Fault> {
    let Claimant::Dispatch { terms, .. } = claimant else { return Ok(Vec::new()) };
    let node = node_column(session.node);
    let mut lost = Vec::new();
    for (partition, term) in terms {
        let hold = session.statements.get(Sql::PartitionHold)?;
        if !hold.exists((partition.number(), node, number_column(*term)))? {
            lost.push(*partition);
        }
    }
    Ok(lost)
}

/// On whose behalf, when and how far ahead a claim takes tasks.
struct ClaimContext<'a> {
    claimant: &'a Claimant,
    by: &'a By<'a>,
    due_by: Timestamp,
}

impl<'a> ClaimContext<'a> {
    /// The instant at which a task is taken: now, or its due instant if that is a little ahead.
    fn of(&self, task: &Task) -> By<'a> {
        By { now: self.by.now.max(task.due_at), ..self.by.clone() }
    }
}

/// The limit per key of the queue under way, and the keys that a claim has met.
#[derive(Default)]
struct KeyLimits {
    max_per_key: Option<u64>,
    places: FreePlaces<Concurrency>,
    /// How many tasks were parked.
    parked: usize,
}

impl KeyLimits {
    /// Takes a place for a task, if its key is limited. False: the key is full.
    fn take_place(&mut self, session: &mut Session<'_>, key: Option<Concurrency>) -> Result<bool, Fault> {
        let (Some(most), Some(key)) = (self.max_per_key, key) else { return Ok(true) };
        if !self.places.has(&key) {
            self.places.put(key, most, limits::places_taken(session, key, most)?);
        }
        Ok(self.places.take(&key))
    }
}

/// Takes up to `want` due tasks of a lane.
fn take(
    session: &mut Session<'_>,
    (lane, want): (LaneId, usize),
    context: &ClaimContext<'_>,
    keys: &mut KeyLimits,
    claimed: &mut Claimed,
) -> Result<(), Fault> {
    let known = session.lanes.get(session.connection, lane.number())?;
    let wanted = claimed.tasks.len() + want;
    let mut chunk = want;
    while claimed.tasks.len() < wanted && claimed.expired + keys.parked < EXPIRED_MAX {
        let taken: usize = claimed.tasks.iter().map(payload_bytes).sum();
        if taken >= CLAIM_PAYLOAD {
            break;
        }
        let bound = ReadBound { rows: chunk, bytes: CLAIM_PAYLOAD - taken };
        let due = due(session, lane, known.as_ref(), context, bound)?;
        let read: usize = due.iter().filter_map(|row| row.task.as_ref().ok()).map(payload_bytes).sum();
        let all_seen = due.len() < chunk && taken + read < CLAIM_PAYLOAD;
        for DueRow { seq, concurrency, task } in due {
            if claimed.tasks.len() == wanted {
                break;
            }
            match task {
                Ok(task) if task.has_expired(context.of(&task).now) => {
                    let expired = expect_change(&task.position, Event::Expire, context.by);
                    apply::finish(session, task.id, &expired)?;
                    claimed.expired += 1;
                }
                Ok(task) if keys.take_place(session, concurrency)? => {
                    claimed.tasks.push(take_one(session, seq, task, context)?);
                }
                Ok(_) => {
                    session.statements.get(Sql::PlacePark)?.execute([seq])?;
                    keys.parked += 1;
                }
                Err(Unreadable(column)) => quarantine::put_away(session, seq, column)?,
            }
        }
        if all_seen {
            break;
        }
        chunk = chunk.max(BEHIND_EXPIRED);
    }
    Ok(())
}

fn take_one(session: &mut Session<'_>, seq: i64, mut task: Task, context: &ClaimContext<'_>) -> Result<Task, Fault> {
    let by = context.of(&task);
    let event = claims::claim_event(context.claimant, session.node, by.now, task.body.timeout_millis);
    let change = expect_change(&task.position, event, &by).shortening(&task.trail);
    apply::change_task(session, seq, &change)?;
    let at = LaneInstant { lane: task.lane.id.number(), due_at: task.due_at };
    outbox::record_claim(session, &Effects::in_place(&change, at), context.by.now)?;
    update_task(&mut task, change);
    Ok(task)
}

/// A due row: its number, its concurrency key, and the task in it.
struct DueRow {
    seq: i64,
    concurrency: Option<Concurrency>,
    task: Result<Task, Unreadable>,
}

/// How much one read returns at most.
#[derive(Clone, Copy)]
struct ReadBound {
    rows: usize,
    bytes: usize,
}

/// The due tasks of a lane, first due first. The task that exceeds the byte bound is the last.
fn due(
    session: &mut Session<'_>,
    lane: LaneId,
    known: Option<&Arc<Lane>>,
    context: &ClaimContext<'_>,
    bound: ReadBound,
) -> Result<Vec<DueRow>, Fault> {
    let query = session.statements.get(Sql::ClaimDue)?;
    let (due_by, from) = (context.due_by.as_millis(), claims::due_from(context.claimant));
    let mut rows = query.query((lane.number(), due_by, count_column(bound.rows), from))?;
    let (mut due, mut bytes) = (Vec::new(), 0);
    while bytes < bound.bytes
        && let Some(row) = rows.next()?
    {
        let task = row::live(row, known.cloned());
        bytes += task.as_ref().map_or(0, payload_bytes);
        due.push(DueRow { seq: row.get(row::SEQ)?, concurrency: row.get(row::CONCURRENCY).unwrap_or_default(), task });
    }
    Ok(due)
}

fn payload_bytes(task: &Task) -> usize {
    task.body.payload.get().len()
}

fn next_due(session: &mut Session<'_>, lane: LaneId, from: i64) -> Result<Option<Timestamp>, Fault> {
    let query = session.statements.get(Sql::LaneNextDue)?;
    Ok(query.query_row([lane.number(), from], |row| row.get(0)).optional()?.map(Timestamp::from_millis))
}
