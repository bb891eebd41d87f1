//! `counts`: what the metrics and the queue pages show.

use std::collections::BTreeMap;

use punctual_core::lane::LaneId;
use punctual_core::queues::LiveCounts;
use punctual_core::state::{Event, State};
use punctual_core::store::Filter;

use super::{StoreFactory, StoreFixture, all_of, complete, fail};
use crate::fixtures::{at, task};

const LIVE: [State; 4] = [State::Blocked, State::Pending, State::Queued, State::Running];

/// The counts equal what `list` would count, over tenants, lanes and live states.
pub async fn counts_by_lane_and_state(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tenants = ["acme", "other", "ünï"];
    for (number, tenant) in tenants.into_iter().enumerate() {
        for (queue, waiting, queued, leased, done) in
            [("a", 5, 3, 2, 4), ("b", 0, 1, 0, 2), ("c", 7, 0, 0, 0), ("d", 0, 0, 0, 3)]
        {
            let stored = fixture
                .insert(task().tenant(tenant).queue(queue).times(waiting + queued + leased + done + number))
                .await;
            let Some(lane) = stored.first().map(|task| task.lane.clone()) else { continue };
            for task in fixture.lease(lane.id, done).await {
                fixture.apply(&task, complete(None)).await;
            }
            fixture.lease(lane.id, leased).await;
            fixture.dispatch(lane.id, queued).await;
        }
    }
    let mut listed: BTreeMap<(LaneId, State), u64> = BTreeMap::new();
    for tenant in tenants {
        for task in fixture.list(Filter { states: LIVE.to_vec(), ..all_of(tenant) }, 11).await {
            *listed.entry((task.lane.id, task.state())).or_default() += 1;
        }
    }
    assert_eq!(listed.values().sum::<u64>(), 3 * 18 + (1 + 2) * 4);
    assert_eq!(fixture.counts().await, listed);
    for count in fixture.store.counts().await.expect("counts answers") {
        assert!(tenants.contains(&count.lane.key.tenant.as_str()), "{:?} is not a lane of the test", count.lane);
        assert!(!count.state.is_final() || count.tasks == 0, "final tasks are not live");
    }
}

/// Through every state, in several queues.
pub async fn live_counts_are_the_sum_of_all_lanes(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let live = async || {
        let live = fixture.store.live_counts().await.expect("it answers");
        let counted: u64 = fixture.counts().await.into_values().sum();
        assert_eq!(live.total(), counted);
        live
    };
    let before = live().await;
    let first = fixture.insert(task().times(4)).await.remove(0);
    let other = fixture.insert_one(task().tenant("other").queue("else")).await;
    fixture.dispatch(first.lane.id, 2).await;
    let running = fixture.lease(other.lane.id, 1).await.remove(0);
    let after = live().await;
    let LiveCounts { pending, queued, running: held, .. } = before;
    assert_eq!((after.pending, after.queued, after.running), (pending + 2, queued + 2, held + 1));
    fixture.apply(&running, complete(None)).await;
    assert_eq!(live().await.running, held);
}

/// Each step of a life moves the count, and an emptied lane counts nothing.
pub async fn counts_follow_every_change(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert_one(task()).await;
    let count = async || {
        let counts = fixture.counts().await;
        assert!(counts.values().all(|tasks| *tasks == 1) && counts.len() <= 1, "{counts:?}");
        counts.into_keys().map(|(_, state)| state).next()
    };
    assert_eq!(count().await, Some(State::Pending));
    let queued = fixture.dispatch(stored.lane.id, 1).await.pop().unwrap();
    assert_eq!(count().await, Some(State::Queued));
    let running = fixture.start(queued.id, queued.position.version).await.expect("it is queued");
    assert_eq!(count().await, Some(State::Running));
    fixture.apply(&running, fail(&running)).await;
    assert_eq!(count().await, Some(State::Pending));
    fixture.advance(1_000);
    let running = fixture.lease(stored.lane.id, 1).await.pop().unwrap();
    let asked = fixture.apply(&running, Event::Cancel).await;
    assert_eq!(count().await, Some(State::Running));
    fixture.apply(&asked, Event::Stopped).await;
    assert_eq!(count().await, None);
    let dead = fixture.running(task()).await;
    let dead = fixture.apply(&dead, super::fail_for_good(&dead)).await;
    assert_eq!(count().await, None);
    let redriven = fixture.apply(&dead, Event::Redrive(None)).await;
    assert_eq!(count().await, Some(State::Pending));
    fixture.apply(&redriven, Event::Expire).await;
    assert_eq!(count().await, None);
    fixture.insert_one(task().due(at(1)).expires_at(at(2))).await;
    fixture.advance(10);
    assert!(fixture.lease(stored.lane.id, 5).await.is_empty());
    assert_eq!(count().await, None, "an expired task is not live");
}
