//! `start`: how a run that came through a broker begins.

use std::sync::Arc;

use punctual_core::ids::TaskId;
use punctual_core::state::{Event, State};
use punctual_core::store::Start;
use punctual_core::task::Task;
use punctual_core::trail::{Actor, Step};
use tokio::task::JoinSet;

use super::{GRACE_MILLIS, StoreFactory, StoreFixture, WORKER, assert_same, complete, fail_for_good, ids};
use crate::fixtures::{TIMEOUT_MILLIS, at, task};

/// A task that is queued at that version starts; any other task is left alone and answers none.
pub async fn start_begins_what_is_queued_at_that_version(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().push("http://a.test:80").times(8)).await;
    let queued = fixture.dispatch(stored[0].lane.id, 6).await;
    let running = fixture.start(queued[0].id, 2).await.expect("it is queued");
    let ended = fixture.start(queued[1].id, 2).await.expect("it is queued");
    let ended = fixture.apply(&ended, complete(None)).await;
    let given_back = fixture.apply(&queued[2], Event::GiveBack(at(60_000))).await;
    let cancelled = fixture.apply(&queued[3], Event::Cancel).await;
    let dead = fixture.start(queued[4].id, 2).await.expect("it is queued");
    let dead = fixture.apply(&dead, fail_for_good(&dead)).await;
    let (waiting, still_queued) = (fixture.get(&stored[6]).await, fixture.get(&queued[5]).await);

    let untouched: [&Task; 7] = [&running, &ended, &given_back, &cancelled, &dead, &waiting, &still_queued];
    let mut attempts: Vec<(TaskId, u64)> = untouched
        .iter()
        .flat_map(|task| [0, 1, 2, 3, 4, u64::MAX >> 1].map(|version| (task.id, version)))
        .filter(|attempt| *attempt != (still_queued.id, 2))
        .collect();
    attempts.push((TaskId::new(), 2));
    let starts = attempts.iter().map(|(id, version)| begin(*id, *version)).collect();
    let answers = fixture.store.start(starts).await.expect("start answers");
    assert_eq!(answers.len(), attempts.len());
    for (answer, attempt) in answers.iter().zip(&attempts) {
        assert!(answer.is_none(), "{attempt:?} was started");
    }
    for task in untouched {
        assert_same(&fixture.get(task).await, task);
    }

    // Valid and invalid starts in one call are answered in order, and the second start of one task
    // comes too late.
    let starts = vec![begin(waiting.id, 1), begin(still_queued.id, 2), begin(still_queued.id, 2), begin(ended.id, 2)];
    let answers = fixture.store.start(starts).await.expect("start answers");
    let started: Vec<_> = answers.iter().map(|answer| answer.as_ref().map(|task| task.id)).collect();
    assert_eq!(started, [None, Some(still_queued.id), None, None]);
}

/// The worker gets the whole task, and holds it for the task's timeout and the grace.
pub async fn start_gives_the_whole_task(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert_one(super::insert::full().timeout_millis(TIMEOUT_MILLIS)).await;
    let queued = fixture.dispatch(stored.lane.id, 1).await.pop().expect("it is due");
    fixture.advance(25);
    let started = fixture.start(stored.id, queued.position.version).await.expect("it is queued");
    assert_eq!((started.state(), started.position.version, started.position.attempts), (State::Running, 3, 1));
    assert_eq!(started.body, stored.body);
    assert_eq!((started.worker.as_deref(), started.started_at), (Some(WORKER), Some(at(25))));
    let hold = started.hold.as_ref().expect("it is held");
    assert_eq!((hold.worker.as_str(), hold.node, hold.since), (WORKER, Some(fixture.node), at(25)));
    assert_eq!(hold.expires_at, at(25 + i64::try_from(TIMEOUT_MILLIS + GRACE_MILLIS).unwrap()));
    assert!(hold.deadline_at >= hold.expires_at, "{hold:?}");
    let step = started.trail.last().unwrap();
    assert_eq!((step.at, step.version, step.to), (at(25), 3, State::Running));
    assert_eq!((step.step, step.actor), (Step::Started { attempt: 1 }, Actor::Worker(WORKER.into())));
    assert!(started.trail.as_bytes().starts_with(queued.trail.as_bytes()), "the trail lost its beginning");
    assert_same(&fixture.get(&stored).await, &started);
}

/// A message that was delivered to many workers starts one run.
pub async fn start_is_won_by_one(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(40)).await;
    let queued = fixture.dispatch(stored[0].lane.id, 40).await;
    let mut starters = JoinSet::new();
    for number in 0..10 {
        let store = Arc::clone(&fixture.store);
        let mut starts: Vec<Start> = queued.iter().map(|task| begin(task.id, task.position.version)).collect();
        starts.rotate_left(number * 4);
        starters.spawn(async move {
            let answers = store.start(starts).await.expect("start answers");
            answers.into_iter().flatten().map(|task| task.id).collect::<Vec<_>>()
        });
    }
    let mut started = starters.join_all().await.concat();
    started.sort_unstable();
    assert_eq!(started, ids(&stored), "each starts once");
}

fn begin(id: TaskId, version: u64) -> Start {
    Start { id, version, worker: WORKER.into(), grace_millis: GRACE_MILLIS }
}

/// No run starts past its `expires_at`: a task that expired in the broker fails.
pub async fn start_fails_what_has_expired(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert_one(task().push("http://a.test:80").expires_at(at(1_000))).await;
    let queued = fixture.dispatch(stored.lane.id, 1).await.pop().expect("it is due");
    fixture.advance(1_001);
    assert!(fixture.start(queued.id, queued.position.version).await.is_none(), "it was started past its expiry");
    let failed = fixture.get(&queued).await;
    assert_eq!((failed.state(), failed.position.version), (State::Failed, queued.position.version + 1));
    assert_eq!(failed.trail.last().map(|entry| entry.step), Some(Step::Expired));
}
