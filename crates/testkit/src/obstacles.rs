//! The conformance suite of [`punctual_core::obstacles`]: each sentence of its contract
//! is a function here of the same name.

mod workers;

use punctual_core::ids::TaskId;
use punctual_core::obstacles::{Blocker, Blockers, TasksAhead, TurnStatus};
use punctual_core::queues::{OnDeadLetter, QueueChange, RateLimit, Settings};
use punctual_core::state::{Event, State};
use punctual_core::task::Task;

use crate::fixtures::{TENANT, TaskBuilder, at, task};
use crate::store::{StoreFactory, StoreFixture, complete, fail_for_good};

pub use workers::workers_that_hold_tasks_are_listed;

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! obstacles_conformance {
    ($factory:expr) => {
        $crate::stamp! { obstacles, $factory;
            blockers_are_listed_in_the_order_of_depends_on,
            a_dead_letter_that_holds_its_children_is_shown,
            the_turn_of_a_key_is_shown,
            the_turn_is_shown_for_a_blocked_task,
            a_dead_letter_that_holds_its_key_is_shown,
            due_tasks_before_a_task_are_counted,
            a_task_that_has_waited_counts_as_more_urgent,
            a_queue_of_many_lanes_is_counted_from_the_own_lane_on,
            the_bucket_is_shown_as_claims_left_it,
            the_places_of_a_key_are_counted,
            workers_that_hold_tasks_are_listed,

            thousands_of_blockers_are_listed_quickly,
        }
    };
}

async fn blockers(fixture: &StoreFixture<'_>, task: &Task, first: usize) -> (Vec<(TaskId, State, bool)>, u64) {
    let Blockers { first, count } = fixture.database.blockers(task, first).await.expect("blockers answers");
    (first.into_iter().map(|Blocker { id, state, holds }| (id, state, holds)).collect(), count)
}

async fn turn(fixture: &StoreFixture<'_>, task: &Task, most: usize) -> Option<TurnStatus> {
    fixture.database.key_turn(task, most).await.expect("turn answers")
}

async fn ahead(fixture: &StoreFixture<'_>, task: &Task, most: usize) -> (u64, bool) {
    let TasksAhead { tasks, or_more } = fixture.database.ahead(task, 0, most).await.expect("ahead answers");
    (tasks, or_more)
}

fn exactly(tasks: u64) -> TasksAhead {
    TasksAhead { tasks, or_more: false }
}

async fn set(fixture: &StoreFixture<'_>, settings: Settings) {
    fixture
        .database
        .change_queue(TENANT, "default", QueueChange::Put(settings, None))
        .await
        .expect("a queue can be set");
}

async fn hold_behind_dead_letters(fixture: &StoreFixture<'_>) {
    set(fixture, Settings { on_dead_letter: OnDeadLetter::Hold, ..Settings::default() }).await;
}

/// In any order of submission. Completed tasks are not listed.
pub async fn blockers_are_listed_in_the_order_of_depends_on(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let parents = fixture.insert(task().queue("parents").times(5)).await;
    let named: Vec<TaskId> = [3, 0, 4, 1, 2].iter().map(|place: &usize| parents[*place].id).collect();
    let child = fixture.insert_one(task().depends_on(&named)).await;
    let (found, count) = blockers(&fixture, &child, 10).await;
    assert_eq!((found.iter().map(|(id, ..)| *id).collect::<Vec<_>>(), count), (named.clone(), 5));
    assert!(found.iter().all(|(_, state, holds)| *state == State::Pending && !holds), "{found:?}");

    let running = fixture.lease(parents[0].lane.id, 2).await;
    assert_eq!(running[0].id, parents[0].id);
    fixture.apply(&running[0], complete(None)).await;
    let (found, count) = blockers(&fixture, &child, 2).await;
    // Its end is not resolved yet, so it is listed with its final state.
    assert_eq!(
        (found, count),
        (vec![(parents[3].id, State::Pending, false), (parents[0].id, State::Completed, false)], 5)
    );
    fixture.resolve().await;
    let (found, count) = blockers(&fixture, &child, 3).await;
    let (third, second) = ((parents[3].id, State::Pending, false), (parents[1].id, State::Running, false));
    assert_eq!((found, count), (vec![third, (parents[4].id, State::Pending, false), second], 4));

    assert_eq!(blockers(&fixture, &parents[2], 10).await, (Vec::new(), 0));
    let alone = fixture.insert_one(task().depends_on(&[parents[0].id])).await;
    assert_eq!(blockers(&fixture, &alone, 10).await, (Vec::new(), 0), "it does not wait for completed tasks");
}

/// Until it is re-driven.
pub async fn a_dead_letter_that_holds_its_children_is_shown(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    hold_behind_dead_letters(&fixture).await;
    let parent = fixture.insert_one(task()).await;
    let child = fixture.insert_one(task().queue("children").depends_on(&[parent.id])).await;
    let running = fixture.lease(parent.lane.id, 1).await.remove(0);
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    fixture.resolve().await;
    assert_eq!(blockers(&fixture, &child, 10).await, (vec![(parent.id, State::DeadLettered, true)], 1));
    fixture.apply(&dead, Event::Redrive(None)).await;
    assert_eq!(blockers(&fixture, &child, 10).await, (vec![(parent.id, State::Pending, false)], 1));
}

fn keyed(due: i64) -> TaskBuilder {
    task().ordering_key("k").due(at(due))
}

/// Waiting or running. Tasks of other keys, and tasks behind it, are not counted.
pub async fn the_turn_of_a_key_is_shown(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tasks = fixture.insert((0..5).map(|n| keyed(n - 5).build()).collect()).await;
    fixture.insert((0..3).map(|n| keyed(n - 9).ordering_key("other").build()).collect()).await;
    let undecided = TurnStatus { is_own: false, holder: None, held_by: None, ahead: exactly(3) };
    assert_eq!(turn(&fixture, &tasks[3], 10).await, Some(undecided), "before the turn is decided");
    fixture.resolve().await;
    let first = Some((tasks[0].id, State::Pending));
    let waits = |holder, ahead| Some(TurnStatus { is_own: false, holder, held_by: None, ahead });
    assert_eq!(turn(&fixture, &tasks[3], 10).await, waits(first, exactly(2)));
    assert_eq!(turn(&fixture, &tasks[1], 10).await, waits(first, exactly(0)));
    assert_eq!(turn(&fixture, &tasks[3], 2).await, waits(first, exactly(2)));
    assert_eq!(turn(&fixture, &tasks[3], 1).await, waits(first, TasksAhead { tasks: 1, or_more: true }));
    let own = turn(&fixture, &tasks[0], 10).await.expect("it has a key");
    assert!(own.is_own && own.holder.is_none(), "{own:?}");

    let running = fixture.lease(tasks[0].lane.id, 1).await.remove(0);
    assert_eq!(turn(&fixture, &tasks[3], 10).await, waits(Some((tasks[0].id, State::Running)), exactly(2)));
    assert_eq!(turn(&fixture, &running, 10).await, None, "it does not wait");
    fixture.apply(&running, complete(None)).await;
    assert_eq!(turn(&fixture, &tasks[3], 10).await, waits(None, exactly(2)), "its end is not resolved yet");
    let without = fixture.insert_one(task()).await;
    assert_eq!(turn(&fixture, &without, 10).await, None);
}

/// Tasks behind it are not counted.
pub async fn the_turn_is_shown_for_a_blocked_task(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tasks = fixture.insert((0..3).map(|n| keyed(n - 5).build()).collect()).await;
    let parent = fixture.insert_one(task().queue("parents")).await;
    let child = fixture.insert_one(keyed(-1).depends_on(&[parent.id])).await;
    fixture.insert_one(keyed(0)).await;
    fixture.resolve().await;
    let holder = Some((tasks[0].id, State::Pending));
    let waits = TurnStatus { is_own: false, holder, held_by: None, ahead: exactly(2) };
    assert_eq!(turn(&fixture, &child, 10).await, Some(waits));
    let without = fixture.insert_one(task().depends_on(&[parent.id])).await;
    assert_eq!(turn(&fixture, &without, 10).await, None);
}

/// Not after it was re-driven, nor when the queue is set otherwise.
pub async fn a_dead_letter_that_holds_its_key_is_shown(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    hold_behind_dead_letters(&fixture).await;
    let tasks = fixture.insert(vec![keyed(-2).build(), keyed(-1).build()]).await;
    fixture.resolve().await;
    let running = fixture.lease(tasks[0].lane.id, 1).await.remove(0);
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    fixture.resolve().await;
    let held = TurnStatus { is_own: false, holder: None, held_by: Some(tasks[0].id), ahead: exactly(0) };
    assert_eq!(turn(&fixture, &tasks[1], 10).await, Some(held));
    set(&fixture, Settings::default()).await;
    assert_eq!(turn(&fixture, &tasks[1], 10).await.and_then(|turn| turn.held_by), None);
    hold_behind_dead_letters(&fixture).await;
    fixture.apply(&dead, Event::Redrive(None)).await;
    fixture.resolve().await;
    let first = TurnStatus { holder: Some((tasks[0].id, State::Pending)), held_by: None, ..held };
    assert_eq!(turn(&fixture, &tasks[1], 10).await, Some(first));
}

/// For priorities far apart, and by the length of the wait.
pub async fn a_task_that_has_waited_counts_as_more_urgent(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let old = fixture.insert_one(task().priority(0).due(at(-1_000))).await;
    let fresh = fixture.insert((0..3).map(|n| task().priority(8).due(at(n - 5)).build()).collect()).await;
    let ahead = async |task: &Task, aging_millis: i64| {
        fixture.database.ahead(task, aging_millis, 100).await.expect("ahead answers")
    };
    for (aging_millis, of_old, of_fresh) in [(0, 3, 0), (200, 3, 0), (100, 0, 1), (1, 0, 1)] {
        assert_eq!(ahead(&old, aging_millis).await, exactly(of_old), "{aging_millis}");
        assert_eq!(ahead(&fresh[0], aging_millis).await, exactly(of_fresh), "{aging_millis}");
    }
}

/// Tasks in all lanes of the queue count, also in push lanes.
pub async fn due_tasks_before_a_task_are_counted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let before = fixture.insert((0..3).map(|n| task().due(at(n - 9)).build()).collect()).await;
    let other_lane = fixture.insert((0..2).map(|n| task().kind("other").due(at(n - 9)).build()).collect()).await;
    fixture.insert_one(task().push("http://127.0.0.1:1").due(at(-8))).await;
    let own = fixture.insert_one(task().due(at(-5))).await;
    assert_eq!(ahead(&fixture, &own, 100).await, (6, false));
    // Tasks behind it, less urgent ones, and those of other queues or tenants do not count.
    for other in [
        task().due(at(-4)),
        task().due(at(-5)),
        task().kind("other").due(at(-1)),
        task().priority(4).due(at(-9)),
        task().queue("elsewhere").due(at(-9)),
        task().tenant("other").due(at(-9)),
        task().priority(9).due(at(60_000)),
    ] {
        fixture.insert_one(other).await;
    }
    assert_eq!(ahead(&fixture, &own, 100).await, (6, false));
    // A more urgent task goes first whenever it was due. A task that waits for its turn does not;
    // it is due when it gets the turn.
    fixture.insert_one(task().priority(6).due(at(-1))).await;
    fixture.insert((0..4).map(|n| keyed(n - 20).build()).collect()).await;
    fixture.resolve().await;
    assert_eq!(ahead(&fixture, &own, 100).await, (7, false));
    assert_eq!(ahead(&fixture, &own, 7).await, (7, false));
    assert_eq!(ahead(&fixture, &own, 6).await, (6, true));
    fixture.lease(before[0].lane.id, 2).await;
    assert_eq!(ahead(&fixture, &own, 100).await, (5, false));
    fixture.lease(other_lane[0].lane.id, 1).await;
    assert_eq!(ahead(&fixture, &own, 100).await, (4, false));
    fixture.advance(1);
    let last = fixture.insert_one(task().due(at(1))).await;
    // All due tasks that are not claimed, except less urgent ones. The task that got its turn is
    // among them now.
    assert_eq!(ahead(&fixture, &last, 100).await, (9, false));
}

/// A thousand lanes are read.
pub async fn a_queue_of_many_lanes_is_counted_from_the_own_lane_on(factory: &dyn StoreFactory) {
    const LANES: usize = 1_000;
    let fixture = StoreFixture::open(factory).await;
    let others = |due: i64| (0..LANES).map(|n| task().kind(&format!("k{n}")).due(at(due)).build()).collect();
    let idle = fixture.insert(others(-9)).await;
    let own = fixture.insert(vec![task().due(at(-5)).build(), task().due(at(-4)).build()]).await;
    assert_eq!(ahead(&fixture, &own[1], 10_000).await, (1_000, true), "its own lane, and 999 others");
    let cancel = idle.iter().map(|task| fixture.change(task, Event::Cancel)).collect();
    fixture.store.apply(cancel).await.expect("apply answers");
    assert_eq!(ahead(&fixture, &own[1], 10_000).await, (1, false), "no task waits in the other lanes");
    fixture.insert(others(60_000)).await;
    assert_eq!(ahead(&fixture, &own[1], 10_000).await, (1, true), "the tasks of the other lanes are not due");
}

/// The bucket's time is that of the store's clock.
pub async fn the_bucket_is_shown_as_claims_left_it(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert(task().times(5)).await[0].lane.id;
    let bucket = async || fixture.database.bucket(TENANT, "default").await.expect("bucket answers");
    assert_eq!(bucket().await, None);
    set(&fixture, Settings { rate_limit: Some(RateLimit { per_second: 1.0, burst: 5 }), ..Settings::default() }).await;
    assert_eq!(bucket().await, None);
    assert_eq!(fixture.lease(lane, 3).await.len(), 3);
    let left = bucket().await.expect("a claim has taken from it");
    assert!((left.tokens - 2.0).abs() < 1e-9 && left.refilled_at == fixture.now(), "{left:?}");
    assert_eq!(fixture.database.bucket("other", "default").await.expect("bucket answers"), None);
    set(&fixture, Settings::default()).await;
    assert_eq!(bucket().await, None);
}

/// Even if nearly all of them have completed.
pub async fn thousands_of_blockers_are_listed_quickly(factory: &dyn StoreFactory) {
    const PARENTS: usize = 10_000;
    const LEFT: usize = 3;
    let fixture = StoreFixture::open(factory).await;
    let parents = fixture.insert(task().queue("parents").times(PARENTS)).await;
    let named: Vec<TaskId> = parents.iter().map(|task| task.id).collect();
    let child = fixture.insert_one(task().depends_on(&named)).await;
    let (found, count) = blockers(&fixture, &child, 10).await;
    assert_eq!((found.len(), count), (10, 10_000));
    let mut done = 0;
    while done < PARENTS - LEFT {
        let running = fixture.lease(parents[0].lane.id, (PARENTS - LEFT - done).min(1_000)).await;
        done += running.len();
        let changes = running.iter().map(|task| fixture.change(task, complete(None))).collect();
        fixture.store.apply(changes).await.expect("apply answers");
    }
    fixture.resolve().await;
    let begun = std::time::Instant::now();
    let (found, count) = blockers(&fixture, &child, 10).await;
    let took = begun.elapsed();
    let left: Vec<TaskId> = found.iter().map(|(id, ..)| *id).collect();
    assert_eq!((left.as_slice(), count), (&named[PARENTS - LEFT..], 3));
    assert!(took < std::time::Duration::from_secs(2), "{took:?}");
}

/// Queued or running, with or without a limit.
pub async fn the_places_of_a_key_are_counted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let keyed = fixture.insert(task().concurrency_key("k").times(5)).await;
    let places = async |task: &Task, most: u32| fixture.database.key_places(task, most).await.expect("places answers");
    assert_eq!(places(&keyed[0], 9).await, 0);
    let running = fixture.lease(keyed[0].lane.id, 2).await;
    fixture.dispatch(keyed[0].lane.id, 2).await;
    assert_eq!((places(&keyed[4], 9).await, places(&keyed[4], 3).await), (4, 3));
    fixture.apply(&running[0], complete(None)).await;
    assert_eq!(places(&keyed[4], 9).await, 3);
    for other in [task(), task().concurrency_key("other"), task().queue("other").concurrency_key("k")] {
        assert_eq!(places(&fixture.insert_one(other).await, 9).await, 0);
    }
}
