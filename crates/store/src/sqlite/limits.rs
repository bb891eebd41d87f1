//! The limits of queues, as the writer has read them.
//!
//! Only the writer claims tasks and changes queues, so its cache is right until it writes. A
//! rollback empties the cache. The number of held tasks of a queue is its stored count plus the
//! change by the current transaction.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::queues::{Bucket, Queue};
use punctual_core::state::State;
use punctual_core::store::{FullQueue, LimitedLane};
use punctual_core::task::NewTask;
use punctual_core::time::Timestamp;

use crate::columns::number_column;
use crate::limits::{Allowance, QueueLimits};
use crate::tally;

use super::fault::Fault;
use super::outbox::Concurrency;
use super::session::Session;
use super::statements::Sql;
use super::{insert, queues};

/// The limited queues, by tenant and name. None: they must be read.
#[derive(Default)]
pub(crate) struct LimitsCache(Option<HashMap<String, HashMap<String, CachedLimits>>>);

#[derive(Clone, Copy)]
struct CachedLimits {
    limits: QueueLimits,
    max_depth: Option<u64>,
}

impl CachedLimits {
    /// The limits of a queue whose bucket is full, if it has any.
    fn of(queue: &Queue) -> Option<Self> {
        let cached = Self { limits: QueueLimits::of(queue), max_depth: queue.settings.max_depth };
        (queue.limits_claims() || cached.max_depth.is_some()).then_some(cached)
    }
}

impl LimitsCache {
    /// Takes in a queue that the transaction has written. The other queues need not be read again.
    pub(crate) fn put(&mut self, queue: &Queue) {
        let Some(all) = &mut self.0 else { return };
        let mut cached = CachedLimits::of(queue);
        let queues = all.entry(queue.tenant.clone()).or_default();
        let before = queues.remove(&queue.name);
        if let Some(cached) = &mut cached
            && let Some((_, bucket)) = &mut cached.limits.rate
        {
            *bucket = before.and_then(|before| before.limits.rate).and_then(|(_, bucket)| bucket);
        }
        queues.extend(cached.map(|cached| (queue.name.clone(), cached)));
        if queues.is_empty() {
            all.remove(&queue.tenant);
        }
    }

    /// Empties the cache.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    fn get(&self, tenant: &str, queue: &str) -> Option<CachedLimits> {
        self.0.as_ref()?.get(tenant)?.get(queue).copied()
    }
}

/// The limits of a queue, if it has any.
fn cached(session: &mut Session<'_>, tenant: &str, queue: &str) -> Result<Option<CachedLimits>, Fault> {
    if session.limits.0.is_none() {
        let read = read(session)?;
        session.limits.0 = Some(read);
    }
    Ok(session.limits.get(tenant, queue))
}

fn read(session: &mut Session<'_>) -> Result<HashMap<String, HashMap<String, CachedLimits>>, Fault> {
    let mut all: HashMap<String, HashMap<String, CachedLimits>> = HashMap::new();
    for queue in queues::changed_since(session, 0)? {
        if let Some(cached) = CachedLimits::of(&queue) {
            all.entry(queue.tenant).or_default().insert(queue.name, cached);
        }
    }
    let query = session.statements.get(Sql::BucketList)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (tenant, queue): (String, String) = (row.get(0)?, row.get(1)?);
        let bucket = Bucket { tokens: row.get(2)?, refilled_at: Timestamp::from_millis(row.get(3)?) };
        if let Some(cached) = all.get_mut(&tenant).and_then(|queues| queues.get_mut(&queue))
            && let Some((_, taken)) = &mut cached.limits.rate
        {
            *taken = Some(bucket);
        }
    }
    Ok(all)
}

/// How many live tasks a queue has in these states, including the current transaction's.
fn live(session: &mut Session<'_>, tenant: &str, queue: &str, states: &[State]) -> Result<u64, Fault> {
    let mut tasks = session.queue_tally.change(tenant, queue, states);
    let query = session.statements.get(Sql::QueueLive)?;
    let mut rows = query.query((tenant, queue))?;
    while let Some(row) = rows.next()? {
        if State::from_code(row.get(0)?).is_some_and(|state| states.contains(&state)) {
            tasks += row.get::<_, i64>(1)?;
        }
    }
    Ok(u64::try_from(tasks).unwrap_or(0))
}

/// How many tasks of one concurrency key may run in the queue of a lane, if that is limited.
pub(crate) fn max_per_key(session: &mut Session<'_>, lane: i64) -> Result<Option<u64>, Fault> {
    let Some(lane) = session.lanes.get(session.connection, lane)? else { return Ok(None) };
    Ok(cached(session, &lane.key.tenant, &lane.key.queue)?.and_then(|cached| cached.limits.max_per_key))
}

/// How many places of a key are taken, counted up to `most`.
pub(crate) fn places_taken(session: &mut Session<'_>, key: Concurrency, most: u64) -> Result<u64, Fault> {
    let count = session.statements.get(Sql::PlaceHeld)?;
    let taken: i64 = count.query_row((key, number_column(most)), |row| row.get(0))?;
    Ok(u64::try_from(taken).unwrap_or(0))
}

/// The limited queues of a claim, and how much it may take from each.
#[derive(Default)]
pub(crate) struct Allowances(Vec<(Arc<Lane>, Allowance)>);

impl Allowances {
    /// How many tasks of the lane a claim may take.
    pub(crate) fn room(&mut self, session: &mut Session<'_>, lane: LaneId, now: Timestamp) -> Result<usize, Fault> {
        let Some(lane) = session.lanes.get(session.connection, lane.number())? else { return Ok(usize::MAX) };
        if let Some(allowance) = self.get(&lane) {
            return Ok(allowance.left());
        }
        let (tenant, queue) = (&lane.key.tenant, &lane.key.queue);
        let Some(CachedLimits { limits, .. }) = cached(session, tenant, queue)? else { return Ok(usize::MAX) };
        let running = match limits.max_concurrency {
            Some(_) => live(session, tenant, queue, &[State::Queued, State::Running])?,
            None => 0,
        };
        let allowance = limits.allow(running, now);
        let room = allowance.left();
        self.0.push((lane, allowance));
        Ok(room)
    }

    /// Counts tasks of the lane that were taken.
    pub(crate) fn take(&mut self, session: &mut Session<'_>, lane: LaneId, tasks: usize) -> Result<(), Fault> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Some(lane) = session.lanes.get(session.connection, lane.number())? else { return Ok(()) };
        if let Some(allowance) = self.get(&lane) {
            allowance.take(tasks);
        }
        Ok(())
    }

    fn get(&mut self, lane: &Lane) -> Option<&mut Allowance> {
        let (tenant, queue) = (&lane.key.tenant, &lane.key.queue);
        let of_queue =
            |other: &&mut (Arc<Lane>, Allowance)| (&other.0.key.tenant, &other.0.key.queue) == (tenant, queue);
        self.0.iter_mut().find(of_queue).map(|(_, allowance)| allowance)
    }

    /// Writes the buckets. Returns the lanes that have nothing left to take.
    pub(crate) fn close(
        mut self,
        session: &mut Session<'_>,
        lanes: &[(LaneId, usize)],
    ) -> Result<Vec<LimitedLane>, Fault> {
        let mut limited = Vec::new();
        if self.0.is_empty() {
            return Ok(limited);
        }
        for (lane, allowance) in &self.0 {
            if let Some(bucket) = allowance.bucket() {
                put(session, &lane.key.tenant, &lane.key.queue, bucket)?;
            }
        }
        for (id, most) in lanes {
            let Some(lane) = session.lanes.get(session.connection, id.number())? else { continue };
            limited.extend(self.get(&lane).filter(|_| *most > 0).and_then(|allowance| allowance.limited(*id)));
        }
        Ok(limited)
    }
}

fn put(session: &mut Session<'_>, tenant: &str, queue: &str, bucket: Bucket) -> Result<(), Fault> {
    let put = session.statements.get(Sql::BucketPut)?;
    put.execute((tenant, queue, bucket.tokens, bucket.refilled_at.as_millis()))?;
    let all = session.limits.0.as_mut();
    let cached = all.and_then(|all| all.get_mut(tenant)).and_then(|queues| queues.get_mut(queue));
    if let Some((_, taken)) = cached.and_then(|cached| cached.limits.rate.as_mut()) {
        *taken = Some(bucket);
    }
    Ok(())
}

/// The queue of a new task, if it is full and the task was not submitted before.
pub(crate) fn without_room(session: &mut Session<'_>, task: &NewTask) -> Result<Option<FullQueue>, Fault> {
    let (tenant, queue) = (&task.lane.tenant, &task.lane.queue);
    let Some(CachedLimits { max_depth: Some(max_depth), .. }) = cached(session, tenant, queue)? else {
        return Ok(None);
    };
    let states = [State::Blocked, State::Pending, State::Queued, State::Running];
    if live(session, tenant, queue, &states)? < max_depth {
        return Ok(None);
    }
    let is_repeated = insert::is_repeated(session, task)?;
    Ok((!is_repeated).then(|| FullQueue { name: queue.clone(), max_depth }))
}

/// Leaves hints for places that a committed transaction freed.
pub(crate) fn report_freed(session: &mut Session<'_>, changed: &[(i64, u8, i64)]) {
    if session.limits.0.as_ref().is_none_or(HashMap::is_empty) {
        return;
    }
    for lane in tally::freed(changed.iter().copied()) {
        let Ok(Some(lane)) = session.lanes.get(session.connection, lane) else { continue };
        let (tenant, queue) = (&lane.key.tenant, &lane.key.queue);
        let is_full = |cached: CachedLimits| cached.limits.max_concurrency.is_some();
        if let Some(watch) = &session.limit_watch
            && session.limits.get(tenant, queue).is_some_and(is_full)
        {
            watch.freed(tenant, queue);
        }
    }
}
