//! The live tasks of a queue, over its lanes.

use punctual_core::queues::LiveCounts;
use punctual_core::state::{Event, State};
use punctual_core::task::{Edit, Task};

use super::{QUEUE, TENANT, mail};
use crate::store::{StoreFactory, StoreFixture, complete, fail_for_good};

/// The counts of the queue, which must be what its lanes count together.
async fn live(fixture: &StoreFixture<'_>) -> LiveCounts {
    let live = fixture.database.queue(TENANT, QUEUE).await.expect("it answers").expect("it is used").live;
    let mut sum = LiveCounts::default();
    for count in fixture.store.counts().await.expect("counts answers") {
        let place = match count.state {
            State::Blocked => &mut sum.blocked,
            State::Pending => &mut sum.pending,
            State::Queued => &mut sum.queued,
            State::Running => &mut sum.running,
            other => panic!("{other:?} is not live"),
        };
        let is_of_queue = (count.lane.key.tenant.as_str(), count.lane.key.queue.as_str()) == (TENANT, QUEUE);
        *place += if is_of_queue { count.tasks } else { 0 };
    }
    assert_eq!(live, sum, "the counts of a queue are the sum of its lanes");
    live
}

async fn edit(fixture: &StoreFixture<'_>, task: &Task, priority: u8) -> Task {
    fixture.apply(task, Event::Edit(Box::new(Edit { priority: Some(priority), ..Edit::default() }))).await
}

/// Through every state, from lane to lane, into the history and back, beside other queues.
pub async fn counts_of_a_queue_are_the_sum_of_its_lanes(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(mail()).await;
    let child = mail().kind("child").depends_on(&[first.id]);
    let other = mail().push("http://other.example:80");
    let elsewhere = [mail().queue("other").build(), mail().tenant("else").build()];
    let mut batch = vec![child.build(), other.clone().build(), other.build()];
    batch.extend(elsewhere);
    let stored = fixture.insert(batch).await;
    assert_eq!(live(&fixture).await, LiveCounts { blocked: 1, pending: 3, ..LiveCounts::default() });
    fixture.dispatch(stored[1].lane.id, 1).await;
    let moved = edit(&fixture, &stored[2], 9).await;
    assert_ne!(moved.lane.id, stored[2].lane.id, "a priority has a lane of its own");
    let running = fixture.lease(first.lane.id, 1).await.remove(0);
    assert_eq!(live(&fixture).await, LiveCounts { blocked: 1, pending: 1, queued: 1, running: 1 });
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    assert_eq!(live(&fixture).await.running, 0);
    fixture.apply(&dead, Event::Redrive(None)).await;
    let running = fixture.lease(first.lane.id, 1).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    fixture.resolve().await;
    assert_eq!(live(&fixture).await, LiveCounts { pending: 2, queued: 1, ..LiveCounts::default() });
    let fixture = fixture.reopen().await;
    assert_eq!(live(&fixture).await.total(), 3, "the counts are durable");
}
