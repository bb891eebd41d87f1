//! `extend`: heartbeats, and which tokens may send them.

use punctual_core::json::Json;
use punctual_core::state::{Event, State};
use punctual_core::store::{Beat, Claim};
use punctual_core::task::{Hold, Task};

use super::{
    GRACE_MILLIS, LEASE_MILLIS, StoreFactory, StoreFixture, WORKER, assert_same, complete, fail, fail_for_good, worker,
};
use crate::fixtures::{TIMEOUT_MILLIS, at, json, task};

/// Only the token of the current run extends a hold. A refused heartbeat changes nothing.
pub async fn extend_needs_the_token(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let old = fixture.running(task().queue("taken over")).await;
    let waiting_again = fixture.apply(&old, fail(&old)).await;
    assert!(beat(&fixture, &waiting_again, old.position.version).await.is_none(), "no worker holds it");
    fixture.advance(1_000);
    let taken_over = fixture.lease(old.lane.id, 1).await.pop().expect("its retry is due");
    let asked = fixture.running(task().queue("asked")).await;
    let asked = fixture.apply(&asked, Event::Cancel).await;
    let queued = fixture.insert_one(task().queue("queued")).await;
    let queued = fixture.dispatch(queued.lane.id, 1).await.pop().unwrap();
    let waiting = fixture.insert_one(task().queue("waiting")).await;
    let done = fixture.running(task().queue("done")).await;
    let done = fixture.apply(&done, complete(None)).await;
    let dead = fixture.running(task().queue("dead")).await;
    let dead = fixture.apply(&dead, fail_for_good(&dead)).await;
    fixture.advance(10);

    for task in [&taken_over, &asked, &queued, &waiting, &done, &dead] {
        for token in (0..task.position.version + 3).chain([u64::MAX / 2]) {
            if (task.id, token) != (taken_over.id, taken_over.position.version) {
                assert!(beat(&fixture, task, token).await.is_none(), "token {token} extends {:?}", task.position);
            }
        }
        assert_same(&fixture.get(task).await, task);
    }
    let elsewhere = Beat {
        tenant: "other".into(),
        id: taken_over.id,
        token: taken_over.position.version,
        progress: Some(json("1")),
        checkpoint: Some(json("1")),
        detach: false,
    };
    let unknown =
        Beat { id: punctual_core::ids::TaskId::new(), tenant: taken_over.tenant().into(), ..elsewhere.clone() };
    let good = Beat { tenant: taken_over.tenant().into(), progress: None, checkpoint: None, ..elsewhere.clone() };
    let answers =
        fixture.store.extend(vec![elsewhere.clone(), unknown, good, elsewhere]).await.expect("extend answers");
    let extended: Vec<bool> = answers.iter().map(Option::is_some).collect();
    assert_eq!(extended, [false, false, true, false], "answers are in order, and another tenant extends nothing");
    let after = fixture.get(&taken_over).await;
    assert_eq!((after.hold.as_ref(), after.progress.as_ref()), (answers[2].as_ref(), None));
}

/// A hold that has run out is not extended, even before the reaper takes the task back. An outcome
/// is still accepted.
pub async fn extend_never_revives_a_hold_that_ran_out(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let leased = [fixture.running(task().queue("a")).await, fixture.running(task().queue("b")).await];
    let started = [started(&fixture, "c").await, started(&fixture, "d").await];
    for [in_time, late] in [leased, started] {
        let ends = late.hold.as_ref().expect("a running task is held").expires_at;
        assert_eq!(in_time.hold.as_ref().map(|hold| hold.expires_at), Some(ends));
        fixture.clock.advance_millis(ends.millis_since(fixture.now()) - 1);
        let hold = detach(&fixture, &in_time).await.expect("its last millisecond is not over");
        assert!(hold.node.is_none(), "{hold:?}");
        let extended = fixture.get(&in_time).await;
        assert_eq!((extended.hold, extended.progress), (Some(hold), Some(json("1"))));
        for passed in [1, 1, 1_000] {
            fixture.advance(passed);
            assert!(detach(&fixture, &late).await.is_none(), "revived at {}, when it ended {ends}", fixture.now());
            assert_same(&fixture.get(&late).await, &late);
            assert!(fixture.overdue(vec![]).await.contains(&late.id), "the reaper does not find it");
        }
        assert_eq!(fixture.apply(&late, complete(None)).await.state(), State::Completed);
    }
}

/// A heartbeat extends by the lease, and never past the deadline of the run.
pub async fn extend_never_passes_the_deadline(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let millis = |millis: u64| i64::try_from(millis).unwrap();
    let running = fixture.running(task()).await;
    let token = running.position.version;
    let mut expires_at = running.hold.as_ref().unwrap().expires_at;
    for passed in 1..12 {
        fixture.advance(25_000);
        let hold = fixture.beat(&running, token, None, None).await.expect("it holds the task");
        assert_eq!(hold.expires_at, at((passed * 25_000 + millis(LEASE_MILLIS)).min(millis(TIMEOUT_MILLIS))));
        assert!(hold.expires_at >= expires_at, "a heartbeat shortened a hold");
        assert_eq!(hold.deadline_at, running.hold.as_ref().unwrap().deadline_at);
        assert_eq!((hold.worker.as_str(), hold.since, hold.lease_millis), (WORKER, at(0), LEASE_MILLIS));
        assert_eq!(fixture.get(&running).await.hold, Some(hold.clone()));
        expires_at = hold.expires_at;
    }
    fixture.advance(24_999);
    let last = fixture.beat(&running, token, None, None).await.expect("it holds the task");
    assert_eq!(last.expires_at, last.deadline_at);
    fixture.advance(1);
    assert!(fixture.beat(&running, token, None, None).await.is_none(), "extended at its deadline");

    let short = fixture.insert_one(task().queue("short").due(fixture.now()).timeout_millis(1_000)).await;
    let claim = Claim { lanes: vec![(short.lane.id, 1)], limit: 1, claimant: worker(WORKER) };
    let short = fixture.claim(claim).await.tasks.pop().expect("it is due");
    let hold = short.hold.as_ref().unwrap();
    assert_eq!(hold.deadline_at, fixture.now().plus_millis(1_000), "the timeout is shorter than the lease");
    assert!(hold.expires_at <= hold.deadline_at, "a hold begins within its deadline: {hold:?}");

    let pushed = fixture.insert_one(task().queue("pushed").due(fixture.now())).await;
    let queued = fixture.dispatch(pushed.lane.id, 1).await.pop().unwrap();
    let pushed = fixture.start(queued.id, queued.position.version).await.expect("it is queued");
    let before = pushed.hold.clone().unwrap();
    fixture.advance(TIMEOUT_MILLIS + GRACE_MILLIS - 1);
    let hold = fixture.beat(&pushed, pushed.position.version, None, None).await.expect("it holds the task");
    assert!(
        hold.expires_at >= before.expires_at && hold.expires_at <= before.deadline_at,
        "{before:?} became {hold:?}"
    );
}

/// A heartbeat is not a step of the task: version, trail and all other fields stay.
pub async fn extend_changes_no_version(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut running = fixture.running(task()).await;
    for number in 0..5 {
        fixture.advance(100);
        let progress = number.to_string();
        running.hold = fixture.beat(&running, running.position.version, Some(&progress), None).await;
        assert!(running.hold.is_some());
        running.progress = Some(json(&progress));
        assert_same(&fixture.get(&running).await, &running);
    }
    let done = fixture.apply(&running, complete(None)).await;
    assert_eq!(done.position.version, running.position.version + 1);
}

/// The next run gets them after a failure, a give-back, a loss and a re-drive.
pub async fn extend_keeps_progress_and_checkpoint_for_the_next_attempt(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task()).await;
    assert_eq!((running.progress.as_ref(), running.checkpoint.as_ref()), (None, None));
    let token = running.position.version;
    let large = format!("\"{}\"", "é".repeat(32 * 1_024 - 1));
    fixture.beat(&running, token, Some("0.25"), Some(&large)).await.expect("it holds the task");
    fixture.beat(&running, token, Some("{\"done\": 2}"), None).await.expect("it holds the task");
    fixture.beat(&running, token, None, None).await.expect("it holds the task");
    let expect = |task: &Task, progress: &str, checkpoint: &str| {
        assert_eq!(task.progress.as_ref().map(Json::get), Some(progress));
        assert!(task.checkpoint.as_ref().map(Json::get) == Some(checkpoint), "in {:?}", task.state());
    };
    expect(&fixture.get(&running).await, "{\"done\": 2}", &large);

    let waiting = fixture.apply(&running, fail(&running)).await;
    expect(&waiting, "{\"done\": 2}", &large);
    fixture.advance(1_000);
    let second = fixture.lease(running.lane.id, 1).await.pop().expect("its retry is due");
    expect(&second, "{\"done\": 2}", &large);
    fixture.beat(&second, second.position.version, None, Some("\"step 2\"")).await.expect("it holds the task");
    fixture.apply(&fixture.get(&second).await, Event::GiveBack(fixture.now())).await;
    let queued = fixture.dispatch(running.lane.id, 1).await.pop().expect("it was given back");
    let third = fixture.start(queued.id, queued.position.version).await.expect("it is queued");
    expect(&third, "{\"done\": 2}", "\"step 2\"");
    let dead = fixture.apply(&third, fail_for_good(&third)).await;
    expect(&dead, "{\"done\": 2}", "\"step 2\"");
    fixture.apply(&dead, Event::Redrive(None)).await;
    let fourth = fixture.lease(running.lane.id, 1).await.pop().expect("it was re-driven");
    expect(&fourth, "{\"done\": 2}", "\"step 2\"");
}

/// A run that was detached from its node is not lost with the node, and keeps its deadline; the
/// next run begins on a node again.
pub async fn extend_can_detach_a_run_from_its_node(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let waiting = fixture.insert_one(task()).await;
    let queued = fixture.dispatch(waiting.lane.id, 1).await.pop().unwrap();
    let running = fixture.start(queued.id, queued.position.version).await.expect("it was queued");
    let node = running.hold.as_ref().and_then(|hold| hold.node).expect("a node began it");
    assert_eq!(fixture.overdue(vec![node]).await, [running.id]);
    let beat = Beat {
        tenant: running.tenant().into(),
        id: running.id,
        token: running.position.version,
        progress: None,
        checkpoint: None,
        detach: true,
    };
    let stale = Beat { token: queued.position.version, ..beat.clone() };
    let foreign = Beat { tenant: "other".into(), ..beat.clone() };
    let refused = fixture.store.extend(vec![stale, foreign]).await.expect("extend answers");
    assert!(refused.iter().all(Option::is_none));
    assert_eq!(fixture.overdue(vec![node]).await, [running.id], "a beat without the token detached it");

    let hold = fixture.store.extend(vec![beat]).await.expect("extend answers").remove(0).expect("the token is good");
    let until = hold.since.plus_millis(i64::try_from(TIMEOUT_MILLIS).unwrap());
    assert_eq!((hold.node, hold.expires_at, hold.deadline_at), (None, until, until), "the timeout, without the grace");
    let again = fixture.beat(&running, running.position.version, None, None).await.expect("the token is good");
    assert_eq!(again.node, None, "a later heartbeat attaches nothing");
    let detached = fixture.get(&running).await;
    assert_eq!((detached.hold.as_ref(), detached.position), (Some(&again), running.position));
    assert!(fixture.overdue(vec![node]).await.is_empty(), "the death of its node ended it");
    let fixture = fixture.reopen().await;
    assert_same(&fixture.get(&running).await, &detached);
    assert!(fixture.overdue(vec![node]).await.is_empty(), "the restart of its node ended it");
    fixture.advance(TIMEOUT_MILLIS + 1);
    assert_eq!(fixture.overdue(Vec::new()).await, [running.id], "it still has a deadline");

    fixture.apply(&detached, Event::GiveBack(fixture.now())).await;
    let queued = fixture.dispatch(waiting.lane.id, 1).await.pop().expect("it was given back");
    let next = fixture.start(queued.id, queued.position.version).await.expect("it is queued");
    assert_eq!(next.hold.and_then(|hold| hold.node), Some(fixture.node));
}

async fn started(fixture: &StoreFixture<'_>, queue: &str) -> Task {
    let waiting = fixture.insert_one(task().queue(queue)).await;
    let queued = fixture.dispatch(waiting.lane.id, 1).await.pop().expect("it is due");
    fixture.start(queued.id, queued.position.version).await.expect("it is queued")
}

/// A heartbeat from the holder of `task` with every field set.
async fn detach(fixture: &StoreFixture<'_>, task: &Task) -> Option<Hold> {
    let beat = Beat {
        tenant: task.tenant().into(),
        id: task.id,
        token: task.position.version,
        progress: Some(json("1")),
        checkpoint: Some(json("1")),
        detach: true,
    };
    fixture.store.extend(vec![beat]).await.expect("extend answers").remove(0)
}

async fn beat(fixture: &StoreFixture<'_>, task: &Task, token: u64) -> Option<Hold> {
    fixture.beat(task, token, Some("\"stale\""), Some("\"stale\"")).await
}
