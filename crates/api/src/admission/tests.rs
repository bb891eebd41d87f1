use std::task::Poll;

use axum::http::Method;
use punctual_core::time::Timestamp;
use tokio::task::JoinSet;

use super::*;
use crate::testing::{TestBody, body};

const MIB: usize = 1 << 20;

fn admission(requests: usize, bodies_bytes: usize, waiting: usize) -> Admission {
    let config = ApiConfig {
        requests_in_flight: requests,
        bodies_bytes,
        waiting_workers: waiting,
        body_bytes: MIB,
        batch_body_bytes: 64 * MIB,
        ..ApiConfig::default()
    };
    Admission::new(&config, &Metrics::new(Timestamp::default()))
}

fn request(method: Method, path: &str, length: Option<usize>) -> Request<TestBody> {
    Request::builder().method(method).uri(path).body(body(length, |_| Poll::Ready(None))).unwrap()
}

fn lease() -> Request<TestBody> {
    request(Method::POST, "/v1/leases", Some(10))
}

fn batch(length: usize) -> Request<TestBody> {
    request(Method::POST, "/v1/tasks/batch", Some(length))
}

/// Takes all the body bytes of submissions.
async fn fill(admission: &Admission) -> Vec<Permit> {
    let mut permits = Vec::new();
    for _ in 0..BODY_SHARE {
        permits.push(admission.admit(&batch(64 * MIB)).await.unwrap());
    }
    permits
}

/// How long a request waited for its permit, and until its refusal.
async fn refused_after(admission: &Admission, request: &Request<TestBody>) -> (Duration, Duration) {
    let began = Instant::now();
    let refusal = admission.admit(request).await.err().expect("it is refused");
    let waited = began.elapsed();
    assert_eq!(refusal.problem().await.code(), Code::Overloaded);
    (waited, began.elapsed())
}

#[tokio::test(start_paused = true)]
async fn beyond_the_bound_a_request_waits_and_is_refused() {
    let admission = admission(1, MIB, 1);
    let permit = admission.admit(&lease()).await.unwrap();
    let (waited, refused) = refused_after(&admission, &lease()).await;
    assert_eq!(waited, refused);
    assert!((WAIT_MIN / 2..=WAIT_MIN).contains(&refused), "{refused:?}");
    drop(permit);
    assert!(admission.admit(&lease()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_gets_the_next_permit() {
    let admission = admission(4, MIB, 1);
    let permit = admission.admit(&lease()).await.unwrap();
    let next = lease();
    let (waiting, ()) = tokio::join!(admission.admit(&next), async {
        tokio::task::yield_now().await;
        drop(permit);
    });
    assert!(waiting.is_ok());
}

/// What happens to `count` batches that come together when no body bytes are left.
async fn flood(admission: Admission, count: usize) -> Vec<(Duration, Duration)> {
    let _all_the_bytes = fill(&admission).await;
    let (admission, mut flood) = (Arc::new(admission), JoinSet::new());
    for _ in 0..count {
        let admission = Arc::clone(&admission);
        flood.spawn(async move { refused_after(&admission, &batch(MIB)).await });
    }
    flood.join_all().await
}

#[tokio::test(start_paused = true)]
async fn each_waiter_makes_the_wait_longer() {
    let flood = flood(admission(2_000, 2 * MIB, 1), 1_000).await;
    let took = flood.into_iter().map(|(_, refused)| refused).max().unwrap();
    assert!((900 * WAIT_PER_WAITER..=1_000 * WAIT_PER_WAITER + WAIT_MIN).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_beyond_the_wait_queue_is_refused_late() {
    let flood = flood(admission(2_000, 2 * MIB, 1), 10 * BODY_WAITERS_MAX).await;
    let (waited, outside): (Vec<_>, Vec<_>) = flood.into_iter().partition(|(waited, _)| !waited.is_zero());
    assert_eq!(waited.len(), BODY_WAITERS_MAX);
    assert!(waited.iter().all(|(waited, refused)| waited == refused));
    assert!(
        outside.iter().all(|(_, refused)| *refused >= WAIT_MIN / 2),
        "an immediate refusal invites an immediate retry"
    );
}

#[tokio::test(start_paused = true)]
async fn the_number_of_waiters_is_bounded() {
    let flood = flood(admission(8, 2 * MIB, 1), WAITERS_MAX + 1).await;
    let at_once = flood.iter().filter(|(_, refused)| refused.is_zero()).count();
    assert_eq!(at_once, 1, "the others wait");
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_submissions_leaves_permits_to_the_rest() {
    let admission = admission(4, MIB, 1);
    let submit = || request(Method::POST, "/v1/tasks", Some(10));
    let mut flood = Vec::new();
    for _ in 0..3 {
        flood.push(admission.admit(&submit()).await.unwrap());
    }
    assert!(admission.admit(&submit()).await.is_err() && admission.admit(&batch(10)).await.is_err());
    let read = admission.admit(&request(Method::GET, "/v1/tasks", Some(0))).await.unwrap();
    drop(read);
    assert!(admission.admit(&lease()).await.is_ok());
    drop(flood);
    assert!(admission.admit(&submit()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_gives_its_permit_back() {
    let admission = admission(1, MIB, 1);
    let permit = admission.admit(&lease()).await.unwrap();
    let waiting = admission.wait(&permit, Duration::from_secs(20)).unwrap();
    assert_eq!(permit.wait(), Duration::from_secs(20));
    assert_eq!(admission.workers.gauge.get(), 1);
    let other = admission.admit(&lease()).await.unwrap();
    assert!(admission.wait(&other, Duration::from_secs(1)).is_err(), "the waiting are bounded too");
    drop(waiting);
    assert_eq!(admission.workers.gauge.get(), 0);
    assert!(admission.wait(&other, Duration::from_secs(1)).is_ok());
}

#[tokio::test(start_paused = true)]
async fn bodies_of_a_class_share_bounded_bytes() {
    // Twelve for submissions, four for the rest; and of those a quarter for each.
    let admission = admission(100, 16 * MIB, 1);
    let unknown = || request(Method::POST, "/v1/tasks/batch", None);
    let mut held = vec![admission.admit(&batch(60 * MIB)).await.unwrap(), admission.admit(&unknown()).await.unwrap()];
    held.push(admission.admit(&batch(3 * MIB)).await.unwrap());
    held.push(admission.admit(&batch(2 * MIB)).await.unwrap());
    let refused = admission.admit(&batch(2 * MIB)).await.err().expect("a MiB is left");
    assert!(refused.problem().await.to_wire().detail.contains("limits.bodies_bytes"));
    assert!(admission.admit(&unknown()).await.is_err());
    assert!(admission.admit(&batch(MIB)).await.is_ok());
    assert!(admission.admit(&batch(SMALL_BODY_BYTES)).await.is_ok(), "a small body needs no body bytes");
    let settle = || request(Method::POST, "/v1/leases/settle", Some(2 * MIB));
    let _settling = admission.admit(&settle()).await.unwrap();
    // A route that reads a MiB takes no more than that, whatever is announced.
    for length in [None, Some(9 * MIB)] {
        assert!(admission.admit(&request(Method::POST, "/v1/tasks", length)).await.is_ok(), "{length:?}");
    }
    held.clear();
    assert!(admission.admit(&batch(2 * MIB)).await.is_ok());
}

#[tokio::test]
async fn few_batches_are_parsed_at_once() {
    let admission = admission(1, MIB, 1);
    let huge = admission.parse_permit(100 * PARSED_BYTES_MAX).await;
    let mut next = std::pin::pin!(admission.parse_permit(1));
    tokio::select! {
        biased;
        _ = next.as_mut() => panic!("all bytes are taken"),
        () = std::future::ready(()) => {}
    }
    drop(huge);
    next.await;
}

fn list() -> Request<TestBody> {
    request(Method::GET, "/v1/tasks", Some(0))
}

/// Permits for as many lists as there may be at once.
async fn all_lists(admission: &Admission) -> Vec<Permit> {
    let mut permits = Vec::new();
    while admission.lists.requests.permits.available_permits() > 0 {
        permits.push(admission.admit(&list()).await.unwrap());
    }
    permits
}

#[tokio::test(start_paused = true)]
async fn lists_wait_for_each_other_and_nothing_else_does() {
    let admission = admission(8, MIB, 1);
    let lists = all_lists(&admission).await;
    let (waited, refused) = refused_after(&admission, &list()).await;
    assert!(waited == refused && (WAIT_MAX / 2..=WAIT_MAX).contains(&refused), "{refused:?}");
    for other in [lease(), batch(10), request(Method::GET, "/v1/tasks/task_x", Some(0))] {
        assert!(admission.admit(&other).await.is_ok(), "{} {}", other.method(), other.uri());
    }
    drop(lists);
    assert!(admission.admit(&list()).await.is_ok());
}

/// An answer of this size.
fn answer(bytes: usize) -> Response {
    Response::new(vec![b'x'; bytes].into())
}

#[tokio::test(start_paused = true)]
async fn unread_answers_are_held_against_reads_only() {
    let config = ApiConfig { answers_bytes: 8 * MIB, ..ApiConfig::default() };
    let admission = Admission::new(&config, &Metrics::new(Timestamp::default()));
    let mut unread = Vec::new();
    for _ in 0..2 {
        unread.push(admission.admit(&list()).await.unwrap().count(answer(MIB)));
    }
    let read = || request(Method::GET, "/v1/tasks/task_x", Some(0));
    let refused = admission.admit(&list()).await.err().expect("the tenant has its half");
    assert!(refused.problem().await.to_wire().detail.contains("limits.answers_bytes"));
    assert!(admission.admit(&read()).await.is_err());
    assert!(admission.admit(&batch(MIB)).await.is_ok(), "submissions have room of their own");
    unread.pop();
    assert!(admission.admit(&list()).await.is_ok(), "what is read makes room");
}

#[tokio::test(start_paused = true)]
async fn unread_answers_to_large_writes_are_bounded() {
    let config = ApiConfig { answers_bytes: 8 * MIB, ..ApiConfig::default() };
    let admission = Admission::new(&config, &Metrics::new(Timestamp::default()));
    let unread = admission.admit(&batch(MIB)).await.unwrap().count(answer(3 * MIB));
    assert!(admission.admit(&batch(MIB)).await.is_err());
    assert!(admission.admit(&batch(100)).await.is_ok(), "a small one has a small answer");
    drop(unread);
    assert!(admission.admit(&batch(MIB)).await.is_ok());
}

/// How large the answer to a poll is, is known when its tasks are there.
#[tokio::test(start_paused = true)]
async fn unread_answers_to_polls_are_bounded() {
    let config = ApiConfig { answers_bytes: 8 * MIB, ..ApiConfig::default() };
    let admission = Admission::new(&config, &Metrics::new(Timestamp::default()));
    let poll = || request(Method::POST, "/v1/leases", Some(10));
    let (one, other) = (admission.admit(&poll()).await.unwrap(), admission.admit(&poll()).await.unwrap());
    let _waiting = admission.wait(&one, Duration::from_secs(20)).unwrap();
    one.reserve(3 * MIB).unwrap();
    let unread = one.count(answer(3 * MIB));
    assert!(other.reserve(MIB).is_err());
    other.reserve(100).expect("a small answer has room");
    drop(unread);
    other.reserve(MIB).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_does_not_read_gets_what_has_room() {
    let config = ApiConfig { answers_bytes: 4 * MIB, ..ApiConfig::default() };
    let admission = Admission::new(&config, &Metrics::new(Timestamp::default()));
    let submit = |unread: bool| {
        let mut submit = request(Method::POST, "/v1/tasks", Some(10));
        *submit.version_mut() = Version::HTTP_2;
        if unread {
            submit.extensions_mut().insert(UnreadOnConnection::one());
        }
        submit
    };
    // Small answers count on HTTP/2, where a connection may leave a hundred of them unread.
    let mut unread = Vec::new();
    while let Ok(permit) = admission.admit(&submit(true)).await {
        unread.push(permit.count(answer(1_000)));
        assert!(unread.len() < 4_000, "never refused");
    }
    assert!(unread.len() > 1_000, "{}", unread.len());
    assert!(admission.admit(&submit(false)).await.is_ok(), "who reads is served");
    unread.clear();
    assert!(admission.admit(&submit(true)).await.is_ok());
}
