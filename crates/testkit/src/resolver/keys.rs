//! The sentences about ordering keys.

use std::time::Duration;

use punctual_core::queues::OnDeadLetter;
use punctual_core::state::{Event, State};
use punctual_core::store::Claim;
use punctual_core::task::{Edit, OrderingKeyEdit, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Step;
use punctual_core::upkeep::Prunable;

use super::{claimable, set, state_of, take};
use crate::fixtures::{TaskBuilder, at, task};
use crate::store::{StoreFactory, StoreFixture, WORKER, complete, fail, fail_for_good, ids, is_done, worker};

fn keyed(due: i64) -> TaskBuilder {
    task().ordering_key("k").due(at(due))
}

fn edit_time(execute_at: Timestamp) -> Event<'static> {
    Event::Edit(Box::new(Edit { execute_at: Some(execute_at), ..Edit::default() }))
}

/// Turns go by `execute_at`, then in the order of submission, in any lanes.
pub async fn a_key_gives_one_turn_at_a_time(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let batch = vec![keyed(-1), keyed(-2), keyed(-2), keyed(60_000)];
    let tasks = fixture.insert(batch.into_iter().map(TaskBuilder::build).collect()).await;
    let lane = tasks[0].lane.id;
    assert!(fixture.lease(lane, 10).await.is_empty(), "no task has the turn before it is decided");
    let other_key = fixture.insert_one(task().ordering_key("K")).await;
    let other_tenant = fixture.insert_one(keyed(0).tenant("other")).await;
    let without = fixture.insert_one(task()).await;
    let mut taken = claimable(&fixture, lane).await;
    taken.sort_by_key(|task| task.due_at);
    let mut expected = ids(&[tasks[1].clone(), other_key.clone(), without.clone()]);
    let mut got = ids(&taken);
    expected.sort_unstable();
    got.sort_unstable();
    assert_eq!(got, expected);
    take(&fixture, other_tenant.lane.id, &[&other_tenant]).await;

    let mut running = taken.into_iter().find(|task| task.id == tasks[1].id).expect("it is among them");
    for next in [&tasks[2], &tasks[0]] {
        assert!(claimable(&fixture, lane).await.is_empty(), "two of a key at once");
        fixture.apply(&running, complete(None)).await;
        running = take(&fixture, lane, &[next]).await.remove(0);
    }
    fixture.apply(&running, complete(None)).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "the last is not due yet");
    fixture.advance(60_000);
    let last = take(&fixture, lane, &[&tasks[3]]).await.remove(0);
    assert_eq!(last.body.ordering_key.as_deref(), Some("k"));
    fixture.apply(&last, complete(None)).await;
    // The key can be used as if it were new.
    let again = fixture.insert_one(keyed(0)).await;
    take(&fixture, lane, &[&again]).await;
}

/// Even if an earlier task is submitted meanwhile.
pub async fn a_turn_that_has_begun_is_kept(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(keyed(0)).await;
    let lane = first.lane.id;
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    let earlier = fixture.insert_one(keyed(-10_000)).await;
    assert!(claimable(&fixture, lane).await.is_empty());
    let retried = fixture.apply(&running, fail(&running)).await;
    assert_eq!(retried.state(), State::Pending);
    assert!(claimable(&fixture, lane).await.is_empty(), "while it waits for its retry");
    fixture.advance(1_000);
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    // After a give-back it still counts as begun, because of its first attempt.
    let back = fixture.apply(&running, Event::GiveBack(fixture.now())).await;
    assert_eq!(back.position.attempts, 1);
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    fixture.apply(&running, complete(None)).await;

    // An attempt that is given back has not begun.
    let running = take(&fixture, lane, &[&earlier]).await.remove(0);
    fixture.apply(&running, Event::GiveBack(fixture.now())).await;
    let earliest = fixture.insert_one(keyed(-20_000)).await;
    let running = take(&fixture, lane, &[&earliest]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    take(&fixture, lane, &[&earlier]).await;
}

/// The note about the earlier task is visible to the claim: the resolver may be late.
pub async fn a_claim_waits_for_an_earlier_task_of_the_key(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let later = fixture.insert_one(keyed(-5)).await;
    let lane = later.lane.id;
    fixture.resolve().await;
    let earlier = fixture.insert_one(keyed(-10).queue("earlier")).await;
    let behind = fixture.insert_one(task()).await;
    let claim = Claim { lanes: vec![(lane, 10)], limit: 10, claimant: worker(WORKER) };
    let claimed = fixture.claim(claim).await;
    assert_eq!(ids(&claimed.tasks), [behind.id], "the later task went first");
    assert_eq!(claimed.next_due, [(lane, Some(fixture.now()))], "it stays the head of its lane");
    assert!(fixture.lease(earlier.lane.id, 10).await.is_empty(), "it has no turn yet");
    // The earlier task is cancelled before it has the turn.
    let cancelled = fixture.apply(&earlier, Event::Cancel).await;
    assert_eq!(cancelled.state(), State::Cancelled);
    let running = take(&fixture, lane, &[&later]).await.remove(0);

    // A task that is given back has not begun, and gives way before that is resolved.
    let earliest = fixture.insert_one(keyed(-20).queue("earlier")).await;
    fixture.resolve().await;
    fixture.apply(&running, Event::GiveBack(fixture.now())).await;
    assert!(fixture.lease(lane, 10).await.is_empty(), "the released task went first");
    let running = take(&fixture, earliest.lane.id, &[&earliest]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    take(&fixture, lane, &[&later]).await;
}

/// The time is moved earlier and later, of the task with the turn and of others.
pub async fn an_edited_time_moves_the_turn(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(keyed(-10)).await;
    let second = fixture.insert_one(keyed(-5)).await;
    let third = fixture.insert_one(keyed(60_000)).await;
    let lane = first.lane.id;
    fixture.resolve().await;
    let first = fixture.apply(&first, edit_time(at(30_000))).await;
    let running = take(&fixture, lane, &[&second]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    let third = fixture.apply(&third, edit_time(at(10_000))).await;
    fixture.advance(30_000);
    let running = take(&fixture, lane, &[&third]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    let fourth = fixture.insert_one(keyed(90_000)).await;
    fixture.resolve().await;
    let fourth = fixture
        .apply(&fourth, Event::Edit(Box::new(Edit { execute_at: Some(at(1)), priority: Some(9), ..Edit::default() })))
        .await;
    assert_ne!(fourth.lane.id, lane);
    assert!(claimable(&fixture, lane).await.is_empty());
    let running = take(&fixture, fourth.lane.id, &[&fourth]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    take(&fixture, lane, &[&first]).await;
}

/// Of the task with the turn, and of one that waits for it; to another key, to none, and back.
pub async fn an_edited_key_moves_the_turn(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (first, second) = (fixture.insert_one(keyed(-10)).await, fixture.insert_one(keyed(-5)).await);
    let other = fixture.insert_one(keyed(-20).ordering_key("other")).await;
    let lane = first.lane.id;
    fixture.resolve().await;
    // The other key is taken, so the first task waits there; the second has its turn.
    let first = fixture.apply(&first, edit_key(&first, Some("other"))).await;
    let mut running = take(&fixture, lane, &[&second, &other]).await;
    let second = fixture.apply(&running.remove(0), Event::GiveBack(fixture.now())).await;
    let free = fixture.apply(&second, edit_key(&second, None)).await;
    take(&fixture, lane, &[&free]).await;
    let third = fixture.insert_one(keyed(0)).await;
    let waiting = fixture.apply(&third, edit_key(&third, Some("other"))).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "the other key is taken");
    fixture.apply(&running.remove(0), complete(None)).await;
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    take(&fixture, lane, &[&waiting]).await;
}

fn edit_key(task: &Task, to: Option<&str>) -> Event<'static> {
    let key = OrderingKeyEdit { from: task.body.ordering_key.clone(), to: to.map(str::to_owned) };
    Event::Edit(Box::new(Edit { ordering_key: Some(key), ..Edit::default() }))
}

/// By default they continue. If the queue holds them, they wait until it is re-driven or removed,
/// or the queue is set otherwise.
pub async fn a_dead_letter_lets_the_next_go_or_holds_them(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert_one(keyed(-10)).await;
    let second = fixture.insert_one(keyed(-5)).await;
    let lane = first.lane.id;
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    let running = take(&fixture, lane, &[&second]).await.remove(0);
    // A re-driven task has its old place, and waits for its turn.
    fixture.apply(&dead, Event::Redrive(None)).await;
    let third = fixture.insert_one(keyed(-3)).await;
    assert!(claimable(&fixture, lane).await.is_empty());
    set(&fixture, OnDeadLetter::Hold).await;
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "all others are held");
    let back = fixture.apply(&dead, Event::Redrive(None)).await;
    let running = take(&fixture, lane, &[&back]).await.remove(0);
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    review(&fixture).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "it is still a dead letter");
    set(&fixture, OnDeadLetter::Continue).await;
    review(&fixture).await;
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    set(&fixture, OnDeadLetter::Hold).await;
    let last = fixture.apply(&running, fail_for_good(&running)).await;
    assert!(claimable(&fixture, lane).await.is_empty());
    fixture.advance(1_000_000_000_000);
    remove_history(&fixture).await;
    assert!(fixture.find(last.tenant(), last.id).await.is_none(), "it was removed");
    assert!(fixture.find(dead.tenant(), dead.id).await.is_none());
    review(&fixture).await;
    take(&fixture, lane, &[&third]).await;
}

/// Neither its key nor its dependents, also those that were submitted since.
pub async fn a_purged_dead_letter_holds_nothing(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    set(&fixture, OnDeadLetter::Hold).await;
    let first = fixture.insert_one(keyed(-10)).await;
    let next = fixture.insert_one(keyed(-5)).await;
    let early = fixture.insert_one(task().queue("children").depends_on(&[first.id])).await;
    let lane = first.lane.id;
    let running = take(&fixture, lane, &[&first]).await.remove(0);
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    let late = fixture.insert_one(task().queue("children").depends_on(&[first.id])).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "it holds its key");
    assert_eq!((state_of(&fixture, &early).await, state_of(&fixture, &late).await), (State::Blocked, State::Blocked));
    fixture.apply(&dead, Event::Purge).await;
    take(&fixture, lane, &[&next]).await;
    for child in [&early, &late] {
        let child = fixture.get(child).await;
        assert_eq!(child.state(), State::Cancelled, "it follows its policy");
        let named = Step::ParentFailed { parent: first.id, ended: State::Cancelled };
        assert_eq!(child.trail.last().map(|entry| entry.step), Some(named));
    }
    review(&fixture).await;
    assert_eq!(fixture.resolve().await, 0, "nothing is left");
}

/// More tasks than a step reads: those with the keys of dead letters, and their dependents.
pub async fn a_queue_that_stops_holding_releases_at_once(factory: &dyn StoreFactory) {
    const LETTERS: usize = 1_200;
    let fixture = StoreFixture::open(factory).await;
    set(&fixture, OnDeadLetter::Hold).await;
    let first = fixture.insert((0..LETTERS).map(|key| task().ordering_key(&key.to_string()).build()).collect()).await;
    let lane = first[0].lane.id;
    fixture.resolve().await;
    let running = fixture.lease(lane, LETTERS).await;
    let failures = running.iter().map(|task| fixture.change(task, fail_for_good(task))).collect();
    assert!(fixture.store.apply(failures).await.expect("apply answers").iter().all(is_done));
    let next = |letter: &Task| {
        let key = letter.body.ordering_key.as_deref().expect("it has one");
        [task().ordering_key(key).build(), task().queue("children").depends_on(&[letter.id]).build()]
    };
    fixture.insert(running.iter().flat_map(next).collect()).await;
    review(&fixture).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "all are held");
    assert_eq!(blocked(&fixture).await, u64::try_from(LETTERS).unwrap());

    // Consume the notification of earlier notes.
    drop(tokio::time::timeout(Duration::ZERO, fixture.database.wait_for_notes()).await);
    set(&fixture, OnDeadLetter::Continue).await;
    tokio::time::timeout(Duration::from_secs(10), fixture.database.wait_for_notes())
        .await
        .expect("the resolver is notified");
    fixture.resolve().await;
    assert_eq!(fixture.lease(lane, 2 * LETTERS).await.len(), LETTERS);
    assert_eq!(blocked(&fixture).await, 0, "the policy of the children is to be cancelled");
}

/// How many tasks wait for others.
async fn blocked(fixture: &StoreFixture<'_>) -> u64 {
    let counts = fixture.counts().await;
    counts.into_iter().filter(|((_, state), _)| *state == State::Blocked).map(|(_, tasks)| tasks).sum()
}

/// Checks all held tasks.
pub(super) async fn review(fixture: &StoreFixture<'_>) {
    fixture.resolve().await;
    fixture.database.review().await.expect("review answers");
}

/// Removes all finished tasks.
pub(super) async fn remove_history(fixture: &StoreFixture<'_>) {
    for _ in 0..1_000 {
        if !fixture.database.prune(Prunable::History, fixture.now(), 1_000).await.expect("a step answers").more {
            return;
        }
    }
    panic!("there is always more to remove");
}

/// Cancelled before it began or while it runs, expired, or lost for good.
pub async fn a_turn_passes_on_however_its_task_ends(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tasks = fixture.insert((0..6).map(|n| keyed(n).build()).collect()).await;
    let lane = tasks[0].lane.id;
    fixture.advance(10);
    fixture.resolve().await;
    fixture.apply(&tasks[0], Event::Cancel).await;
    // Cancelling a task that is not the first changes nothing.
    fixture.apply(&tasks[2], Event::Cancel).await;
    let running = take(&fixture, lane, &[&tasks[1]]).await.remove(0);
    let stopping = fixture.apply(&running, Event::Cancel).await;
    assert!(claimable(&fixture, lane).await.is_empty(), "it still runs");
    fixture.apply(&stopping, Event::Stopped).await;
    let running = take(&fixture, lane, &[&tasks[3]]).await.remove(0);
    let edit = Edit { expires_at: Some(Some(fixture.now().plus_millis(5))), ..Edit::default() };
    fixture.apply(&tasks[4], Event::Edit(Box::new(edit))).await;
    fixture.apply(&running, fail_for_good(&running)).await;
    fixture.resolve().await;
    fixture.advance(10);
    assert!(fixture.lease(lane, 10).await.is_empty(), "the claim fails the expired task");
    assert_eq!(state_of(&fixture, &tasks[4]).await, State::Failed);
    take(&fixture, lane, &[&tasks[5]]).await;
}
