//! A mutex for each schedule, for the requests that write it on this node.
//!
//! A write of a schedule fails if another write came after its read. Of many requests at once all
//! but one would fail, again and again, until some gave up. So a request locks the schedule first;
//! against other nodes and the cron loop the revision decides. Dropping the guard unlocks it.
//! Schedules and tenants do not wait for each other, and the waiters for one schedule are bounded.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_core::ids::ScheduleId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Above this number, mutexes without a holder are dropped.
const KEPT_MAX: usize = 64;

/// The maximum number of requests at one mutex, its holder included: about a second of writes.
const WAITERS_MAX: usize = 256;

/// A tenant and one of its schedules.
type ScheduleKey = (String, ScheduleId);

/// The mutexes of the schedules that are being written (see the module).
#[derive(Debug, Default)]
pub struct KeyedMutex(Mutex<HashMap<ScheduleKey, Arc<AsyncMutex<()>>>>);

impl KeyedMutex {
    /// Locks a schedule, first come, first served. None if too many requests wait for it.
    pub async fn lock(&self, tenant: &str, schedule: ScheduleId) -> Option<OwnedMutexGuard<()>> {
        let mutex = {
            let mut mutexes = self.0.lock();
            if mutexes.len() > KEPT_MAX {
                // Those that stay are at most as many as there are requests.
                mutexes.retain(|_, mutex| Arc::strong_count(mutex) > 1);
            }
            let mutex = mutexes.entry((tenant.to_owned(), schedule)).or_default();
            // One reference is the map's, and each request has one.
            if Arc::strong_count(mutex) > WAITERS_MAX {
                return None;
            }
            Arc::clone(mutex)
        };
        Some(mutex.lock_owned().await)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const TENANT: &str = "acme";

    #[test]
    fn one_request_at_a_time_holds_a_schedule() {
        let (mutex, mut context) = (KeyedMutex::default(), Context::from_waker(Waker::noop()));
        let (one, other) = (ScheduleId::new(), ScheduleId::new());
        let first = pin!(mutex.lock(TENANT, one)).poll(&mut context);
        assert!(first.is_ready());
        let mut second = pin!(mutex.lock(TENANT, one));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(pin!(mutex.lock(TENANT, other)).poll(&mut context).is_ready(), "another schedule is free");
        assert!(pin!(mutex.lock("other", one)).poll(&mut context).is_ready(), "and so is another tenant's");
        {
            // A request that gave up while it waited blocks no other.
            let mut third = pin!(mutex.lock(TENANT, one));
            assert!(third.as_mut().poll(&mut context).is_pending());
        }
        drop(first);
        let held = second.as_mut().poll(&mut context);
        assert!(held.is_ready());
        assert!(pin!(mutex.lock(TENANT, one)).poll(&mut context).is_pending(), "the second holds it");
        drop(held);
        assert!(pin!(mutex.lock(TENANT, one)).poll(&mut context).is_ready());
    }

    #[test]
    fn the_waiters_for_one_schedule_are_bounded() {
        let (mutex, mut context) = (KeyedMutex::default(), Context::from_waker(Waker::noop()));
        let (crowded, other) = (ScheduleId::new(), ScheduleId::new());
        let mut there: Vec<_> = (0..WAITERS_MAX).map(|_| Box::pin(mutex.lock(TENANT, crowded))).collect();
        let held: Vec<_> = there.iter_mut().map(|one| one.as_mut().poll(&mut context)).collect();
        assert_eq!(held.iter().filter(|one| one.is_ready()).count(), 1);
        assert!(matches!(pin!(mutex.lock(TENANT, crowded)).poll(&mut context), Poll::Ready(None)));
        assert!(matches!(pin!(mutex.lock(TENANT, other)).poll(&mut context), Poll::Ready(Some(_))));
        there.pop();
        assert!(pin!(mutex.lock(TENANT, crowded)).poll(&mut context).is_pending(), "one has left");
    }

    #[test]
    fn unused_mutexes_are_dropped() {
        let (mutex, mut context) = (KeyedMutex::default(), Context::from_waker(Waker::noop()));
        let kept = ScheduleId::new();
        let held = pin!(mutex.lock(TENANT, kept)).poll(&mut context);
        for _ in 0..10 * KEPT_MAX {
            assert!(pin!(mutex.lock(TENANT, ScheduleId::new())).poll(&mut context).is_ready());
        }
        let there = mutex.0.lock();
        assert!(there.len() <= KEPT_MAX + 1 && there.contains_key(&(TENANT.to_owned(), kept)), "{}", there.len());
        drop(held);
    }
}
