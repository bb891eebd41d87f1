//! Webhooks whose body is an envelope with the results of dependencies.

use std::time::Duration;

use punctual_core::run_end::RunEnd;
use punctual_core::state::State;
use punctual_core::trail::Step;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, task};
use punctual_testkit::sink::Sink;

use crate::faulty::Fate;
use crate::support::AMPLE;
use crate::trouble::faulty;

#[tokio::test]
async fn an_envelope_has_the_results_of_dependencies() {
    let ((harness, _), sink) = (faulty(), Sink::start());
    let parent = harness.completed("first", r#"{"n":1.50}"#).await;
    let other = harness.completed("second", "null").await;
    let child = task().push(&sink.url("")).enveloped().depends_on(&[other, parent]).payload(r#"{ "b":1.0 }"#);
    let worker = harness.start();
    let id = harness.submit(vec![child.label("team", "a").build()]).await[0];
    harness.until(id, State::Completed).await;
    harness.stop(worker).await;
    let (hits, token) = (sink.hits("/hook"), harness.get(id).await.position.version - 1);
    let expected = format!(
        r#"{{"task_id":"{id}","type":"test.work","queue":"default","attempt":1,"token":{token},"execute_at":"{START}","metadata":{{"team":"a"}},"payload":{{ "b":1.0 }},"dependencies":[{{"task_id":"{other}","status":"COMPLETED","result":null}},{{"task_id":"{parent}","status":"COMPLETED","result":{{"n":1.50}}}}]}}"#
    );
    assert_eq!(String::from_utf8_lossy(&hits[0].body), expected);
}

#[tokio::test]
async fn one_read_serves_a_batch_of_envelopes() {
    let ((harness, store), sink) = (faulty(), Sink::start());
    let parent = harness.completed("first", "1").await;
    let child = || task().push(&sink.url("")).enveloped().depends_on(&[parent]);
    harness.submit(child().times(50)).await;
    let worker = harness.start();
    sink.wait_for("/hook", 50, AMPLE).await;
    assert_eq!(*store.read.lock().unwrap(), [1], "they share what they depend on");
    let plain = task().push(&sink.url("/plain"));
    harness.submit(vec![plain.depends_on(&[parent]).build(), task().push(&sink.url("/own")).enveloped().build()]).await;
    for path in ["/plain/hook", "/own/hook"] {
        sink.wait_for(path, 1, AMPLE).await;
    }
    harness.stop(worker).await;
    assert_eq!(store.read.lock().unwrap().len(), 1, "neither has results to read");
    assert!(sink.hits("/own/hook")[0].body.ends_with(br#""dependencies":[]}"#));
}

#[tokio::test]
async fn results_that_are_too_large_are_left_out() {
    let ((harness, store), sink) = (faulty(), Sink::start());
    let large = format!("\"{}\"", "x".repeat(60_000));
    let mut parents = Vec::new();
    for place in 0..101 {
        parents.push(harness.completed("parent", if place < 80 { &large } else { "1" }).await);
    }
    let child = |path: &str, parents: &[_]| task().push(&sink.url(path)).enveloped().depends_on(parents).build();
    let of = [("/few", 17), ("/all", 80), ("/many", 101), ("/more", 18)];
    let children = of.map(|(path, count)| child(path, &parents[..count])).into();
    harness.submit(children).await;
    let worker = harness.start();
    for (path, is_whole) in [("/few", true), ("/all", false), ("/many", false), ("/more", false)] {
        let hit = sink.wait_for(&format!("{path}/hook"), 1, AMPLE).await.remove(0);
        assert_eq!(!hit.body.ends_with(br#""dependencies":null}"#), is_whole, "{path}");
        assert_eq!(hit.body.len() > 1_000_000, is_whole, "{path}");
    }
    harness.stop(worker).await;
    assert_eq!(*store.read.lock().unwrap(), [80, 80], "a second read for what the first had no room for");
}

#[tokio::test]
async fn runs_without_their_results_are_given_back() {
    let ((mut harness, store), sink) = (faulty(), Sink::start());
    harness.config.grace = Duration::from_millis(200);
    let parent = harness.completed("first", "1").await;
    let fates = [Fate::Refused, Fate::Hangs];
    store.reads.lock().unwrap().extend(fates);
    let child = task().push(&sink.url("")).enveloped().depends_on(&[parent]).build();
    let worker = harness.start();
    let id = harness.submit(vec![child, task().push(&sink.url("/other")).build()]).await[0];
    sink.wait_for("/other/hook", 1, AMPLE).await;
    assert!(sink.hits("/hook").is_empty(), "other webhooks do not wait");
    let back = harness.until(id, State::Pending).await;
    assert_eq!(back.position.attempts, 0, "it is no attempt");
    assert!(matches!(back.trail.last().unwrap().step, Step::GivenBack));
    assert_eq!(harness.deps.stats.ended(RunEnd::GivenBack), 1);
    harness.dispatch().await;
    harness.until(id, State::Completed).await;
    eventually("the call", AMPLE, async || if sink.hits("/hook").len() == 1 { Ok(()) } else { Err(String::new()) })
        .await;
    harness.stop(worker).await;
}

#[tokio::test]
async fn results_that_cannot_be_read_are_left_out() {
    let ((harness, store), sink) = (faulty(), Sink::start());
    let parent = harness.completed("first", "1").await;
    store.reads.lock().unwrap().push_back(Fate::Corrupt(parent));
    harness.submit(vec![task().push(&sink.url("")).enveloped().depends_on(&[parent]).build()]).await;
    let worker = harness.start();
    let hit = sink.wait_for("/hook", 1, AMPLE).await.remove(0);
    assert!(hit.body.ends_with(br#""dependencies":null}"#), "{}", String::from_utf8_lossy(&hit.body));
    harness.stop(worker).await;
}
