//! The limits of queues (the table `gates`): how much a claim may take.
//!
//! Every claim takes a shared advisory lock for its queues and then locks their rows in `gates`,
//! which most queues do not have. A change of a queue takes the advisory lock exclusively: claims
//! under way end first, and later claims see the change. The held tasks of a queue are counted
//! under the lock of its row. Only claims increase that number, so the count is never too small.
//!
//! [`LimitsCache`] is what this process has seen of the limits. It saves reads where nothing is
//! limited and may be out of date. Only a queue that this process cannot read is paused by the
//! cache alone.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use parking_lot::RwLock;
use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use punctual_core::partitions::Partition;
use punctual_core::queues::{Bucket, Queue, RateLimit};
use punctual_core::store::{Claim, LimitedLane};
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::row;
use super::statements::Sql;
use crate::columns::number_column;
use crate::limit_watch::LimitWatch;
use crate::limits::{Allowance, PauseEnd, QueueLimits};
use crate::places::FreePlaces;
use crate::queue_columns::{QueueComplaints, ReadQueue};

/// The class and the number of the advisory locks. Queues that share a lock wait for each other's
/// changes, for a moment.
const CLASS: i32 = 0x7055_0001;
const SHARES: u16 = 64;

/// What this process has seen of limited queues (see the module).
#[derive(Default)]
pub(crate) struct LimitsCache {
    known: RwLock<KnownLimits>,
    pub watch: LimitWatch,
    pub complaints: QueueComplaints,
}

/// Whether a queue limits claims.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ClaimLimits {
    #[default]
    None,
    Some,
    /// Its settings cannot be read: it counts as paused.
    Unreadable,
}

/// The queues that are known to be limited, by tenant and name.
#[derive(Default)]
struct KnownLimits {
    queues: HashMap<String, HashMap<String, SeenLimits>>,
    /// Every change up to this number was read.
    read_to: u64,
}

/// What is known of a queue. One without limits is not kept.
#[derive(Clone, Copy, Default)]
struct SeenLimits {
    change_number: u64,
    claims: ClaimLimits,
    has_places: bool,
    has_depth: bool,
}

impl SeenLimits {
    fn of(queue: &Queue, is_readable: bool) -> Self {
        Self {
            change_number: queue.change_number,
            claims: match (is_readable, queue.limits_claims()) {
                (false, _) => ClaimLimits::Unreadable,
                (true, true) => ClaimLimits::Some,
                (true, false) => ClaimLimits::None,
            },
            has_places: queue.settings.max_concurrency.is_some(),
            has_depth: queue.settings.max_depth.is_some(),
        }
    }

    fn is_limited(&self) -> bool {
        self.claims != ClaimLimits::None || self.has_depth
    }
}

impl KnownLimits {
    fn get(&self, tenant: &str, queue: &str) -> Option<SeenLimits> {
        self.queues.get(tenant)?.get(queue).copied()
    }

    /// Takes in a queue, unless something later is known of it.
    fn put(&mut self, queue: &Queue, seen: SeenLimits) {
        let (tenant, name) = (queue.tenant.as_str(), queue.name.as_str());
        if self.get(tenant, name).is_some_and(|known| known.change_number > seen.change_number) {
            return;
        }
        if seen.is_limited() {
            self.queues.entry(tenant.to_owned()).or_default().insert(name.to_owned(), seen);
        } else if let Some(queues) = self.queues.get_mut(tenant) {
            queues.remove(name);
            if queues.is_empty() {
                self.queues.remove(tenant);
            }
        }
    }
}

impl LimitsCache {
    /// Remembers the queues that changed after a number, as they were read. From zero on they are
    /// all there are; a queue that this process has changed meanwhile stays.
    pub(crate) fn learn(&self, after: u64, changed: &[ReadQueue]) {
        let mut known = self.known.write();
        let last = changed.iter().map(|read| read.queue.change_number).fold(known.read_to, u64::max);
        if after == 0 {
            for queues in known.queues.values_mut() {
                queues.retain(|_, seen| seen.change_number > last);
            }
            known.queues.retain(|_, queues| !queues.is_empty());
        }
        for ReadQueue { queue, is_readable } in changed {
            known.put(queue, SeenLimits::of(queue, *is_readable));
        }
        known.read_to = last;
    }

    /// Remembers a queue that this process has changed, unless a later change was read.
    pub(crate) fn learn_own(&self, queue: &Queue) {
        let mut known = self.known.write();
        if queue.change_number > known.read_to {
            known.put(queue, SeenLimits::of(queue, true));
        }
    }

    /// Remembers limits that a claim has found. The next whole read corrects them.
    fn meet(&self, found: &LockedLimits) {
        let (tenant, queue) = (found.tenant.as_str(), found.queue.as_str());
        let has_places = found.limits.max_concurrency.is_some();
        let is_known = |seen: SeenLimits| seen.claims != ClaimLimits::None && (seen.has_places || !has_places);
        if self.known.read().get(tenant, queue).is_some_and(is_known) {
            return;
        }
        let mut known = self.known.write();
        let place = known.queues.entry(tenant.to_owned()).or_default().entry(queue.to_owned()).or_default();
        if place.claims == ClaimLimits::None {
            place.claims = ClaimLimits::Some;
        }
        place.has_places |= has_places;
    }

    fn get(&self, tenant: &str, queue: &str) -> SeenLimits {
        self.known.read().get(tenant, queue).unwrap_or_default()
    }

    /// Whether no queue is known to be limited.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.read().queues.is_empty()
    }

    /// Whether a queue may have no room for another task.
    pub(crate) fn has_depth(&self, tenant: &str, queue: &str) -> bool {
        self.get(tenant, queue).has_depth
    }

    /// Whether a dispatcher may wait for a place in the queue of this lane.
    pub(crate) fn has_places(&self, lane: &LaneKey) -> bool {
        self.get(&lane.tenant, &lane.queue).has_places
    }
}

/// The queues that a transaction claims from.
pub(crate) struct ClaimedQueues {
    tenants: Vec<String>,
    queues: Vec<String>,
    shares: BTreeSet<u16>,
    /// Queues that count as paused, because this process cannot read their settings.
    unreadable: Vec<(String, String)>,
    /// Whether one of them is known to be limited.
    pub is_limited: bool,
}

impl ClaimedQueues {
    /// The queues of these lanes.
    pub(crate) fn of<'a>(lanes: impl Iterator<Item = &'a Arc<Lane>>, seen: &LimitsCache) -> Self {
        let (mut named, mut shares) = (BTreeSet::new(), BTreeSet::new());
        for lane in lanes {
            if named.insert((&lane.key.tenant, &lane.key.queue)) {
                shares.insert(Partition::of(&lane.key, SHARES).number());
            }
        }
        let (mut is_limited, mut unreadable) = (false, Vec::new());
        if !seen.is_empty() {
            for (tenant, queue) in &named {
                let seen = seen.get(tenant, queue);
                is_limited |= seen.claims != ClaimLimits::None;
                if seen.claims == ClaimLimits::Unreadable {
                    unreadable.push(((*tenant).clone(), (*queue).clone()));
                }
            }
        }
        let (tenants, queues) = named.into_iter().map(|(tenant, queue)| (tenant.clone(), queue.clone())).unzip();
        Self { tenants, queues, shares, unreadable, is_limited }
    }

    /// The SQL that begins the transaction and takes the shared locks of its queues.
    pub(crate) fn begin(&self) -> String {
        let mut text = "BEGIN".to_owned();
        for (nth, share) in self.shares.iter().enumerate() {
            let before = if nth == 0 { "; SELECT" } else { "," };
            write!(text, "{before} pg_advisory_xact_lock_shared({CLASS}, {share})")
                .expect("invariant: a string can be written to");
        }
        text
    }

    /// Locks and reads the limits of these queues. An unreadable queue counts as paused.
    pub(crate) async fn lock(&self, session: &Session) -> Result<Vec<LockedLimits>, Fault> {
        if self.tenants.is_empty() {
            return Ok(Vec::new());
        }
        let rows = session.query(Sql::GateLock, &[&self.tenants, &self.queues]).await?;
        let mut locked: Vec<LockedLimits> = rows.iter().map(found).collect();
        if !self.unreadable.is_empty() {
            locked.retain(|locked| !self.unreadable.iter().any(|(tenant, queue)| locked.is_of(tenant, queue)));
            let limits = QueueLimits { pause: Some(PauseEnd(None)), ..QueueLimits::default() };
            let paused = |(tenant, queue): &(String, String)| LockedLimits {
                tenant: tenant.clone(),
                queue: queue.clone(),
                limits,
            };
            locked.extend(self.unreadable.iter().map(paused));
        }
        Ok(locked)
    }
}

/// The SQL that begins a change of a queue. It waits for the claims under way, which last
/// milliseconds unless their node is frozen. Later claims wait for the change.
pub(crate) fn begin_change(tenant: &str, queue: &str) -> String {
    let (tenant, queue) = (tenant.to_owned(), queue.to_owned());
    let key = LaneKey { tenant, queue, kind: String::new(), priority: 0, route: Route::Pull };
    let share = Partition::of(&key, SHARES).number();
    format!(
        "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL lock_timeout = '2s'; \
         SELECT pg_advisory_xact_lock({CLASS}, {share})"
    )
}

/// The limits of a queue, locked.
pub(crate) struct LockedLimits {
    tenant: String,
    queue: String,
    limits: QueueLimits,
}

impl LockedLimits {
    fn is_of(&self, tenant: &str, queue: &str) -> bool {
        self.tenant == tenant && self.queue == queue
    }
}

fn found(row: &Row) -> LockedLimits {
    let number = |place: usize| row.get::<_, Option<i64>>(place);
    let rate = row.get::<_, Option<f64>>(3).map(|per_second| {
        let burst = number(4).and_then(|burst| u32::try_from(burst).ok()).unwrap_or(1);
        let refilled_at = number(6).map(Timestamp::from_millis);
        let bucket = row.get::<_, Option<f64>>(5).zip(refilled_at);
        let bucket = bucket.map(|(tokens, refilled_at)| Bucket { tokens, refilled_at });
        (RateLimit { per_second, burst }, bucket)
    });
    let limits = QueueLimits {
        max_concurrency: number(2).map(|most| u64::try_from(most).unwrap_or(0)),
        max_per_key: number(9).map(|most| u64::try_from(most).unwrap_or(0)),
        rate,
        pause: row.get::<_, bool>(7).then(|| PauseEnd(number(8).map(Timestamp::from_millis))),
    };
    LockedLimits { tenant: row.get(0), queue: row.get(1), limits }
}

/// How much a transaction may take from limited queues.
#[derive(Default)]
pub(crate) struct Allowances {
    of_lane: HashMap<i64, usize>,
    all: Vec<(String, String, Allowance)>,
    /// How many tasks of a concurrency key may be held, by lane.
    max_per_key: HashMap<i64, u64>,
    places: FreePlaces<Uuid>,
}

impl Allowances {
    /// What the locked limits allow, for these lanes.
    pub(crate) async fn of(
        session: &Session,
        seen: &LimitsCache,
        found: Vec<LockedLimits>,
        lanes: &HashMap<i64, Arc<Lane>>,
        now: Timestamp,
    ) -> Result<Self, Fault> {
        let running = running(session, &found).await?;
        let mut allowances = Self::default();
        for (found, running) in found.into_iter().zip(running) {
            seen.meet(&found);
            let number = allowances.all.len();
            let of_queue =
                lanes.values().filter(|lane| (&lane.key.tenant, &lane.key.queue) == (&found.tenant, &found.queue));
            for lane in of_queue {
                allowances.of_lane.insert(lane.id.number(), number);
                allowances.max_per_key.extend(found.limits.max_per_key.map(|most| (lane.id.number(), most)));
            }
            allowances.all.push((found.tenant, found.queue, found.limits.allow(running, now)));
        }
        Ok(allowances)
    }

    /// How many tasks of a lane may still be taken.
    pub(crate) fn room(&self, lane: i64) -> usize {
        self.of_lane.get(&lane).map_or(usize::MAX, |number| self.all[*number].2.left())
    }

    /// A task of a lane is taken.
    pub(crate) fn take(&mut self, lane: i64) {
        if let Some(number) = self.of_lane.get(&lane) {
            self.all[*number].2.take(1);
        }
    }

    /// Counts the places of concurrency keys that are met for the first time: lane and name of
    /// each. The limits are locked, so no claim takes a place meanwhile.
    pub(crate) async fn meet_keys(
        &mut self,
        session: &Session,
        keys: impl Iterator<Item = (i64, Uuid)>,
    ) -> Result<(), Fault> {
        if self.max_per_key.is_empty() {
            return Ok(());
        }
        let limit = |(lane, key): (i64, Uuid)| Some((key, *self.max_per_key.get(&lane)?));
        let met: HashMap<Uuid, u64> = keys.filter_map(limit).filter(|(key, _)| !self.places.has(key)).collect();
        if met.is_empty() {
            return Ok(());
        }
        let (names, most): (Vec<Uuid>, Vec<i64>) = met.iter().map(|(key, most)| (*key, number_column(*most))).unzip();
        for row in session.query(Sql::PlaceCount, &[&names, &most]).await? {
            let (key, taken): (Uuid, i64) = (row.get(0), row.get(1));
            self.places.put(key, met[&key], u64::try_from(taken).unwrap_or(0));
        }
        Ok(())
    }

    /// Takes a place for a task of a lane, if its key is limited. False: the key is full.
    pub(crate) fn take_place(&mut self, lane: i64, key: Option<Uuid>) -> bool {
        match key {
            Some(key) if self.max_per_key.contains_key(&lane) => self.places.take(&key),
            _ => true,
        }
    }

    /// The lanes of a claim that have nothing left to take.
    pub(crate) fn limited(&self, claim: &Claim) -> Vec<LimitedLane> {
        let held = |lane: LaneId| self.all[*self.of_lane.get(&lane.number())?].2.limited(lane);
        claim.lanes.iter().filter(|(_, most)| *most > 0).filter_map(|(lane, _)| held(*lane)).collect()
    }

    /// Writes what was taken from the buckets.
    pub(crate) async fn write(&self, session: &Session) -> Result<(), Fault> {
        let taken: Vec<(&str, &str, Bucket)> = self
            .all
            .iter()
            .filter_map(|(tenant, queue, allowance)| Some((&**tenant, &**queue, allowance.bucket()?)))
            .collect();
        if taken.is_empty() {
            return Ok(());
        }
        let tenants: Vec<&str> = taken.iter().map(|(tenant, ..)| *tenant).collect();
        let queues: Vec<&str> = taken.iter().map(|(_, queue, _)| *queue).collect();
        let tokens: Vec<f64> = taken.iter().map(|(.., bucket)| bucket.tokens).collect();
        let refilled_at: Vec<i64> = taken.iter().map(|(.., bucket)| bucket.refilled_at.as_millis()).collect();
        session.execute(Sql::GateTokens, &[&tenants, &queues, &tokens, &refilled_at]).await?;
        Ok(())
    }
}

/// How many tasks of each queue are held. The limits are locked, so no claim increases them.
async fn running(session: &Session, found: &[LockedLimits]) -> Result<Vec<u64>, Fault> {
    let mut running = vec![0; found.len()];
    let limited: Vec<usize> = (0..found.len()).filter(|place| found[*place].limits.max_concurrency.is_some()).collect();
    if limited.is_empty() {
        return Ok(running);
    }
    let tenants: Vec<&str> = limited.iter().map(|place| found[*place].tenant.as_str()).collect();
    let queues: Vec<&str> = limited.iter().map(|place| found[*place].queue.as_str()).collect();
    for row in session.query(Sql::GateRunning, &[&tenants, &queues]).await? {
        if let Some(place) = limited.get(row::index(&row, 0)) {
            running[*place] = u64::try_from(row.get::<_, i64>(1)).unwrap_or(0);
        }
    }
    Ok(running)
}
