//! How many lanes a tenant may have.

use punctual_core::lane::LaneId;
use punctual_core::state::Event;
use punctual_core::store::{Applied, Inserted};
use punctual_core::task::{Edit, NewTask};

use super::{StoreFactory, StoreFixture, TENANT_LANES, assert_same, created, replayed};
use crate::fixtures::{TaskBuilder, at, task};

/// In one batch the first ones are stored. A refused task leaves neither its key nor a lane behind.
pub async fn insert_bounds_the_lanes_of_a_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let most = usize::try_from(TENANT_LANES).expect("not so many");
    let first = fixture.insert_one(to(0).key("first", 1)).await;
    let batch: Vec<NewTask> = (1..most + 3).map(|number| to(number).key(&number.to_string(), 1).build()).collect();
    let children = [batch[0].id, batch[most].id].map(|parent| to(0).depends_on(&[parent]).build());
    let answers = submit(&fixture, batch.into_iter().chain(children).collect()).await;
    let (stored, refused) = answers.split_at(most - 1);
    assert!(stored.iter().all(|answer| matches!(answer, Inserted::Created(_))), "the first ones");
    assert!(refused[..3].iter().all(|answer| matches!(answer, Inserted::TooManyLanes(TENANT_LANES))), "{refused:?}");
    assert!(matches!(refused[3], Inserted::Created(_)), "its parent was stored");
    assert!(matches!(refused[4], Inserted::UnknownDependency(_)), "its parent was refused");

    let refused = to(most).key(&most.to_string(), 1);
    assert!(matches!(one(&fixture, refused.clone()).await, Inserted::TooManyLanes(TENANT_LANES)), "alone, too");
    let lane: LaneId = created(one(&fixture, to(0)).await).lane.id;
    assert_eq!(lane, first.lane.id, "existing lanes go on");
    assert_eq!(replayed(one(&fixture, to(0).key("first", 1)).await).id, first.id);
    created(one(&fixture, to(most).tenant("other")).await);
    // An edit of the priority is not refused; one that moves the task is.
    let later = created(one(&fixture, to(1).due(at(1_000))).await);
    let edited = fixture.apply(&later, Event::Edit(Box::new(Edit { priority: Some(9), ..Edit::default() }))).await;
    assert_eq!(edited.lane.key.priority, 9);
    let moved = Edit { queue: Some("new".to_owned()), ..Edit::default() };
    let moved = fixture.change(&edited, Event::Edit(Box::new(moved)));
    let answers = fixture.store.apply(vec![moved]).await.expect("apply answers");
    assert!(matches!(answers[..], [Applied::TooManyLanes(TENANT_LANES)]), "{answers:?}");
    assert_same(&fixture.get(&edited).await, &edited);
    let fixture = fixture.reopen().await;
    assert!(matches!(one(&fixture, refused).await, Inserted::TooManyLanes(TENANT_LANES)), "it counts all of them");
}

fn to(number: usize) -> TaskBuilder {
    task().push(&format!("http://host-{number}:80"))
}

async fn submit(fixture: &StoreFixture<'_>, tasks: Vec<NewTask>) -> Vec<Inserted> {
    fixture.store.insert(tasks).await.expect("insert answers")
}

async fn one(fixture: &StoreFixture<'_>, task: TaskBuilder) -> Inserted {
    submit(fixture, vec![task.build()]).await.pop().expect("one answer")
}
