//! The Rust client against the real program.

use std::collections::BTreeMap;

use punctual_client::http::{Client, ClientError, Failure};
use punctual_client::lease::WorkerError;
use punctual_client::{LeaseRequest, NewTask, Seconds, Status};

use crate::it::world::{World, worker_id};

fn json(text: &str) -> punctual_core::json::Json {
    punctual_core::json::Json::parse(text).expect("JSON")
}

fn wanted(most: i64) -> LeaseRequest {
    LeaseRequest {
        worker_id: worker_id(),
        queues: Some(vec!["q".to_owned()]),
        max_tasks: Some(most),
        wait_seconds: Some(Seconds(30.0)),
        ..LeaseRequest::default()
    }
}

fn task() -> NewTask {
    NewTask { queue: Some("q".to_owned()), payload: Some(json(r#"{"a": 1.0}"#)), ..NewTask::of_type("t") }
}

#[tokio::test]
async fn the_client_makes_every_call_of_a_worker() {
    let world = World::start().await;
    let client = Client::new(world.server.url()).expect("an address").tenant("acme").expect("a tenant");
    let submitted = client.submit(NewTask { idempotency_key: Some("k".to_owned()), ..task() }).await.expect("taken");
    assert!(!submitted.replayed);
    let again = client.submit(NewTask { idempotency_key: Some("k".to_owned()), ..task() }).await.expect("known");
    assert!(again.replayed && again.task.task_id == submitted.task.task_id);
    let other = client.submit(NewTask { idempotency_key: Some("k".to_owned()), ..NewTask::of_type("t") }).await;
    assert_eq!(other.expect_err("another content").code(), Some("idempotency_key_reused"));
    let labelled = NewTask { metadata: Some(BTreeMap::from([("team".to_owned(), "a".to_owned())])), ..task() };
    let items = client.submit_batch(vec![task(), labelled, NewTask::of_type("not a type")]).await.expect("taken");
    assert_eq!(items.iter().map(|item| item.status).collect::<Vec<_>>(), [201, 201, 422]);

    let leases = client.lease(&wanted(3)).await.expect("leased");
    let [first, second, third] = leases.as_slice() else { panic!("{leases:#?}") };
    assert_eq!(first.task.payload.get(), r#"{"a": 1.0}"#);
    let beat = client.heartbeat(first, Some(json("0.5")), None).await.expect("the run continues");
    assert!(beat.lease_expires_at.is_some_and(|until| until >= first.lease_expires_at));
    let done = client.complete(first, Some(json(r#"{"pages": 12}"#))).await.expect("completed");
    assert_eq!(
        (done.status, done.result.as_ref().map(punctual_core::json::Json::get)),
        (Status::Completed, Some(r#"{"pages": 12}"#))
    );
    let error = WorkerError { code: Some("no_such_month".to_owned()), message: None, details: None };
    let dead =
        client.fail(second, Failure { error: Some(error), is_final: true, retry_after: None }).await.expect("failed");
    assert_eq!(dead.status, Status::DeadLettered);
    let back = client.release(third).await.expect("given back");
    assert_eq!((back.status, back.retry_count), (Status::Pending, 0));
    let late = client.complete(third, None).await.expect_err("the worker has lost the lease");
    assert_eq!((late.code(), late.status(), late.is_retryable()), (Some("stale_token"), Some(409), false));
    assert_eq!(client.get(third.task.task_id).await.expect("there").status, Status::Pending);
}

#[tokio::test]
async fn faults_of_a_request_are_reported_in_full() {
    let world = World::start().await;
    let client = Client::new(world.server.url()).expect("an address");
    let Err(ClientError::Refused(problem)) =
        client.submit(NewTask { queue: Some(String::new()), ..NewTask::of_type("") }).await
    else {
        panic!("it is not refused")
    };
    assert_eq!((problem.status, problem.code.as_str()), (422, "invalid_request"));
    assert_eq!(problem.errors.iter().map(|fault| fault.pointer.as_str()).collect::<Vec<_>>(), ["/type", "/queue"]);
}
