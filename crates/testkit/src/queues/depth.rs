//! How many tasks a queue may hold.

use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::queues::{QueueChange, Settings};
use punctual_core::store::{FullQueue, Inserted};
use punctual_core::task::NewTask;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{QUEUE, TENANT, mail, put};
use crate::store::{StoreFactory, StoreFixture, complete, created, replayed};

async fn depth(fixture: &StoreFixture<'_>, max_depth: u64) {
    put(fixture, Settings { max_depth: Some(max_depth), ..Settings::default() }).await;
}

async fn depth_of(fixture: &StoreFixture<'_>, tenant: &str, max_depth: u64) {
    let settings = Settings { max_depth: Some(max_depth), ..Settings::default() };
    fixture.database.change_queue(tenant, QUEUE, QueueChange::Put(settings, None)).await.expect("a queue can be set");
}

async fn insert(fixture: &StoreFixture<'_>, tasks: Vec<NewTask>) -> Vec<Inserted> {
    fixture.store.insert(tasks).await.expect("insert answers")
}

async fn live(fixture: &StoreFixture<'_>) -> u64 {
    let found = fixture.database.queue(TENANT, QUEUE).await.expect("it answers").expect("it is set");
    found.live.blocked + found.live.pending + found.live.queued + found.live.running
}

/// It accepts the first tasks of a batch that fit, and those of other queues. Running tasks count,
/// finished ones do not.
pub async fn insert_refuses_what_is_over_the_depth(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    depth(&fixture, 3).await;
    let mut tasks = mail().times(2);
    tasks.push(mail().queue("other").build());
    tasks.push(mail().key("third", 1).build());
    tasks.push(mail().key("fourth", 1).build());
    tasks.push(mail().key("fourth", 1).build());
    tasks.push(mail().queue("other").build());
    let refused = tasks[4].id;
    let answers = insert(&fixture, tasks).await;
    let full = FullQueue { name: "mail".to_owned(), max_depth: 3 };
    let is_full: Vec<bool> =
        answers.iter().map(|answer| matches!(answer, Inserted::QueueFull(queue) if *queue == full)).collect();
    assert_eq!(is_full, [false, false, false, false, true, true, false], "{answers:?}");
    let first = answers.into_iter().next().map(created).expect("there are answers");
    assert_eq!((live(&fixture).await, fixture.find(TENANT, refused).await.is_none()), (3, true));
    let running = fixture.lease(first.lane.id, 1).await.remove(0);
    assert!(matches!(insert(&fixture, mail().times(1)).await[0], Inserted::QueueFull(_)), "running tasks count");
    fixture.apply(&running, complete(None)).await;
    // Its key was not taken by the refusal.
    created(insert(&fixture, vec![mail().key("fourth", 2).build()]).await.remove(0));
    assert_eq!(live(&fixture).await, 3);
    put(&fixture, Settings::default()).await;
    fixture.insert(mail().times(5)).await;
}

/// All at once, one by one and in batches: exactly as many as there is room for.
pub async fn insert_is_bounded_by_the_depth_under_concurrency(factory: &dyn StoreFactory) {
    const SUBMITTERS: usize = 40;
    let fixture = StoreFixture::open(factory).await;
    depth(&fixture, 100).await;
    let together = Arc::new(Barrier::new(SUBMITTERS));
    let mut submitters = JoinSet::new();
    for number in 0..SUBMITTERS {
        let (store, together) = (Arc::clone(&fixture.store), Arc::clone(&together));
        submitters.spawn(async move {
            together.wait().await;
            let mut stored = 0;
            for _ in 0..5 {
                let answers = store.insert(mail().times(1 + number % 3)).await.expect("insert answers");
                stored += answers.iter().filter(|answer| matches!(answer, Inserted::Created(_))).count();
            }
            stored
        });
    }
    let mut stored = 0;
    while let Some(done) = submitters.join_next().await {
        stored += done.expect("no submitter fails");
    }
    assert_eq!((stored, live(&fixture).await), (100, 100));
}

/// The same content gives the first task; the key with other content is refused.
pub async fn insert_replays_a_task_of_a_full_queue(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    depth(&fixture, 1).await;
    let first = created(insert(&fixture, vec![mail().key("k", 1).build()]).await.remove(0));
    let mut answers =
        insert(&fixture, vec![mail().key("k", 1).build(), mail().build(), mail().key("k", 2).build()]).await;
    assert!(matches!(answers[2], Inserted::KeyReused(id) if id == first.id), "{answers:?}");
    assert!(matches!(answers[1], Inserted::QueueFull(_)), "{answers:?}");
    assert_eq!(replayed(answers.remove(0)).id, first.id);
}

/// A submitter must not retry a task that can never be accepted.
pub async fn insert_refuses_an_unknown_dependency_before_a_full_queue(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    depth(&fixture, 1).await;
    let first = created(insert(&fixture, vec![mail().build()]).await.remove(0));
    let unknown = TaskId::new();
    let is_missing = |answer: &Inserted, id: TaskId| matches!(answer, Inserted::UnknownDependency(of) if *of == id);
    let hopeless = mail().depends_on(&[first.id, unknown]).key("k", 1).build();
    let alone = insert(&fixture, vec![hopeless.clone()]).await;
    assert!(is_missing(&alone[0], unknown), "{alone:?}");
    let of_others = mail().tenant("other").depends_on(&[first.id]).build();
    depth_of(&fixture, "other", 0).await;
    assert!(is_missing(&insert(&fixture, vec![of_others]).await[0], first.id));

    let put_off = mail().depends_on(&[first.id]).build();
    let behind = mail().depends_on(&[hopeless.id]).build();
    let admitted = mail().queue("elsewhere").depends_on(&[behind.id]).build();
    let waits = mail().depends_on(&[put_off.id]).build();
    let (hopeless_id, behind_id) = (hopeless.id, behind.id);
    let answers = insert(&fixture, vec![admitted, waits, behind, put_off, hopeless]).await;
    assert!(is_missing(&answers[0], behind_id), "{answers:?}");
    assert!(is_missing(&answers[2], hopeless_id), "{answers:?}");
    assert!(is_missing(&answers[4], unknown), "{answers:?}");
    let are_full = [&answers[1], &answers[3]].into_iter().all(|answer| matches!(answer, Inserted::QueueFull(_)));
    assert!(are_full, "these are refused only for lack of room: {answers:?}");
    assert_eq!(live(&fixture).await, 1);
    // The key of the refused task is free.
    depth(&fixture, 2).await;
    created(insert(&fixture, vec![mail().key("k", 2).build()]).await.remove(0));
}
