//! Lets those who want to write one schedule do so one after the other on this node.
//!
//! A write of a schedule needs that nobody else wrote it since it was read. Of many that try at once all but one would have
//! tried for nothing, again and again, until some gave up. So whoever writes one takes its turn here first; against other
//! nodes and the cron loop the revision decides, as ever. A turn is given up by dropping it, also by a request that is
//! dropped. Schedules do not wait for each other, only so many wait for one, and no tenant stands in another's way.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_core::ids::ScheduleId;
use tokio::sync::{Mutex as Door, OwnedMutexGuard};

/// Doors that nobody is at are forgotten when there are more than this.
const KEPT: usize = 64;

/// So many may be at one door, whoever is inside included: at a few milliseconds each a matter of a second.
const MOST: usize = 256;

/// A tenant, and what it takes for one of its schedules.
type Key = (String, ScheduleId);

/// A door for each schedule that somebody wants to write (see the module).
#[derive(Debug, Default)]
pub struct Doors(Mutex<HashMap<Key, Arc<Door<()>>>>);

impl Doors {
    /// Waits for everybody who came before, first come, first served; none if they are too many.
    pub async fn pass(&self, tenant: &str, schedule: ScheduleId) -> Option<OwnedMutexGuard<()>> {
        let door = {
            let mut doors = self.0.lock();
            if doors.len() > KEPT {
                // There are as many others as there are requests at the most.
                doors.retain(|_, door| Arc::strong_count(door) > 1);
            }
            let door = doors.entry((tenant.to_owned(), schedule)).or_default();
            // One for the map, and one for each who is there.
            if Arc::strong_count(door) > MOST {
                return None;
            }
            Arc::clone(door)
        };
        Some(door.lock_owned().await)
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
    fn one_schedule_is_written_by_one_at_a_time() {
        let (doors, mut context) = (Doors::default(), Context::from_waker(Waker::noop()));
        let (one, other) = (ScheduleId::new(), ScheduleId::new());
        let first = pin!(doors.pass(TENANT, one)).poll(&mut context);
        assert!(first.is_ready());
        let mut second = pin!(doors.pass(TENANT, one));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(pin!(doors.pass(TENANT, other)).poll(&mut context).is_ready(), "another one waits for nobody");
        assert!(pin!(doors.pass("other", one)).poll(&mut context).is_ready(), "nor does another tenant");
        {
            // One that gave up while it waited is in nobody's way.
            let mut third = pin!(doors.pass(TENANT, one));
            assert!(third.as_mut().poll(&mut context).is_pending());
        }
        drop(first);
        let inside = second.as_mut().poll(&mut context);
        assert!(inside.is_ready());
        assert!(pin!(doors.pass(TENANT, one)).poll(&mut context).is_pending(), "the second is inside");
        drop(inside);
        assert!(pin!(doors.pass(TENANT, one)).poll(&mut context).is_ready());
    }

    #[test]
    fn only_so_many_wait_for_one() {
        let (doors, mut context) = (Doors::default(), Context::from_waker(Waker::noop()));
        let (crowded, other) = (ScheduleId::new(), ScheduleId::new());
        let mut there: Vec<_> = (0..MOST).map(|_| Box::pin(doors.pass(TENANT, crowded))).collect();
        let inside: Vec<_> = there.iter_mut().map(|one| one.as_mut().poll(&mut context)).collect();
        assert_eq!(inside.iter().filter(|one| one.is_ready()).count(), 1);
        assert!(matches!(pin!(doors.pass(TENANT, crowded)).poll(&mut context), Poll::Ready(None)));
        assert!(matches!(pin!(doors.pass(TENANT, other)).poll(&mut context), Poll::Ready(Some(_))));
        there.pop();
        assert!(pin!(doors.pass(TENANT, crowded)).poll(&mut context).is_pending(), "one has left");
    }

    #[test]
    fn doors_that_nobody_is_at_are_forgotten() {
        let (doors, mut context) = (Doors::default(), Context::from_waker(Waker::noop()));
        let kept = ScheduleId::new();
        let held = pin!(doors.pass(TENANT, kept)).poll(&mut context);
        for _ in 0..10 * KEPT {
            assert!(pin!(doors.pass(TENANT, ScheduleId::new())).poll(&mut context).is_ready());
        }
        let there = doors.0.lock();
        assert!(there.len() <= KEPT + 1 && there.contains_key(&(TENANT.to_owned(), kept)), "{}", there.len());
        drop(held);
    }
}
