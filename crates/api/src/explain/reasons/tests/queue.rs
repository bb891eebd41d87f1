//! A pause of its queue, and the limits.

use super::*;

#[test]
fn a_pause_of_its_queue() {
    let until = NOW.plus_millis(5_000);
    let pause = Pause { since: NOW, by: "client".into(), reason: Some("because".into()), until: Some(until) };
    let mut facts = pulled();
    facts.queue.pause = Some(pause.clone());
    let expected = json!({
        "code": "queue_paused",
        "message": "queue mail was paused by client at 2026-05-22T18:00:00.000Z, until 2026-05-22T18:00:05.000Z: because",
        "since": "2026-05-22T18:00:00.000Z",
        "until": "2026-05-22T18:00:05.000Z",
        "by": "client",
        "reason": "because",
        "queue": "mail",
    });
    assert_eq!(shown(&facts), (expected, Some(5_000)));
    facts.queue.pause = Some(Pause { until: None, reason: None, ..pause.clone() });
    let (reason, eta) = shown(&facts);
    assert!(reason["message"].as_str().unwrap().ends_with(", until it is resumed"), "{reason}");
    assert_eq!((reason.get("until"), eta), (None, None));
    facts.queue.pause = Some(Pause { until: Some(NOW), ..pause });
    assert_eq!(codes(&facts), ["due_waiting_for_worker"], "it is over");
}

#[test]
fn a_pause_that_ends_before_its_time_does_not_count() {
    let pause = |seconds: i64| {
        let until = Some(NOW.plus_millis(1_000 * seconds));
        let mut facts = Facts::of(task(State::Pending, 10_000, Route::Pull), NOW);
        facts.queue.pause = Some(Pause { since: NOW, by: "client".into(), reason: None, until });
        let explained = explain(&facts);
        (codes(&facts), explained.eta.map(|eta| eta.millis_since(NOW)))
    };
    assert_eq!(pause(10), (vec!["not_due_yet".to_owned()], Some(10_000)));
    assert_eq!(pause(20), (vec!["not_due_yet".to_owned(), "queue_paused".to_owned()], Some(20_000)));
}

#[test]
fn the_limit_of_its_concurrency_key() {
    let mut facts = Facts { held_of_key: 2, ..pulled() };
    facts.task.body.concurrency_key = Some("customer 4".into());
    assert_eq!(codes(&facts), ["due_waiting_for_worker"], "the queue has no limit per key");
    facts.queue.settings.max_per_key = Some(2);
    let expected = json!({
        "code": "concurrency_key",
        "message": "queue mail runs at most 2 tasks of concurrency key customer 4 at once, and 2 run",
        "queue": "mail",
        "concurrency_key": "customer 4",
        "limit": 2,
        "running": 2,
    });
    assert_eq!(shown(&facts), (expected, None));
    facts.held_of_key = 1;
    assert_eq!(codes(&facts), ["due_waiting_for_worker"]);
}

#[test]
fn the_concurrency_of_its_queue() {
    let mut facts = Facts { held: 3, ahead: ahead(4), ..pulled() };
    facts.queue.settings.max_concurrency = Some(3);
    let expected = json!({
        "code": "queue_concurrency",
        "message": "queue mail runs at most 3 tasks at once, and 3 run; 4 other tasks of the queue go before it",
        "queue": "mail",
        "limit": 3,
        "running": 3,
        "position": 5,
    });
    assert_eq!(shown(&facts), (expected, None));
    facts.held = 2;
    assert_eq!(codes(&facts), ["due_waiting_for_worker", "queue_concurrency"], "those before it take what is left");
    let next = serde_json::to_value(&explain(&facts).reasons[1]).unwrap();
    assert_eq!((&next["comes_next"], &next["running"], &next["position"]), (&json!(true), &json!(2), &json!(5)));
    assert_eq!(
        message(&next),
        "after that: queue mail runs at most 3 tasks at once, of which 2 run now; 4 other tasks of the queue go before it"
    );
    facts.claimant = Some(ExpectedClaimant::Workers(PollingWorkers::default()));
    assert_eq!(codes(&facts), ["no_worker_polling", "queue_concurrency"], "what holds it stands first");
    facts.claimant = pulled().claimant;
    facts.ahead = TasksAhead { tasks: 0, or_more: true };
    assert_eq!(codes(&facts), ["due_waiting_for_worker"], "no task is known to go before it");
    facts.ahead = ahead(0);
    assert_eq!(codes(&facts), ["due_waiting_for_worker"]);
    (facts.held, facts.ahead) = (7, ahead(0));
    assert_eq!(shown(&facts).0["position"], 1, "it was lowered since");
    facts.queue.settings.max_concurrency = Some(1);
    facts.held = 1;
    assert_eq!(message(&shown(&facts).0), "queue mail runs at most 1 task at once, and 1 runs; it is the next");
    facts.queue.settings.max_concurrency = Some(2);
    facts.ahead = ahead(1);
    let next = &explain(&facts).reasons[1].message;
    assert!(next.starts_with("after that: queue mail runs at most 2 tasks at once, of which 1 runs now;"), "{next}");
}

#[test]
fn the_rate_of_its_queue() {
    let mut facts = Facts { ahead: ahead(4), ..pulled() };
    facts.queue.settings.rate_limit = Some(RateLimit { per_second: 0.5, burst: 2 });
    facts.bucket = Some(Bucket { tokens: 0.0, refilled_at: NOW.plus_millis(-1_000) });
    let expected = json!({
        "code": "queue_rate",
        "message": "queue mail begins 0.5 tasks a second (burst 2); 4 other tasks of the queue go before it; it may begin at \
                    2026-05-22T18:00:09.000Z at the earliest",
        "until": "2026-05-22T18:00:09.000Z",
        "queue": "mail",
        "per_second": 0.5,
        "burst": 2,
        "position": 5,
    });
    // Half a token is there, four and a half come at two seconds each.
    assert_eq!(shown(&facts), (expected, Some(9_000)));
    facts.bucket = None;
    assert_eq!(codes(&facts), ["due_waiting_for_worker", "queue_rate"], "the bucket is full at first");
    let next = &explain(&facts).reasons[1];
    assert_eq!((next.comes_next, next.until), (true, Some(NOW.plus_millis(6_000))));
    assert!(next.message.starts_with("after that: queue mail begins 0.5 tasks a second"), "{next:?}");
    facts.ahead = ahead(1);
    assert_eq!(codes(&facts), ["due_waiting_for_worker"], "there is a token for each of them");
    facts.bucket = Some(Bucket { tokens: 0.0, refilled_at: NOW });
    facts.queue.settings.rate_limit = Some(RateLimit { per_second: 1.0, burst: 1 });
    assert!(message(&shown(&facts).0).starts_with("queue mail begins 1 task a second (burst 1);"));
    facts.ahead = TasksAhead { tasks: 10_000, or_more: true };
    let (reason, eta) = shown(&facts);
    assert!(reason["message"].as_str().unwrap().ends_with("10,000 or more other tasks of the queue go before it"));
    assert_eq!((eta, &reason["position_or_later"]), (None, &json!(true)));
}
