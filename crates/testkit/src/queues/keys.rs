//! How many tasks of a concurrency key run at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::lane::LaneId;
use punctual_core::queues::{QueueChange, Settings};
use punctual_core::state::{Event, State, transition};
use punctual_core::store::Claim;
use punctual_core::task::{Edit, Task};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::{QUEUE, change, claim, mail, put, taken};
use crate::fixtures::{TaskBuilder, at};
use crate::store::{StoreFactory, StoreFixture, complete, fail, fail_for_good, ids, is_done, worker};

/// A task with the key `k`, due this much after the origin of the tests' time.
fn keyed(due: i64) -> TaskBuilder {
    mail().concurrency_key("k").due(at(due))
}

async fn limit_keys(fixture: &StoreFixture<'_>, max_per_key: u32) {
    put(fixture, Settings { max_per_key: Some(max_per_key), ..Settings::default() }).await;
}

/// What a claim takes once everything is resolved.
async fn next(fixture: &StoreFixture<'_>, lane: LaneId) -> Vec<Task> {
    fixture.resolve().await;
    taken(fixture, lane).await
}

/// Queued or running, in all lanes together and by any claimant, also under concurrent claims.
pub async fn no_more_of_a_key_run_at_once_than_the_limit(factory: &dyn StoreFactory) {
    const KEYS: [&str; 3] = ["a", "b", "c"];
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 2).await;
    let of_kind = |kind: &'static str| {
        (0..90).map(move |n| mail().kind(kind).concurrency_key(KEYS[n % KEYS.len()]).due(at(-1)).build()).collect()
    };
    let one = fixture.insert(of_kind("one")).await[0].lane.id;
    let other = fixture.insert(of_kind("other")).await[0].lane.id;
    let first = claim(&fixture, &[one, other]).await.tasks;
    assert_eq!(first.len(), 2 * KEYS.len());
    assert!(first[0].body.concurrency_key.is_some());
    assert_eq!(claim(&fixture, &[one, other]).await.tasks.len(), 0, "all places are taken");

    let running = Arc::new(Mutex::new(BTreeMap::<String, i64>::new()));
    let key = |task: &Task| task.body.concurrency_key.clone().expect("it has one");
    for task in &first {
        *running.lock().await.entry(key(task)).or_default() += 1;
    }
    let first: Vec<Vec<Task>> = first.chunks(2).map(<[Task]>::to_vec).collect();
    let mut workers = JoinSet::new();
    for (number, mut tasks) in first.into_iter().chain([Vec::new()]).enumerate() {
        let (store, resolver, running) =
            (Arc::clone(&fixture.store), Arc::clone(&fixture.database), Arc::clone(&running));
        let by = fixture.by();
        workers.spawn(async move {
            let mut done = 0;
            for round in 0..60 {
                for task in std::mem::take(&mut tasks) {
                    let change = transition(&task.position, complete(None), &by).expect("a held task completes");
                    // Uncounted just before it ends, so the test never counts too many.
                    *running.lock().await.get_mut(&key(&task)).expect("it was counted") -= 1;
                    assert!(is_done(&store.apply(vec![(task.id, change)]).await.expect("apply answers")[0]));
                    done += 1;
                }
                resolver.resolve().await.expect("resolve answers");
                let lanes = if round % 2 == number % 2 { vec![(one, 4), (other, 4)] } else { vec![(other, 4)] };
                let claim = Claim { lanes, limit: 4, claimant: worker(&format!("w{number}")) };
                tasks = store.claim(vec![claim]).await.expect("claim answers").remove(0).tasks;
                for task in &tasks {
                    let mut running = running.lock().await;
                    let running = running.entry(key(task)).or_default();
                    *running += 1;
                    assert!(*running <= 2, "{running} of a key run");
                }
            }
            (done, tasks)
        });
    }
    let (mut done, mut left) = (0, Vec::new());
    while let Some(worked) = workers.join_next().await {
        let (some, tasks) = worked.expect("no worker fails");
        done += some;
        left.extend(tasks);
    }
    // Whatever is left runs to its end: no task was forgotten.
    while !left.is_empty() {
        for task in std::mem::take(&mut left) {
            fixture.apply(&task, complete(None)).await;
            done += 1;
        }
        fixture.resolve().await;
        left = claim(&fixture, &[one, other]).await.tasks;
    }
    assert_eq!(done, 180);
}

/// However many tasks it has, in front of the others and in other lanes.
pub async fn a_full_key_holds_up_no_other(factory: &dyn StoreFactory) {
    const HOT: usize = 2_500;
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let lane = fixture.insert((0..HOT).map(|_| keyed(-9).build()).collect()).await[0].lane.id;
    fixture.insert((0..300).map(|n| keyed(-8).concurrency_key(&n.to_string()).build()).collect()).await;
    fixture.insert((0..100).map(|_| mail().due(at(-7)).build()).collect()).await;
    let (mut others, mut claims) = (0, 0);
    let mut hot = Vec::new();
    while others < 400 {
        let tasks = taken(&fixture, lane).await;
        let (of_key, rest): (Vec<Task>, Vec<Task>) =
            tasks.into_iter().partition(|task| task.body.concurrency_key.as_deref() == Some("k"));
        hot.extend(of_key);
        others += rest.len();
        claims += 1;
        assert!(claims < 20, "a claim passes over a bounded number of tasks, each once");
    }
    assert_eq!(hot.len(), 1);
    assert!(fixture.heads(at(0), 10).await.is_empty(), "parked tasks are not due");
    fixture.apply(&hot[0], complete(None)).await;
    assert_eq!(fixture.resolve().await, 1, "one place, one task");
    assert_eq!(next(&fixture, lane).await.len(), 1);
}

/// Completed, failed with a retry, given back, cancelled, taken back after its hold ran out.
pub async fn a_place_of_a_key_is_free_again_however_its_task_leaves(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let lane = fixture.insert((0..20).map(|_| keyed(-1).build()).collect()).await[0].lane.id;
    let only = async || {
        let mut tasks = next(&fixture, lane).await;
        assert_eq!(tasks.len(), 1, "there is one place");
        assert_eq!(next(&fixture, lane).await.len(), 0, "and it is taken");
        tasks.remove(0)
    };
    let task = only().await;
    fixture.apply(&task, complete(None)).await;
    let task = only().await;
    fixture.apply(&task, fail(&task)).await;
    let task = only().await;
    let dead = fixture.apply(&task, fail_for_good(&task)).await;
    fixture.apply(&dead, Event::Redrive(None)).await;
    let task = only().await;
    fixture.apply(&task, Event::GiveBack(fixture.now())).await;
    let task = only().await;
    let asked = fixture.apply(&task, Event::Cancel).await;
    assert_eq!(next(&fixture, lane).await.len(), 0, "it runs until it has stopped");
    fixture.apply(&asked, Event::Stopped).await;
    only().await;
    fixture.advance(crate::store::LEASE_MILLIS);
    let lost = fixture.store.overdue(Vec::new(), 10).await.expect("overdue answers").remove(0);
    fixture.apply(&lost, fail(&lost)).await;
    fixture.resolve().await;
    let queued = fixture.dispatch(lane, 5).await;
    assert_eq!(queued.len(), 1, "a queued task has a place, too");
    assert_eq!(next(&fixture, lane).await.len(), 0);
    fixture.apply(&queued[0], Event::Cancel).await;
    let task = only().await;
    let fixture = fixture.reopen().await;
    assert_eq!(next(&fixture, lane).await.len(), 0, "a restart frees nothing");
    fixture.apply(&task, complete(None)).await;
    let fixture = fixture.reopen().await;
    assert_eq!(next(&fixture, lane).await.len(), 1, "nor does it forget what was freed");
}

/// Cancelled, put off, expired, or moved to another queue, where it may run.
pub async fn a_woken_task_that_leaves_wakes_another(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let stored = fixture.insert((0..6).map(|n| keyed(n - 9).build()).collect()).await;
    let lane = stored[0].lane.id;
    let running = taken(&fixture, lane).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    assert_eq!(fixture.resolve().await, 1);
    fixture.apply(&stored[1], Event::Cancel).await;
    assert_eq!(fixture.resolve().await, 1, "the third is woken");
    let later = Edit { execute_at: Some(at(9_000)), ..Edit::default() };
    fixture.apply(&fixture.get(&stored[2]).await, Event::Edit(Box::new(later))).await;
    assert_eq!(fixture.resolve().await, 1, "the fourth is woken");
    let away = Edit { queue: Some("elsewhere".to_owned()), ..Edit::default() };
    let moved = fixture.apply(&fixture.get(&stored[3]).await, Event::Edit(Box::new(away.clone()))).await;
    assert_eq!(ids(&taken(&fixture, moved.lane.id).await), [moved.id]);
    assert_eq!(ids(&next(&fixture, lane).await), [stored[4].id], "and takes no place here");
    let parked = fixture.apply(&fixture.get(&stored[5]).await, Event::Edit(Box::new(away))).await;
    assert_eq!(ids(&taken(&fixture, parked.lane.id).await), [parked.id], "a parked task may leave");
}

/// At once for every key, also if the limit or the queue's settings are removed.
pub async fn a_raised_limit_per_key_lets_more_run(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let tasks = |n: i64| [keyed(n).build(), keyed(n).concurrency_key("other").build()];
    let lane = fixture.insert((-900..-100).flat_map(tasks).collect()).await[0].lane.id;
    let mut running = Vec::new();
    for _ in 0..9 {
        running.extend(taken(&fixture, lane).await);
    }
    assert_eq!(running.len(), 2);
    limit_keys(&fixture, 3).await;
    assert_eq!(next(&fixture, lane).await.len(), 4);
    limit_keys(&fixture, 1).await;
    for task in running {
        fixture.apply(&task, complete(None)).await;
    }
    assert_eq!(next(&fixture, lane).await.len(), 0, "as many run as the lowered limit allows, or more");
    change(&fixture, QueueChange::Remove).await;
    let mut left = 0;
    while let more @ 1.. = next(&fixture, lane).await.len() {
        left += more;
    }
    assert_eq!(left, 1_600 - 6);
}

/// Here a woken task loses its turn to an earlier one, and nothing else frees a place.
pub async fn a_review_wakes_what_was_forgotten(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let lane = fixture.insert_one(keyed(-9)).await.lane.id;
    let in_order = fixture.insert_one(keyed(-8).ordering_key("o")).await;
    // A turn makes a task due when it is given.
    let waits = fixture.insert_one(keyed(0)).await;
    let running = next(&fixture, lane).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    assert_eq!(fixture.resolve().await, 1, "the task in order is woken");
    let earlier = fixture.insert_one(mail().ordering_key("o").due(at(-20))).await;
    assert_eq!(ids(&next(&fixture, lane).await), [earlier.id]);
    fixture.database.review().await.expect("review answers");
    assert_eq!(ids(&next(&fixture, lane).await), [waits.id]);
    assert_eq!(fixture.get(&in_order).await.state(), State::Pending);
}

/// The same key in another queue, and of another tenant.
pub async fn keys_of_queues_are_apart(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let settings = Settings { max_per_key: Some(2), ..Settings::default() };
    let put = QueueChange::Put(settings, None);
    for (tenant, queue) in [("acme", "other"), ("evil", QUEUE)] {
        fixture.database.change_queue(tenant, queue, put.clone()).await.expect("a queue can be set");
    }
    let mut lanes = Vec::new();
    for task in [keyed(-1), keyed(-1).queue("other"), keyed(-1).tenant("evil")] {
        lanes.push(fixture.insert(task.times(5)).await[0].lane.id);
    }
    assert_eq!(taken(&fixture, lanes[0]).await.len(), 1);
    assert_eq!(claim(&fixture, &lanes).await.tasks.len(), 4);
    assert_eq!(claim(&fixture, &lanes).await.tasks.len(), 0);
}

/// Neither in a limited queue, nor with a key in a queue without the limit.
pub async fn tasks_without_a_key_are_not_limited_by_key(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let lane = fixture.insert(mail().due(at(-1)).times(50)).await[0].lane.id;
    assert_eq!(taken(&fixture, lane).await.len(), 50);
    let free = fixture.insert(keyed(-1).queue("free").times(50)).await[0].lane.id;
    assert_eq!(taken(&fixture, free).await.len(), 50);
}

/// Also for one that has begun and is retried, which no other may overtake.
pub async fn an_ordering_key_keeps_its_order_under_a_limit_per_key(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    limit_keys(&fixture, 1).await;
    let first = fixture.insert_one(keyed(-9).ordering_key("o")).await;
    let second = fixture.insert_one(mail().ordering_key("o").due(at(-8))).await;
    let other = fixture.insert_one(keyed(0)).await;
    let lane = first.lane.id;
    let running = next(&fixture, lane).await.remove(0);
    assert_eq!(running.id, first.id);
    // It is given back, and the other task of its concurrency key takes the place.
    fixture.apply(&running, fail(&running)).await;
    assert_eq!(ids(&next(&fixture, lane).await), [other.id]);
    let retry = fixture.get(&first).await;
    fixture.advance(u64::try_from(retry.due_at.as_millis() - fixture.now().as_millis()).expect("it is later"));
    assert_eq!(next(&fixture, lane).await.len(), 0, "the first is parked, the second waits for it");
    fixture.insert_one(mail().ordering_key("o").due(at(-20))).await;
    assert_eq!(next(&fixture, lane).await.len(), 0, "an earlier one does not overtake it");
    fixture.apply(&fixture.get(&other).await, complete(None)).await;
    let running = next(&fixture, lane).await.remove(0);
    assert_eq!(running.id, first.id);
    fixture.apply(&running, complete(None)).await;
    assert_eq!(next(&fixture, lane).await.len(), 1);
    assert_eq!(fixture.get(&second).await.state(), State::Pending, "the earlier one is next");
}
