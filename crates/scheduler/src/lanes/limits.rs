//! Lanes whose queues are paused or at a limit. Pure.
//!
//! A limited lane is not claimed from, so it holds up no other lane and costs the store nothing. It
//! is released at the instant that the store named, when its queue's limits change, and after a
//! second in any case, since notifications may be lost.

use std::collections::HashSet;
use std::sync::Arc;

use punctual_core::lane::{LaneId, LaneKey};
use punctual_core::time::Timestamp;

use super::{Home, LaneEntry, Lanes};

/// The longest time until a limited lane is tried again: notifications may be lost.
const LIMITED_MAX_MILLIS: i64 = 1_000;

/// Queues whose limits may have changed.
#[derive(Debug, Default)]
pub(super) struct ChangedLimits {
    everywhere: bool,
    queues: HashSet<(String, String)>,
}

impl Lanes {
    /// Limits a lane whose queue lets nothing through before `until`, or before its limits change.
    pub fn limit(&mut self, id: LaneId, until: Option<Timestamp>, now: Timestamp) {
        let Some(entry) = self.entries.get(&id) else { return };
        let head = match entry.home {
            Home::Waiting { head, .. } | Home::Ready { head } => Some(head),
            Home::Backlog => None,
            Home::Limited { .. } | Home::UnderBreaker { .. } => return,
        };
        let Some(head) = head.into_iter().chain(entry.backlog).min() else { return };
        let lane = Arc::clone(&entry.lane);
        if head > now {
            self.place(&lane, head, now);
        } else {
            self.set_home(&lane, Home::Limited { head, until: limited_until(until, now) });
        }
        self.clear_backlog(id);
    }

    /// Has probes avoid the queue of a lane, since it let nothing through.
    pub fn avoid_in_probes(&mut self, lane: &LaneKey, until: Option<Timestamp>, now: Timestamp) {
        self.index.under_breaker.avoid(lane, limited_until(until, now), now);
    }

    /// Releases the limited lanes that are due to be tried again, and those of queues whose limits
    /// have changed, or of all queues. Returns whether probes avoided one of these queues.
    pub fn release_limited(
        &mut self,
        everywhere: bool,
        queues: impl IntoIterator<Item = (String, String)>,
        now: Timestamp,
    ) -> bool {
        self.changed_limits.everywhere |= everywhere;
        self.changed_limits.queues.extend(queues);
        let changed = std::mem::take(&mut self.changed_limits);
        let mut avoided = changed.everywhere && self.index.under_breaker.free_all();
        for (tenant, queue) in &changed.queues {
            avoided |= self.index.under_breaker.free(tenant, queue);
        }
        for id in self.released(&changed, now) {
            if let Some(LaneEntry { lane, home: Home::Limited { head, .. }, .. }) = self.remove(id) {
                self.note(&lane, head, now);
            }
        }
        self.remember_for_claims(changed);
        avoided
    }

    fn released(&self, changed: &ChangedLimits, now: Timestamp) -> Vec<LaneId> {
        let is_changed = |id: LaneId| {
            changed.everywhere
                || self.entries.get(&id).is_some_and(|entry| {
                    let key = &entry.lane.key;
                    changed.queues.iter().any(|(tenant, queue)| *tenant == key.tenant && *queue == key.queue)
                })
        };
        if changed.everywhere || !changed.queues.is_empty() {
            let limited = self.index.limited.iter();
            limited.filter(|(until, id)| *until <= now || is_changed(*id)).map(|(_, id)| *id).collect()
        } else {
            self.index.limited.iter().take_while(|(until, _)| *until <= now).map(|(_, id)| *id).collect()
        }
    }

    /// Keeps the changes for the claims under way, whose answers may be older.
    fn remember_for_claims(&mut self, changed: ChangedLimits) {
        let claims = &self.claims;
        let touches_any = claims.is_pushing() || claims.probes() > 0;
        self.changed_limits.everywhere = changed.everywhere && !claims.is_empty();
        self.changed_limits.queues = changed.queues;
        self.changed_limits.queues.retain(|(tenant, _)| touches_any || claims.is_pulling(tenant));
    }
}

fn limited_until(until: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let latest = now.plus_millis(LIMITED_MAX_MILLIS);
    until.unwrap_or(latest).min(latest)
}
