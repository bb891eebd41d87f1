//! The conformance suite of [`punctual_core::forecast`]: each sentence of its contract is a
//! function here of the same name. Random histories are compared with a count of the waiting tasks.

mod random;
mod upcoming;

use std::sync::Arc;

use punctual_core::failure::FailureCause;
use punctual_core::forecast::{Minute, UpcomingSchedule};
use punctual_core::schedules::plan::Origin;
use punctual_core::schedules::{Advanced, OccurrenceOutcome, Record, Schedule, SchedulePause, TaskNames};
use punctual_core::state::{Event, State};
use punctual_core::store::Inserted;
use punctual_core::task::{Edit, Task};
use punctual_core::time::Timestamp;
use tokio::task::JoinSet;

use crate::fixtures::{START, TENANT, at, task};
use crate::schedules::{advance, done, fired, of_schedule, record, schedule};
use crate::store::{StoreFactory, StoreFixture, complete, fail_for_good, failure, is_done, replayed};

pub use random::*;
pub use upcoming::*;

/// A minute, in milliseconds.
const MINUTE: i64 = 60_000;

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! forecast_conformance {
    ($factory:expr) => {
        $crate::stamp! { forecast, $factory;
            a_waiting_task_counts_in_the_minute_it_is_due,
            tasks_due_within_this_minute_are_not_counted,
            tasks_that_no_longer_wait_are_not_counted,
            an_edit_moves_a_task_to_its_new_minute,
            a_retry_counts_where_it_is_due,
            a_blocked_task_counts_from_its_release_on,
            a_task_without_its_turn_counts_by_its_due_instant,
            a_dead_letter_counts_again_when_it_waits_again,
            a_replayed_task_is_counted_once,
            tenants_are_counted_apart,
            counts_outlive_the_process,
            schedules_that_will_fire_are_listed_page_by_page,
            waiting_tasks_are_listed_as_they_come_due,
            tasks_without_their_turn_are_listed_too,

            many_at_once_are_all_counted,
            counts_follow_random_histories,
        }
    };
}

/// How many tasks of a tenant are due in each later minute, numbered from [`START`].
async fn of_tenant(fixture: &StoreFixture<'_>, tenant: &str) -> Vec<(i64, u64)> {
    let (start, next) = (Minute::of(START), Minute::of(fixture.now()).plus(1));
    let waiting = fixture.database.waiting(tenant, next, start.plus(1_000_000)).await.expect("waiting answers");
    waiting.into_iter().map(|(minute, tasks)| (minute.number() - start.number(), tasks)).collect()
}

async fn counted(fixture: &StoreFixture<'_>) -> Vec<(i64, u64)> {
    of_tenant(fixture, TENANT).await
}

/// Tasks count alone or in a batch, with and without keys, in any lane; so does the later task of a
/// schedule.
pub async fn a_waiting_task_counts_in_the_minute_it_is_due(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(counted(&fixture).await, []);
    fixture.insert_one(task().due(at(MINUTE + 1))).await;
    fixture.insert_one(task().due(at(2 * MINUTE - 1)).priority(9).key("k", 1)).await;
    fixture.insert_one(task().due(at(5 * MINUTE)).push("http://x.example:80")).await;
    assert_eq!(counted(&fixture).await, [(1, 2), (5, 1)]);
    let wish = |number: i64| task().queue(&format!("q{}", number % 7)).due(at(number * 20_000)).build();
    fixture.insert((0..18).map(wish).collect()).await;
    assert_eq!(counted(&fixture).await, [(1, 5), (2, 3), (3, 3), (4, 3), (5, 4)]);

    let nightly = schedule("nightly");
    fixture.schedules.insert(nightly.clone()).await.expect("it is stored");
    let jittered = of_schedule(&nightly, at(7 * MINUTE));
    let advance = advance(&nightly, vec![fired(at(0), &jittered)]);
    let advanced =
        fixture.schedules.advance(None, vec![advance]).await.expect("advance answers").expect("no lease was named");
    assert!(matches!(advanced[..], [Advanced::Done { .. }]));
    assert_eq!(counted(&fixture).await.last(), Some(&(7, 1)));
}

/// The next millisecond is in another minute.
pub async fn tasks_due_within_this_minute_are_not_counted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for millis in [-MINUTE, -1, 0, MINUTE - 1] {
        fixture.insert_one(task().due(at(millis))).await;
    }
    assert_eq!(counted(&fixture).await, []);
    let next = fixture.insert_one(task().due(at(MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(1, 1)]);
    fixture.advance(59_999);
    fixture.insert_one(task().due(at(MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(1, 2)]);
    fixture.advance(1);
    fixture.insert_one(task().due(at(2 * MINUTE - 1))).await;
    fixture.insert_one(task().due(at(2 * MINUTE))).await;
    // Its minute has come, so nothing is subtracted.
    fixture.apply(&next, Event::Cancel).await;
    assert_eq!(counted(&fixture).await, [(2, 1)]);
}

/// Tasks are cancelled alone and in a batch. A lost change changes no count.
pub async fn tasks_that_no_longer_wait_are_not_counted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tasks = fixture.insert(task().due(at(3 * MINUTE)).expires_at(at(4 * MINUTE)).times(10)).await;
    let cancel = fixture.change(&tasks[0], Event::Cancel);
    fixture.apply(&tasks[0], Event::Cancel).await;
    assert_eq!(counted(&fixture).await, [(3, 9)]);
    assert!(!is_done(&fixture.apply_change(cancel).await));
    fixture.apply(&tasks[1], Event::Expire).await;
    assert_eq!(counted(&fixture).await, [(3, 8)]);
    let changes = tasks[2..9].iter().map(|task| fixture.change(task, Event::Cancel)).collect();
    assert!(fixture.store.apply(changes).await.expect("apply answers").iter().all(is_done));
    assert_eq!(counted(&fixture).await, [(3, 1)]);
    // Neither running nor finished tasks wait.
    fixture.advance(180_000);
    let running = fixture.lease(tasks[9].lane.id, 10).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    assert_eq!(counted(&fixture).await, []);
}

/// Tasks are edited alone, in a batch, twice in one call, and into another lane.
pub async fn an_edit_moves_a_task_to_its_new_minute(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tasks = fixture.insert(task().due(at(10 * MINUTE)).times(4)).await;
    let later = fixture.apply(&tasks[0], time(at(20 * MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(10, 3), (20, 1)]);
    let sooner = fixture.apply(&later, time(at(5 * MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(5, 1), (10, 3)]);
    let other = Edit { priority: Some(9), expires_at: Some(Some(at(90 * MINUTE))), ..Edit::default() };
    let sooner = fixture.apply(&sooner, Event::Edit(Box::new(other))).await;
    assert_eq!(counted(&fixture).await, [(5, 1), (10, 3)]);
    fixture.apply(&sooner, time(at(30_000))).await;
    assert_eq!(counted(&fixture).await, [(10, 3)]);
    let now = fixture.apply(&tasks[1], Event::RunNow).await;
    assert_eq!(counted(&fixture).await, [(10, 2)]);
    fixture.apply(&now, time(at(10 * MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(10, 3)]);

    // Several changes of one task in one call: edited twice and cancelled. Another task is edited.
    let first = fixture.change(&tasks[2], time(at(40 * MINUTE)));
    let mut after = tasks[2].clone();
    after.position = first.1.position_after(&after.position);
    let second = fixture.change(&after, time(at(50 * MINUTE)));
    after.position = second.1.position_after(&after.position);
    let third = fixture.change(&after, Event::Cancel);
    let beside = fixture.change(&tasks[3], time(at(60 * MINUTE)));
    let applied = fixture.store.apply(vec![first, second, beside, third]).await.expect("apply answers");
    assert!(applied.iter().all(is_done));
    assert_eq!(counted(&fixture).await, [(10, 1), (60, 1)]);
}

/// The delay decides the minute. A retry within this minute is not counted.
pub async fn a_retry_counts_where_it_is_due(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task()).await;
    let waiting = fixture.apply(&running, retry_after(&running, 600_000)).await;
    assert_eq!((waiting.state(), counted(&fixture).await), (State::Pending, vec![(10, 1)]));
    fixture.advance(600_000);
    let running = fixture.lease(waiting.lane.id, 1).await.remove(0);
    let waiting = fixture.apply(&running, retry_after(&running, 59_999)).await;
    assert_eq!(counted(&fixture).await, []);
    fixture.advance(59_999);
    let running = fixture.lease(waiting.lane.id, 1).await.remove(0);
    fixture.apply(&running, Event::GiveBack(at(30 * MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(30, 1)]);
}

/// A blocked task does not count, however it ends.
pub async fn a_blocked_task_counts_from_its_release_on(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let parent = fixture.insert_one(task().queue("parents")).await;
    let child = |due: i64| task().due(at(due)).depends_on(&[parent.id]);
    let later = fixture.insert_one(child(10 * MINUTE)).await;
    fixture.insert_one(child(0)).await;
    let dropped = fixture.insert_one(child(11 * MINUTE)).await;
    assert_eq!(later.state(), State::Blocked);
    fixture.apply(&dropped, Event::Cancel).await;
    fixture.apply(&later, time(at(12 * MINUTE))).await;
    assert_eq!(counted(&fixture).await, []);
    let running = fixture.lease(parent.lane.id, 1).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    fixture.resolve().await;
    assert_eq!(counted(&fixture).await, [(12, 1)]);
    let after = fixture.insert_one(child(13 * MINUTE)).await;
    assert_eq!((after.state(), counted(&fixture).await), (State::Pending, vec![(12, 1), (13, 1)]));
}

/// Tasks behind the first count too, before and after they get the turn.
pub async fn a_task_without_its_turn_counts_by_its_due_instant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(task().ordering_key("k").due(at(5 * MINUTE))).await;
    fixture.insert_one(task().ordering_key("k").due(at(6 * MINUTE))).await;
    fixture.insert_one(task().ordering_key("k").due(at(6 * MINUTE))).await;
    assert_eq!(counted(&fixture).await, [(5, 1), (6, 2)]);
    fixture.resolve().await;
    assert_eq!(counted(&fixture).await, [(5, 1), (6, 2)]);
    fixture.apply(&fixture.get(&first).await, Event::Cancel).await;
    fixture.resolve().await;
    assert_eq!(counted(&fixture).await, [(6, 2)]);
}

/// A dead letter is not counted; a re-driven one is due at once.
pub async fn a_dead_letter_counts_again_when_it_waits_again(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task()).await;
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    fixture.advance(30_000);
    let driven = fixture.apply(&dead, Event::Redrive(None)).await;
    assert_eq!((driven.state(), counted(&fixture).await), (State::Pending, vec![]));
    let running = fixture.lease(driven.lane.id, 1).await.remove(0);
    let waiting = fixture.apply(&running, retry_after(&running, 600_000)).await;
    assert_eq!(counted(&fixture).await, [(10, 1)]);
    fixture.apply(&waiting, Event::Cancel).await;
    assert_eq!(counted(&fixture).await, []);
}

/// A task is replayed by its key, in one batch and later, and by its id.
pub async fn a_replayed_task_is_counted_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let wish = |content: u8| task().due(at(5 * MINUTE)).key("same", content).build();
    let answers = fixture.store.insert(vec![wish(1), wish(1), wish(2)]).await.expect("insert answers");
    assert!(matches!(answers[..], [Inserted::Created(_), Inserted::Replayed(_), Inserted::KeyReused(_)]));
    replayed(fixture.store.insert(vec![wish(1)]).await.expect("insert answers").remove(0));
    assert_eq!(counted(&fixture).await, [(5, 1)]);
    let again = task().due(at(6 * MINUTE)).build();
    for _ in 0..2 {
        fixture.store.insert(vec![again.clone(), task().due(at(7 * MINUTE)).build()]).await.expect("insert answers");
    }
    assert_eq!(counted(&fixture).await, [(5, 1), (6, 1), (7, 2)]);
}

/// Tasks of two tenants are in one batch. The answer has exactly the requested range.
pub async fn tenants_are_counted_apart(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let wish = |tenant: &str, minute: i64| task().tenant(tenant).due(at(minute * MINUTE)).build();
    let tasks = fixture.insert((2..6).flat_map(|minute| [wish("a", minute), wish("b", minute + 1)]).collect()).await;
    assert_eq!(of_tenant(&fixture, "a").await, [(2, 1), (3, 1), (4, 1), (5, 1)]);
    assert_eq!(of_tenant(&fixture, "b").await, [(3, 1), (4, 1), (5, 1), (6, 1)]);
    assert_eq!(of_tenant(&fixture, "c").await, []);
    fixture.apply(&tasks[0], Event::Cancel).await;
    assert_eq!(of_tenant(&fixture, "a").await, [(3, 1), (4, 1), (5, 1)]);
    assert_eq!(of_tenant(&fixture, "b").await.len(), 4);
    let start = Minute::of(START);
    let some = fixture.database.waiting("a", start.plus(3), start.plus(5)).await.expect("waiting answers");
    assert_eq!(some, [(start.plus(3), 1), (start.plus(4), 1)]);
    assert_eq!(fixture.database.waiting("a", start.plus(5), start.plus(5)).await.expect("waiting answers"), []);
}

/// Counts that were added before a restart are subtracted after it.
pub async fn counts_outlive_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tasks = fixture.insert(task().due(at(5 * MINUTE)).times(3)).await;
    let fixture = fixture.reopen().await;
    assert_eq!(counted(&fixture).await, [(5, 3)]);
    fixture.apply(&tasks[0], Event::Cancel).await;
    fixture.apply(&tasks[1], time(at(6 * MINUTE))).await;
    fixture.insert_one(task().due(at(6 * MINUTE))).await;
    let fixture = fixture.reopen().await;
    assert_eq!(counted(&fixture).await, [(5, 1), (6, 2)]);
}

/// A page has everything that the instants are computed from.
pub async fn schedules_that_will_fire_are_listed_page_by_page(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut stored: Vec<Schedule> = ["d", "a", "e", "c", "b", "f"].map(schedule).into();
    stored[0].progress.run_count = 7;
    stored[1].definition.spec.jitter_millis = 5_000;
    stored[2].set_pause(Some(SchedulePause { at: at(0), reason: None }));
    stored[3].progress.next_run_at = None;
    "other".clone_into(&mut stored[5].tenant);
    for schedule in &stored {
        fixture.schedules.insert(schedule.clone()).await.expect("it is stored");
    }
    let waits = |instant, origin| Record { origin, ..record(at(instant), OccurrenceOutcome::Buffered) };
    let waiting = [(1, Origin::Due), (2, Origin::Due), (3, Origin::Manual), (4, Origin::Backfill)];
    let waiting = waiting.map(|(instant, origin)| waits(instant, origin)).into();
    done(&fixture, advance(&stored[4], waiting)).await;
    let will_fire = |schedule: &Schedule, reserved: u64| UpcomingSchedule {
        id: schedule.id,
        name: schedule.name.clone(),
        task: TaskNames { kind: "t".to_owned(), queue: None },
        spec: schedule.definition.spec.clone(),
        next_run_at: schedule.progress.next_run_at.expect("it will fire"),
        run_count: schedule.progress.run_count,
        reserved,
    };
    let expected = [will_fire(&stored[1], 0), will_fire(&stored[4], 3), will_fire(&stored[0], 0)];
    for limit in [1, 2, 3, 4] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.database.upcoming(TENANT, at(1), after, limit).await.expect("upcoming answers");
            assert!(page.schedules.len() <= limit);
            found.extend(page.schedules);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "in pages of {limit}");
    }
    for (tenant, until, count) in [(TENANT, at(1), 3), (TENANT, at(0), 0), ("nobody", at(1), 0)] {
        assert_eq!(fixture.database.upcoming_count(tenant, until).await.expect("it is counted"), count);
        let page = fixture.database.upcoming(tenant, until, None, 9).await.expect("upcoming answers");
        assert_eq!(page.schedules.len() as u64, count);
    }
}

/// Many callers submit and cancel in the same minutes at once.
pub async fn many_at_once_are_all_counted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut busy = JoinSet::new();
    for round in 0..16 {
        let store = Arc::clone(&fixture.store);
        busy.spawn(async move {
            let wish = |minute: i64| task().queue(&format!("q{round}")).due(at(minute * MINUTE)).build();
            store.insert((1..=50).flat_map(|minute| [wish(minute), wish(51 - minute)]).collect()).await
        });
    }
    let mut tasks: Vec<Task> = Vec::new();
    for inserted in busy.join_all().await {
        tasks.extend(inserted.expect("insert answers").into_iter().map(crate::store::created));
    }
    assert_eq!(counted(&fixture).await, (1..=50).map(|minute| (minute, 32)).collect::<Vec<_>>());
    let mut busy = JoinSet::new();
    for some in tasks.chunks(100) {
        let half = some.iter().step_by(2).map(|task| fixture.change(task, Event::Cancel)).collect();
        let store = Arc::clone(&fixture.store);
        busy.spawn(async move { store.apply(half).await });
    }
    for applied in busy.join_all().await {
        assert!(applied.expect("apply answers").iter().all(is_done));
    }
    assert_eq!(counted(&fixture).await, (1..=50).map(|minute| (minute, 16)).collect::<Vec<_>>());
}

/// The edit of a task's time.
fn time(execute_at: Timestamp) -> Event<'static> {
    Event::Edit(Box::new(Edit { execute_at: Some(execute_at), ..Edit::default() }))
}

/// A failed run that is retried after this many milliseconds.
fn retry_after(task: &Task, millis: u64) -> Event<'static> {
    let mut failure = failure(task, FailureCause::Reported, true);
    failure.retry_after_millis = Some(millis);
    Event::Fail(failure)
}
