//! Lanes under open breakers: they leave the board, and now and then one of their tasks is a probe.
//!
//! A probe is a flight of its own (`flights`): asks the store for the permission, claims one task and
//! tells which it is. The lane it is taken from is any of those under the breaker that have something
//! due; a tenant's breaker is rather probed at a target whose own is closed.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::breakers::{Key, target_of};
use punctual_core::broker::WEBHOOK_POOL;
use punctual_core::lane::{Lane, Route};
use punctual_core::store::{Claim, Claimant, Claimed};
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use super::flights::Flight;
use crate::board::Shelf;
use crate::dispatcher::{AGAIN, Dispatcher, MOST_IN_VAIN, Report};

/// How often it is looked whether a probe can be made.
const INTERVAL: Duration = Duration::from_millis(250);
/// Probes under way at a time.
const MOST: usize = 4;

impl Dispatcher {
    /// When other breakers are open than before: takes lanes off the board, and puts others back.
    pub(super) fn mind_breakers(&mut self) {
        let open = self.deps.circuits.open();
        if Arc::ptr_eq(&open, &self.breakers) {
            return;
        }
        let has_changed = !open.has_keys_of(&self.breakers);
        self.breakers = open;
        if !has_changed {
            return;
        }
        let now = self.deps.clock.now();
        let breakers = Arc::clone(&self.breakers);
        let mut shut = self.board.take_if(|lane| breakers.is_over(lane));
        shut.extend(self.backlog.take_if(|lane| breakers.is_over(lane)));
        for (lane, head) in shut {
            self.broken.note(&lane, head);
        }
        for (lane, head) in self.broken.take_if(|lane| !breakers.is_over(lane)) {
            self.board.note(&lane, head, now);
        }
    }

    /// A worker has come that may take a probe.
    pub(super) fn may_probe(&mut self, tenant: &str) {
        if self.breakers.is_over_tenant(tenant) {
            self.next_probes = Instant::now();
        }
    }

    /// How long until it is worth to look for probes; none while no breaker is open.
    pub(super) fn until_probes(&self, now: Timestamp) -> Option<Duration> {
        let due = self.breakers.next_probe_at()?.duration_from(now);
        Some(due.max(self.next_probes.saturating_duration_since(Instant::now())))
    }

    /// Makes probes of the breakers whose time has come, where there is something to take and somebody to take it.
    pub(super) async fn launch_probes(&mut self) {
        if self.breakers.is_empty() || Instant::now() < self.next_probes {
            return;
        }
        self.next_probes = Instant::now() + INTERVAL;
        let now = self.deps.clock.now();
        let due = self.breakers.iter().filter(|breaker| breaker.next_probe_at <= now);
        let due: Vec<Key> = due.map(|breaker| breaker.key.clone()).collect();
        for key in due {
            if self.flights.probes() >= MOST {
                return;
            }
            if let Some((lane, keys)) = self.probe_of(&key, now) {
                self.launch_probe(lane, keys, now).await;
            }
        }
    }

    /// A lane to probe a breaker at, and all breakers that it is under.
    fn probe_of(&mut self, key: &Key, now: Timestamp) -> Option<(Arc<Lane>, Vec<Key>)> {
        let mut lanes = self.broken.due_under(key, now);
        lanes.retain(|lane| !self.flights.is_probing(&lane.key));
        if lanes.is_empty() {
            return None;
        }
        let start = rand::random_range(0..lanes.len());
        lanes.rotate_left(start);
        let over = |lane: &Lane| self.breakers.over(&lane.key.tenant, target_of(&lane.key));
        lanes.sort_by_key(|lane| over(lane).count());
        let may_be = |lane: &&Arc<Lane>| over(lane).all(|breaker| breaker.next_probe_at <= now);
        let candidates: Vec<Arc<Lane>> = lanes.iter().filter(may_be).cloned().collect();
        let lane = candidates.into_iter().find(|lane| self.has_taker(lane))?;
        let keys = self.breakers.over(&lane.key.tenant, target_of(&lane.key)).map(|breaker| breaker.key.clone());
        let keys = keys.collect();
        Some((lane, keys))
    }

    fn has_taker(&mut self, lane: &Lane) -> bool {
        match lane.key.route {
            Route::Pull => self.waiter_for(lane).is_some(),
            Route::Push(_) => self.deps.owned.held(&lane.key).is_some(),
        }
    }

    /// The first worker that waits for what a lane has.
    fn waiter_for(&mut self, lane: &Lane) -> Option<u64> {
        let shelves = Shelf::of(&lane.key);
        shelves.iter().find_map(|shelf| self.waiters.first_at(shelf, 1).first().copied())
    }

    async fn launch_probe(&mut self, lane: Arc<Lane>, keys: Vec<Key>, now: Timestamp) {
        let (claimant, worker) = match lane.key.route {
            Route::Pull => {
                let Some(worker) = self.waiter_for(&lane) else { return };
                let Some(waiting) = self.waiters.get(worker) else { return };
                let (name, lease_millis) = (waiting.ask.worker.clone(), waiting.ask.lease_millis);
                (Claimant::Worker { name, lease_millis, due_by: None }, Some(worker))
            }
            Route::Push(_) => {
                let Some(held) = self.deps.owned.held(&lane.key) else { return };
                if self.deps.broker.room(WEBHOOK_POOL).await.unwrap_or(0) == 0 {
                    return;
                }
                let (visibility_millis, terms) = (self.visibility_millis(), held.fence.into_iter().collect());
                (Claimant::Dispatch { visibility_millis, terms, from: None }, None)
            }
        };
        let claim = Claim { lanes: vec![(lane.id, 1)], limit: 1, claimant };
        let (circuits, store) = (Arc::clone(&self.deps.circuits), Arc::clone(&self.deps.store));
        let call = async move { circuits.probe(&keys, now, store.claim(vec![claim])).await };
        self.flights.launch_call(Flight::Probe { lane, worker }, call);
    }

    /// Leaves the queue of a probe alone that let nothing through, or lets nothing more, and has another one tried soon: the
    /// later the more there were of them.
    fn shut_out(&mut self, lane: &Lane, answer: &Claimed, now: Timestamp) {
        for held in &answer.limited {
            self.broken.shut(&lane.key, held.until, now);
        }
        if !answer.tasks.is_empty() || answer.limited.is_empty() {
            self.probes_in_vain = 0;
            return;
        }
        self.next_probes = Instant::now() + (AGAIN * 2_u32.pow(self.probes_in_vain)).min(INTERVAL);
        self.probes_in_vain = (self.probes_in_vain + 1).min(MOST_IN_VAIN);
    }

    /// Queues may let something through again, those among them that kept a probe from being made.
    pub(super) fn free_probes(&mut self) {
        let mut is_any = self.freed_everywhere && self.broken.free_all();
        for (tenant, queue) in &self.freed {
            is_any |= self.broken.free(tenant, queue);
        }
        if is_any {
            self.next_probes = Instant::now();
        }
    }

    /// A probe has landed: gives out what it took, if anything.
    pub(super) async fn probed(
        &mut self,
        lane: &Lane,
        worker: Option<u64>,
        answers: Vec<Claimed>,
        report: &mut Report,
    ) {
        let now = self.deps.clock.now();
        for answer in answers {
            self.shut_out(lane, &answer, now);
            for (lane, head) in &answer.next_due {
                // The breaker may have closed meanwhile.
                if self.broken.has(*lane) {
                    self.broken.correct(*lane, *head);
                } else {
                    self.board.correct(*lane, *head, now);
                }
            }
            if let Some(worker) = worker {
                report.pulled += answer.tasks.len();
                self.hand_out(worker, answer.tasks);
            } else {
                let tasks = self.claimed(answer);
                report.pushed += self.publish(tasks).await;
            }
        }
    }
}
