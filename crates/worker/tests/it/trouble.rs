//! A store that fails while runs start and end.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::run_end::RunEnd;
use punctual_core::state::State;
use punctual_core::store::Store;
use punctual_testkit::fixtures;
use punctual_testkit::sink::{Sink, SinkAnswer};

use crate::faulty::{Fate, Faulty};
use crate::harness::Harness;
use crate::support::AMPLE;

pub fn faulty() -> (Harness, Arc<Faulty>) {
    let mut harness = Harness::open();
    let faulty = Arc::new(Faulty::new(Arc::clone(&harness.deps.store)));
    harness.deps.store = Arc::clone(&faulty) as Arc<dyn Store>;
    (harness, faulty)
}

#[tokio::test]
async fn many_runs_start_and_end_in_few_calls() {
    let ((harness, faulty), sink) = (faulty(), Sink::start());
    harness.submit(fixtures::task().push(&sink.url("")).times(100)).await;
    let worker = harness.start();
    sink.wait_for("/hook", 100, AMPLE).await;
    harness.stop(worker).await;
    assert_eq!(*faulty.started.lock().unwrap(), [64, 36], "waiting messages start together, up to the bound");
    let writes = faulty.applied.lock().unwrap().clone();
    assert_eq!(writes.iter().sum::<usize>(), 100);
    assert!(writes.len() < 100, "{writes:?}");
}

#[tokio::test]
async fn a_failing_call_to_the_store_is_retried() {
    let ((harness, faulty), sink) = (faulty(), Sink::start());
    faulty.starts.lock().unwrap().extend([Fate::Refused; 3]);
    faulty.applies.lock().unwrap().extend([Fate::Refused; 3]);
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await;
    harness.until(ids[0], State::Completed).await;
    harness.stop(worker).await;
    assert_eq!(sink.hits("/hook").len(), 1);
    assert_eq!(harness.deps.stats.ended(RunEnd::Completed), 1);
}

#[tokio::test]
async fn a_lost_answer_of_the_store_does_no_harm() {
    let ((harness, faulty), sink) = (faulty(), Sink::start());
    faulty.applies.lock().unwrap().push_back(Fate::Unanswered);
    let worker = harness.start();
    let ids = harness.submit(vec![fixtures::task().push(&sink.url("")).build()]).await;
    harness.until(ids[0], State::Completed).await;
    harness.stop(worker).await;
    assert_eq!(harness.get(ids[0]).await.trail.runs(ids[0]).len(), 1);
    harness.until_idle(&sink.url("")).await;
}

#[tokio::test]
async fn a_corrupt_task_does_not_block_its_batch() {
    let ((harness, faulty), sink) = (faulty(), Sink::start());
    let ids = harness.submit(fixtures::task().push(&sink.url("")).times(10)).await;
    let (no_start, no_end) = (ids[3], ids[4]);
    faulty.starts.lock().unwrap().extend([Fate::Corrupt(no_start); 100]);
    faulty.applies.lock().unwrap().extend([Fate::Corrupt(no_end); 100]);
    let worker = harness.start();
    for id in ids.iter().filter(|id| ![no_start, no_end].contains(id)) {
        harness.until(*id, State::Completed).await;
    }
    harness.until_idle(&sink.url("")).await;
    harness.stop(worker).await;
    assert_eq!(
        (harness.get(no_start).await.state(), harness.get(no_end).await.state()),
        (State::Queued, State::Running)
    );
}

#[tokio::test]
async fn shutdown_does_not_wait_for_a_hanging_store() {
    let ((mut harness, faulty), sink) = (faulty(), Sink::start());
    sink.script("/hook", [SinkAnswer::status(200), SinkAnswer::hang()]);
    harness.config.drain = Duration::from_millis(50);
    harness.config.flush = Duration::from_millis(50);
    harness.submit(fixtures::task().push(&sink.url("")).times(2)).await;
    faulty.applies.lock().unwrap().extend([Fate::Hangs; 100]);
    let worker = harness.start();
    sink.wait_for("/hook", 2, AMPLE).await;
    let report = tokio::time::timeout(AMPLE, harness.stop(worker)).await.expect("the worker ends");
    assert_eq!(report.given_back, 0);
}
