//! Idempotency keys: how `insert` recognises repeated submissions.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::state::{Event, State};
use punctual_core::store::Inserted;
use punctual_core::task::{Idempotency, NewTask};
use tokio::task::JoinSet;

use super::{StoreFactory, StoreFixture, all_of, assert_same, complete, created, replayed};
use crate::fixtures::{TENANT, at, task};

impl StoreFixture<'_> {
    async fn submit(&self, submitted: NewTask) -> Inserted {
        self.store.insert(vec![submitted]).await.expect("insert answers").pop().expect("one answer")
    }
}

/// The same key and fingerprint give the first task, in whatever state it is by then; in another
/// tenant, another task.
pub async fn insert_gives_the_first_task_again(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = created(fixture.submit(task().key("order-1", 1).payload("\"first\"").build()).await);
    fixture.advance(5);
    let second = task().key("order-1", 1).created_at(at(5)).payload("\"second\"").build();
    let second_id = second.id;
    assert_same(&replayed(fixture.submit(second.clone()).await), &first);
    assert!(fixture.find(TENANT, second_id).await.is_none(), "a replay stores nothing");

    let elsewhere = created(fixture.submit(task().tenant("other").key("order-1", 1).build()).await);
    assert_ne!(elsewhere.id, first.id);
    assert_same(&replayed(fixture.submit(task().tenant("other").key("order-1", 1).build()).await), &elsewhere);

    let running = fixture.lease(first.lane.id, 1).await.pop().expect("it is due");
    assert_same(&replayed(fixture.submit(second.clone()).await), &running);
    let done = fixture.apply(&running, complete(Some("42"))).await;
    assert_eq!(done.state(), State::Completed);
    assert_same(&replayed(fixture.submit(second.clone()).await), &done);

    let fixture = fixture.reopen().await;
    assert_same(&replayed(fixture.submit(second).await), &done);
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 1);
}

/// The same key with another fingerprint is refused with the first task's id, and leaves everything
/// as it is.
pub async fn insert_refuses_a_key_with_another_body(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = created(fixture.submit(task().key("order-1", 1).build()).await);
    let other = task().key("order-1", 2).queue("elsewhere").build();
    let other_id = other.id;
    for _ in 0..2 {
        match fixture.submit(other.clone()).await {
            Inserted::KeyReused(id) => assert_eq!(id, first.id),
            answer => panic!("a key was used for two contents: {answer:?}"),
        }
    }
    assert!(fixture.find(TENANT, other_id).await.is_none(), "a refused task is stored");
    assert_same(&fixture.get(&first).await, &first);
    assert_eq!(fixture.counts().await.into_values().sum::<u64>(), 1);
    assert_eq!(fixture.heads(at(1), 10).await.len(), 1);

    let running = fixture.lease(first.lane.id, 1).await.pop().expect("it is due");
    fixture.apply(&running, complete(None)).await;
    assert!(
        matches!(fixture.submit(other).await, Inserted::KeyReused(id) if id == first.id),
        "the key was forgotten when the task finished"
    );
    assert_same(&replayed(fixture.submit(task().key("order-1", 1).build()).await), &fixture.get(&first).await);
}

/// Also after the task has finished, and beside tasks of the same call; a digest that was never
/// stored is another content.
pub async fn insert_knows_the_digests_of_earlier_builds(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let digested = |key: &str, now: u8, earlier: u8| {
        let mut new = task().key(key, now).build();
        new.idempotency = new.idempotency.map(|of| Idempotency { earlier: Some([earlier; 32]), ..of });
        new
    };
    let stored_before = created(fixture.submit(task().key("old", 1).build()).await);
    assert_same(&replayed(fixture.submit(digested("old", 2, 1)).await), &stored_before);
    let stored_since = created(fixture.submit(digested("new", 2, 1)).await);
    assert_same(&replayed(fixture.submit(digested("new", 2, 1)).await), &stored_since);
    for other in [digested("old", 2, 3), task().key("old", 2).build(), digested("new", 3, 1)] {
        assert!(matches!(fixture.submit(other).await, Inserted::KeyReused(_)));
    }
    let answers =
        fixture.store.insert(vec![digested("more", 5, 4), digested("old", 6, 1), digested("more", 7, 5)]).await;
    let [more, old, again] = answers.unwrap().try_into().unwrap();
    assert_same(&replayed(old), &stored_before);
    assert_same(&replayed(again), &created(more));
}

/// Within a batch the first of a key creates, the second is its replay or is refused; the others
/// are not touched.
pub async fn insert_handles_a_key_twice_in_one_batch(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let old = fixture.insert_one(task().key("old", 9)).await;
    let batch = vec![
        task().payload("0").build(),
        task().key("new", 1).payload("1").build(),
        task().key("new", 1).payload("2").build(),
        task().key("new", 2).payload("3").build(),
        task().key("old", 9).payload("4").build(),
        task().key("old", 8).payload("5").build(),
        task().tenant("other").key("new", 1).payload("6").build(),
        task().payload("7").build(),
    ];
    let answers = fixture.store.insert(batch.clone()).await.expect("insert answers");
    assert_eq!(answers.len(), batch.len());
    let kinds = answers.iter().map(|answer| match answer {
        Inserted::Created(task) => ('c', task.id),
        Inserted::Replayed(task) => ('r', task.id),
        Inserted::KeyReused(id) => ('k', *id),
        Inserted::UnknownDependency(id) => ('u', *id),
        Inserted::QueueFull(_) => panic!("no queue has a depth"),
        Inserted::TooManyLanes(_) => panic!("so many lanes are allowed"),
        Inserted::Withheld => panic!("each is stored by itself"),
    });
    let new = batch[1].id;
    let expected = [
        ('c', batch[0].id),
        ('c', new),
        ('r', new),
        ('k', new),
        ('r', old.id),
        ('k', old.id),
        ('c', batch[6].id),
        ('c', batch[7].id),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    let payloads: BTreeSet<String> =
        fixture.list(all_of(TENANT), 10).await.iter().map(|task| task.body.payload.get().to_owned()).collect();
    assert_eq!(payloads, ["0", "1", "7", "{\"n\": 1}"].map(String::from).into());
}

/// Of any other state the task keeps its key, and so does a task that was given a key before.
pub async fn insert_replaces_a_final_task_if_asked_to(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let old = fixture.insert_one(task().key("k", 1)).await;
    assert_same(&replayed(fixture.submit(replacing("k", 1)).await), &old);
    let old = fixture.apply(&old, Event::Cancel).await;
    assert_same(&replayed(fixture.submit(task().key("k", 1).build()).await), &old);

    // One that is refused takes nothing.
    let mut hopeless = replacing("k", 2);
    hopeless.body.dependencies.ids = vec![TaskId::new()];
    assert!(matches!(fixture.submit(hopeless.clone()).await, Inserted::UnknownDependency(_)));
    hopeless.idempotency = None;
    let answers = fixture.store.insert_all(vec![replacing("k", 2), hopeless]).await.expect("insert answers");
    assert!(matches!(answers[..], [Inserted::Withheld, Inserted::UnknownDependency(_)]), "{answers:?}");
    assert_same(&replayed(fixture.submit(task().key("k", 1).build()).await), &old);

    let answers = fixture.store.insert(vec![replacing("k", 2), replacing("k", 2)]).await.expect("insert answers");
    let [first, second] = answers.try_into().expect("two answers");
    let new = created(first);
    assert_same(&replayed(second), &new);
    assert_same(&replayed(fixture.submit(replacing("k", 2)).await), &new);
    assert!(matches!(fixture.submit(replacing("k", 1)).await, Inserted::KeyReused(id) if id == new.id));
    assert_same(&fixture.get(&old).await, &old);

    let failed = fixture.apply(&new, Event::Expire).await;
    assert_eq!(failed.state(), State::Failed);
    let next = created(fixture.submit(replacing("k", 3)).await);
    let running = fixture.lease(next.lane.id, 1).await.pop().expect("it is due");
    let done = fixture.apply(&running, complete(None)).await;
    assert_same(&replayed(fixture.submit(replacing("k", 3)).await), &done);
}

/// A task that takes its key from one that is cancelled or failed.
fn replacing(key: &str, content: u8) -> NewTask {
    let mut new = task().key(key, content).build();
    new.idempotency = new.idempotency.map(|of| Idempotency { replace_final: true, ..of });
    new
}

/// Whatever the reason of a refusal is, and however many are new.
pub async fn insert_all_stores_all_or_nothing(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let old = fixture.insert_one(task().key("old", 1)).await;
    let waiting = |parent: TaskId| task().depends_on(&[parent]).build();
    let unknown = TaskId::new();
    let batch = || vec![task().key("new", 1).build(), task().key("new", 1).build(), task().build()];
    for refused in [task().key("old", 2).build(), waiting(unknown)] {
        let tasks = batch().into_iter().chain([refused]).collect();
        let answers = fixture.store.insert_all(tasks).await.expect("insert answers");
        let [Inserted::Withheld, Inserted::Withheld, Inserted::Withheld, last] = &answers[..] else {
            panic!("something was stored: {answers:?}")
        };
        match last {
            Inserted::KeyReused(id) => assert_eq!(*id, old.id),
            Inserted::UnknownDependency(id) => assert_eq!(*id, unknown),
            other => panic!("not the reason of the refusal: {other:?}"),
        }
        assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 1);
        assert_eq!(fixture.counts().await.into_values().sum::<u64>(), 1);
    }
    let mut tasks = batch();
    tasks.extend([waiting(tasks[0].id), task().key("old", 1).build()]);
    let answers = fixture.store.insert_all(tasks).await.expect("insert answers");
    let [first, again, third, child, replay] = answers.try_into().expect("five answers");
    let first = created(first);
    assert_same(&replayed(again), &first);
    assert_same(&replayed(replay), &old);
    assert_eq!((created(third).state(), created(child).state()), (State::Pending, State::Blocked));
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 4);
}

/// Many submissions of the same keys at once create each task once, and every caller gets the
/// same task.
pub async fn insert_creates_once_under_concurrency(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut callers = JoinSet::new();
    for caller in 0..40 {
        let store = Arc::clone(&fixture.store);
        let mut batch: Vec<NewTask> = (0..10).map(|key| task().key(&format!("k{key}"), 1).build()).collect();
        batch.rotate_left(caller % 10);
        callers.spawn(async move { store.insert(batch).await.expect("insert answers") });
    }
    let (mut created_ids, mut ids) = (BTreeSet::new(), BTreeSet::<(String, TaskId)>::new());
    for answer in callers.join_all().await.into_iter().flatten() {
        let task = match answer {
            Inserted::Created(task) => {
                assert!(created_ids.insert(task.id), "one task is created twice");
                task
            }
            other => replayed(other),
        };
        ids.insert((task.body.idempotency_key.clone().expect("it has a key"), task.id));
    }
    assert_eq!(created_ids.len(), 10);
    assert_eq!(ids.len(), 10, "callers got different tasks of one key");
    assert_eq!(fixture.list(all_of(TENANT), 100).await.len(), 10);
}

/// Keys that look alike are not the same: no folding of case, of spaces or of unicode.
pub async fn keys_are_compared_exactly(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let long = "🗝".repeat(255);
    let longer = format!("{}🔑", "🗝".repeat(254));
    let keys = ["a", "A", "a ", " a", "é", "e\u{301}", "a%", "a_", "1", "01", "1.0", "'", "--", &long, &longer];
    let batch: Vec<NewTask> = keys.iter().map(|key| task().key(key, 1).build()).collect();
    let first = fixture.insert(batch).await;
    let again = keys.iter().map(|key| task().key(key, 1).build()).collect();
    let answers = fixture.store.insert(again).await.expect("insert answers");
    for (answer, first) in answers.into_iter().zip(&first) {
        assert_same(&replayed(answer), first);
    }
}
