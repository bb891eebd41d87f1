//! The sentences about pull workers that hold tasks.

use punctual_core::obstacles::{Holder, Holders};
use punctual_core::store::{Beat, Claim};
use punctual_core::time::Timestamp;

use crate::fixtures::{START, TENANT, at, task};
use crate::store::{StoreFactory, StoreFixture, complete, worker};

async fn holders(fixture: &StoreFixture<'_>, tenant: &str, most: usize) -> Holders {
    fixture.database.holders(tenant, most).await.expect("holders answers")
}

fn holder(worker: &str, tasks: u64, seen_at: Timestamp) -> Holder {
    Holder { worker: worker.into(), tasks, seen_at }
}

/// Webhooks, other tenants' workers, and workers whose leases have run out are not listed.
pub async fn workers_that_hold_tasks_are_listed(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(holders(&fixture, TENANT, 10).await, Holders::default());
    let take = async |name: &str, tenant: &str, count: usize| {
        let lane = fixture.insert(task().tenant(tenant).times(count)).await[0].lane.id;
        let claim = Claim { lanes: vec![(lane, count)], limit: count, claimant: worker(name) };
        fixture.claim(claim).await.tasks
    };
    let first = take("b", TENANT, 2).await;
    fixture.advance(1_000);
    take("a", TENANT, 1).await;
    take("c", "other", 1).await;
    // A webhook that completes later holds its task without a node, and is not a pull worker.
    let pushed = fixture.insert_one(task().push("http://127.0.0.1:1")).await;
    let queued = fixture.dispatch(pushed.lane.id, 1).await.remove(0);
    let begun = fixture.start(queued.id, queued.position.version).await.expect("it begins");
    let (id, token) = (begun.id, begun.position.version);
    let detach = Beat { tenant: TENANT.into(), id, token, progress: None, checkpoint: None, detach: true };
    fixture.store.extend(vec![detach]).await.expect("extend answers");
    let all = |or_more| Holders { workers: vec![holder("a", 1, at(1_000)), holder("b", 2, START)], or_more };
    assert_eq!(holders(&fixture, TENANT, 5).await, all(false));
    assert_eq!(holders(&fixture, "other", 5).await.workers, [holder("c", 1, at(1_000))]);
    let some = holders(&fixture, TENANT, 1).await;
    assert!(some.or_more && some.workers.len() <= 2, "{some:?}");

    // Its heartbeat counts as seen.
    fixture.advance(20_000);
    fixture.beat(&first[0], first[0].position.version, None, None).await.expect("it is extended");
    let b = |tasks, millis| holder("b", tasks, at(millis));
    assert_eq!(holders(&fixture, TENANT, 5).await.workers, [holder("a", 1, at(1_000)), b(2, 21_000)]);
    fixture.apply(&first[1], complete(None)).await;
    fixture.advance(40_000);
    assert_eq!(holders(&fixture, TENANT, 5).await.workers, [b(1, 21_000)], "the others' leases have run out");
}
