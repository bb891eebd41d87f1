//! The long poll: answered when there is a task or the wait is over, and never busy between.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{SOON, World, expect_prompt, id_of, in_seconds, seconds_between, shared, worker_id, written};

fn wanting(queue: &str, wait_seconds: u64) -> Value {
    json!({"worker_id": worker_id(), "queues": [queue], "max_tasks": 1, "wait_seconds": wait_seconds})
}

#[tokio::test]
async fn without_a_wait_the_answer_is_immediate() {
    let caller = shared().await;
    let begun = Instant::now();
    assert_eq!(caller.lease(wanting("q", 0)).await, Vec::<Value>::new());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    caller.submit(json!({"type": "t", "queue": "q"})).await;
    eventually("a task is there without waiting", SOON, async || {
        let leases = caller.lease(wanting("q", 0)).await;
        if leases.len() == 1 { Ok(()) } else { Err(format!("{leases:?}")) }
    })
    .await;
}

#[tokio::test]
async fn after_the_wait_the_answer_is_empty() {
    let caller = shared().await;
    for wait in [1, 2] {
        let begun = Instant::now();
        let answer = caller.api.post("/v1/leases", &wanting("q", wait)).await.expect(200);
        assert_eq!(answer["leases"], json!([]));
        let waited = begun.elapsed().as_secs_f64();
        assert!(
            (0.95..5.0).contains(&(waited / f64::from(u32::try_from(wait).expect("small")))),
            "waited {waited} s of {wait}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_worker_is_handed_a_new_task_at_once() {
    let caller = shared().await;
    expect_prompt("a new task", async || {
        let mut behind = Vec::new();
        for _ in 0..9 {
            let worker = caller.apart();
            // Opens its connection, so that only the wait is measured.
            worker.lease(wanting("q", 0)).await;
            let waiting = tokio::spawn(async move { (worker.lease(wanting("q", 30)).await, Instant::now()) });
            // Gives the poll time to arrive; a later poll finds the task waiting, which is prompt
            // too.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
            let submitted = Instant::now();
            let (leases, handed) = waiting.await.expect("the worker ends");
            assert_eq!(leases.iter().map(|lease| id_of(&lease["task"])).collect::<Vec<_>>(), [id]);
            behind.push(handed.saturating_duration_since(submitted).as_secs_f64());
        }
        behind
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_worker_gets_a_task_at_its_time_not_before() {
    let caller = shared().await;
    expect_prompt("a future task", async || {
        let mut behind = Vec::new();
        for n in 0..9 {
            let due = in_seconds(0.3 + 0.1 * f64::from(n));
            let id = caller.submit_id(json!({"type": "t", "queue": "q", "execute_at": written(due)})).await;
            let lease = caller.lease_one("q").await;
            let late = seconds_between(due, in_seconds(0.0));
            assert_eq!(id_of(&lease["task"]), id);
            assert!(late >= 0.0, "handed out {late} s before its time");
            behind.push(late);
        }
        behind
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_waiting_workers_are_each_handed_one() {
    let world = World::start().await;
    let caller = world.caller();
    let workers: Vec<_> = (0..200)
        .map(|_| {
            let worker = caller.clone();
            tokio::spawn(async move { worker.lease(wanting("q", 60)).await })
        })
        .collect();
    world.until_waiting(200).await;
    let tasks = caller.submit_all((0..200).map(|_| json!({"type": "t", "queue": "q"})).collect()).await;
    let submitted = Instant::now();
    let mut seen = BTreeSet::new();
    for worker in workers {
        let leases = worker.await.expect("a worker ends");
        assert_eq!(leases.len(), 1, "each worker is handed one");
        assert!(seen.insert(id_of(&leases[0]["task"])), "a task was handed out twice");
    }
    assert!(submitted.elapsed() < Duration::from_secs(10), "all were handed out after {:?}", submitted.elapsed());
    assert_eq!(seen, tasks.iter().map(id_of).collect());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiting_workers_cost_nothing() {
    let world = World::start().await;
    let caller = world.caller();
    caller.submit(json!({"type": "t", "queue": "elsewhere", "delay_seconds": 3600})).await;
    let waiting = |seconds: u64| {
        let caller = caller.clone();
        async move {
            let workers: Vec<_> = (0..200)
                .map(|_| {
                    let worker = caller.clone();
                    tokio::spawn(async move { worker.lease(wanting("q", seconds)).await })
                })
                .collect();
            for worker in workers {
                assert_eq!(worker.await.expect("a worker ends"), Vec::<Value>::new());
            }
        }
    };
    // Connections are open and caches warm after a first round. Polls that wait longer should then
    // cost about as much as those that do not wait: only the waiting is measured.
    waiting(0).await;
    let before = world.server.processor_time();
    waiting(0).await;
    let polls = world.server.processor_time().saturating_sub(before);
    let before = world.server.processor_time();
    waiting(4).await;
    let waited = world.server.processor_time().saturating_sub(before).saturating_sub(polls);
    assert!(waited < Duration::from_secs(1), "four seconds of waiting took {waited:?} of processor time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_gave_up_waiting_is_handed_nothing() {
    let world = World::start().await;
    let caller = world.caller();
    for _ in 0..5 {
        let gone = caller.apart();
        let poll = tokio::spawn(async move { gone.lease(wanting("q", 30)).await });
        world.until_waiting(1).await;
        poll.abort();
        assert!(poll.await.is_err(), "the poll was given up");
        world.until_waiting(0).await;
    }
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    assert_eq!((id_of(&lease["task"]), &lease["attempt"]), (id, &json!(1)), "the task went to a worker that is gone");
}
