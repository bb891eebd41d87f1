//! `apply`: its condition, and the fields that it writes.

use std::sync::Arc;

use punctual_core::failure::FailureCause;
use punctual_core::ids::TaskId;
use punctual_core::state::{Change, Event, State};
use punctual_core::store::Applied;
use punctual_core::task::Task;
use punctual_core::trail::Step;
use tokio::task::JoinSet;

use super::{StoreFactory, StoreFixture, WORKER, assert_same, complete, fail, fail_for_good, failure, is_done};
use crate::fixtures::{START, TENANT, at, json, task};

/// Another state, another version, another tenant, another id: nothing changes, and the answer is
/// lost.
pub async fn apply_is_conditional_on_state_version_and_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let waiting = fixture.insert_one(task().queue("waiting").payload("\"as it was\"")).await;
    let running = fixture.running(task().queue("running")).await;
    let queued = fixture.insert_one(task().queue("queued")).await;
    let queued = fixture.dispatch(queued.lane.id, 1).await.pop().unwrap();
    let done = fixture.running(task().queue("done")).await;
    let done_change = fixture.change(&done, complete(Some("1")));
    let done = fixture.apply(&done, complete(Some("1"))).await;
    let dead = fixture.running(task().queue("dead")).await;
    let dead = fixture.apply(&dead, fail_for_good(&dead)).await;

    let good = [
        fixture.change(&waiting, Event::Cancel),
        fixture.change(&running, complete(Some("2"))),
        fixture.change(&queued, Event::GiveBack(at(9))),
        fixture.change(&dead, Event::Redrive(None)),
    ];
    let mut bad: Vec<(TaskId, Change)> = vec![done_change];
    for (id, change) in &good {
        for expected_version in [0, change.expected_version - 1, change.expected_version + 1, u64::MAX / 2] {
            bad.push((*id, change.clone().forged(|fields| fields.expected_version = expected_version)));
        }
        for from in State::ALL.into_iter().filter(|from| *from != change.from) {
            bad.push((*id, change.clone().forged(|fields| fields.from = from)));
        }
        for tenant in ["other", "", "ACME"] {
            bad.push((*id, change.clone().of_tenant(tenant)));
        }
        bad.push((TaskId::new(), change.clone()));
        bad.push((done.id, change.clone()));
    }
    let answers = fixture.store.apply(bad.clone()).await.expect("apply answers");
    assert_eq!(answers.len(), bad.len());
    for (answer, (id, change)) in answers.iter().zip(&bad) {
        assert!(matches!(answer, Applied::Lost), "{id}: {change:?} was applied: {answer:?}");
    }
    for task in [&waiting, &running, &queued, &done, &dead] {
        assert_same(&fixture.get(task).await, task);
    }
    for (number, (id, change)) in good.into_iter().enumerate() {
        let change = (id, if number % 2 == 0 { change.of_tenant(TENANT) } else { change });
        assert!(is_done(&fixture.apply_change(change.clone()).await));
        let once = fixture.find(TENANT, id).await.expect("it is there");
        assert!(matches!(fixture.apply_change(change).await, Applied::Lost), "a change was applied twice");
        assert_same(&fixture.find(TENANT, id).await.expect("it is there"), &once);
    }
}

/// If many callers settle one run, one succeeds.
pub async fn apply_is_won_by_one(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task()).await;
    let mut settlers = JoinSet::new();
    for number in 0..30 {
        let store = Arc::clone(&fixture.store);
        let event = if number % 2 == 0 { complete(Some(&number.to_string())) } else { fail(&running) };
        let change = fixture.change(&running, event);
        settlers.spawn(async move {
            let answer = store.apply(vec![change]).await.expect("apply answers").pop().expect("one answer");
            is_done(&answer).then_some(number)
        });
    }
    let winners: Vec<i32> = settlers.join_all().await.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1, "{winners:?} all won");
    let settled = fixture.get(&running).await;
    assert_eq!(settled.position.version, running.position.version + 1);
    let result = settled.result.as_ref().map(|result| result.get().to_owned());
    assert_eq!(result, (winners[0] % 2 == 0).then(|| winners[0].to_string()), "the winner's result is kept");
}

/// Counters, due instant, hold, result, instants and trail are as the change says; other fields are
/// unchanged.
pub async fn apply_writes_every_field_of_the_change(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task()).await;
    fixture.advance(10);
    let lost = Event::Fail(failure(&running, FailureCause::Lost, true));
    let change = fixture.change(&running, lost.clone());
    let waiting = fixture.apply(&running, lost).await;
    assert_eq!((waiting.state(), waiting.position.version), (State::Pending, 4));
    assert_eq!((waiting.position.attempts, waiting.position.crashes), (1, 1));
    assert_eq!((waiting.due_at, waiting.execute_at), (at(1_010), START));
    assert_eq!((waiting.hold.as_ref(), waiting.completed_at), (None, None));
    assert_eq!(
        (waiting.worker.as_deref(), waiting.started_at),
        (Some(WORKER), Some(START)),
        "the last worker, and when it ran"
    );
    let mut trail = running.trail.clone();
    trail.extend(&change.1.trail);
    assert_eq!(waiting.trail, trail);
    assert_eq!(waiting.body, running.body);
    let (error_at, error) = waiting.trail.last_error().expect("it failed");
    assert_eq!((error_at, error.code.as_ref(), error.message.as_ref()), (at(10), "boom", "it bröke 🧨"));

    let given_back = fixture.insert_one(task().queue("other")).await;
    let queued = fixture.dispatch(given_back.lane.id, 1).await.pop().unwrap();
    let given_back = fixture.apply(&queued, Event::GiveBack(at(77))).await;
    assert_eq!((given_back.position.attempts, given_back.position.crashes), (0, 0));
    assert_eq!((given_back.due_at, given_back.hold.as_ref()), (at(77), None));

    fixture.advance(1_000);
    let again = fixture.lease(running.lane.id, 1).await.pop().expect("its retry is due");
    let done = fixture.apply(&again, complete(Some("{\"sum\": 12.50}"))).await;
    assert_eq!((done.state(), done.completed_at), (State::Completed, Some(at(1_010))));
    assert_eq!(done.result, Some(json("{\"sum\": 12.50}")));
    assert_eq!((done.position.attempts, done.position.crashes, done.hold.as_ref()), (2, 1, None));
    assert_eq!((done.created_at, done.execute_at, done.started_at), (START, START, Some(at(1_010))));
}

/// A run that is asked to stop stays with its worker until it ends, and then is cancelled whatever
/// its outcome.
pub async fn apply_leaves_the_hold_of_a_run_asked_to_stop(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let outcomes: [fn(&Task) -> Event<'static>; 4] =
        [|_| complete(Some("1")), fail, |_| Event::GiveBack(START), |_| Event::Stopped];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let running = fixture.running(task().queue(&number.to_string())).await;
        let settle_by_the_worker = fixture.change(&running, complete(None));
        let asked = fixture.apply(&running, Event::Cancel).await;
        assert_eq!((asked.state(), asked.position.version), (State::Running, running.position.version + 1));
        assert!(asked.position.cancel_requested);
        assert_eq!((&asked.hold, &asked.worker), (&running.hold, &running.worker));
        assert_eq!(asked.position.attempts, 1);
        assert!(!is_done(&fixture.apply_change(settle_by_the_worker).await), "it was decided before the request");

        let cancelled = fixture.apply(&asked, outcome(&asked)).await;
        assert_eq!((cancelled.state(), cancelled.completed_at), (State::Cancelled, Some(fixture.now())));
        assert_eq!((cancelled.hold.as_ref(), cancelled.result.as_ref()), (None, None));
        assert_eq!(cancelled.trail.last().unwrap().step, Step::Cancelled);
    }
}

/// The answer has the lane and due instant of a task that waits now, and neither for other tasks.
pub async fn apply_returns_where_a_task_waits(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let run = |queue: &'static str| fixture.running(task().queue(queue));
    let waits = async |task: &Task, event: Event<'static>| match fixture.apply_change(fixture.change(task, event)).await
    {
        Applied::Done(place) => {
            let after = fixture.get(task).await;
            let expected = (after.state() == State::Pending).then(|| (after.lane.clone(), after.due_at));
            assert_eq!(place, expected, "of a task in {:?}", after.state());
            place.map(|(_, due_at)| due_at)
        }
        Applied::Lost | Applied::TooManyLanes(_) => panic!("lost"),
    };
    let failed = run("failed").await;
    assert_eq!(waits(&failed, fail(&failed)).await, Some(at(1_000)));
    assert_eq!(waits(&fixture.get(&failed).await, Event::RunNow).await, Some(START));
    assert_eq!(waits(&run("given back").await, Event::GiveBack(at(5))).await, Some(at(5)));
    let edited = fixture.insert_one(task().queue("edited")).await;
    let edit = punctual_core::task::Edit { execute_at: Some(at(9)), priority: Some(0), ..Default::default() };
    assert_eq!(waits(&edited, Event::Edit(Box::new(edit))).await, Some(at(9)));
    let dead = run("dead").await;
    assert_eq!(waits(&dead, fail_for_good(&dead)).await, None);
    fixture.advance(3);
    assert_eq!(waits(&fixture.get(&dead).await, Event::Redrive(None)).await, Some(at(3)));
    assert_eq!(waits(&run("done").await, complete(None)).await, None);
    assert_eq!(waits(&run("asked").await, Event::Cancel).await, None);
    assert_eq!(waits(&fixture.insert_one(task().queue("cancelled")).await, Event::Cancel).await, None);
    assert_eq!(waits(&fixture.insert_one(task().queue("expired")).await, Event::Expire).await, None);
}

/// A change that was decided by a hold is lost if the hold was extended or detached since.
pub async fn apply_spares_a_hold_that_was_extended_since(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let judged = |task: &Task| {
        let (id, change) = fixture.change(task, Event::Fail(failure(task, FailureCause::Lost, true)));
        (id, change.expecting_hold(task.hold.as_ref()))
    };
    let running = fixture.running(task()).await;
    fixture.advance(10);
    let verdict = judged(&running);
    fixture.beat(&running, running.position.version, None, None).await.expect("its lease runs");
    let extended = fixture.get(&running).await;
    assert!(!is_done(&fixture.apply_change(verdict).await), "it was taken from a worker that sends heartbeats");
    assert_same(&fixture.get(&running).await, &extended);
    assert!(is_done(&fixture.apply_change(judged(&extended)).await), "the hold has not changed since");
}
