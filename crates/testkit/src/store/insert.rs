//! `insert` without keys: what it stores and answers.

use std::collections::BTreeSet;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::state::{Position, State};
use punctual_core::store::Inserted;
use punctual_core::task::NewTask;
use uuid::Uuid;

use super::{StoreFactory, StoreFixture, all_of, assert_same, created, ids};
use crate::fixtures::{TENANT, TaskBuilder, at, task};

/// A task with no field at its default.
pub(super) fn full() -> TaskBuilder {
    task()
        .tenant("Ünïcode & Söhne 株式会社")
        .queue("очередь/1")
        .kind("billing.invoice:send/v2")
        .priority(9)
        .push("https://例え.test:8443")
        .enveloped()
        .created_at(at(-5))
        .due(at(-3))
        .expires_at(at(86_400_000))
        .key("schlüssel 🗝️", 7)
        .payload("{\"text\": \"zażółć gęślą jaźń 🦀\\u0000\", \"n\": [1.0, -0, 1e2]}")
        .label("a.b", "c\"d")
        .label("日本", "🗾")
        .schedule(ScheduleId::from_uuid(Uuid::now_v7()))
        .timeout_millis(86_400_000_000)
        .retry_policy(RetryPolicy {
            max_retries: 2,
            backoff: Backoff::Linear,
            backoff_millis: 123_456_789,
            max_backoff_millis: u64::from(u32::MAX) * 1_000,
            jitter: Jitter::Full,
            delays_millis: vec![60_000, 2_592_000_000],
            retry_on: Some(["5xx", "402", "timeout"].map(|kind| kind.parse().expect("a kind of failure")).into()),
        })
}

/// The answer and later reads return the submitted fields, in a task that waits at version 1.
pub async fn insert_answers_what_was_submitted(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let plain = task().build();
    let full = full().build();
    for submitted in [plain, full] {
        let NewTask { id, lane, created_at, execute_at, expires_at, body, trail, .. } = submitted.clone();
        let stored = fixture.insert(vec![submitted]).await.pop().unwrap();
        assert_eq!(stored.id, id);
        assert_eq!(stored.lane.key, lane);
        let position = Position { state: State::Pending, version: 1, attempts: 0, crashes: 0, cancel_requested: false };
        assert_eq!(stored.position, position);
        assert_eq!((stored.created_at, stored.execute_at), (created_at, execute_at));
        assert_eq!((stored.due_at, stored.expires_at), (execute_at, expires_at));
        assert_eq!((stored.hold.as_ref(), stored.worker.as_ref()), (None, None));
        assert_eq!((stored.started_at, stored.completed_at), (None, None));
        assert_eq!((stored.result.as_ref(), stored.progress.as_ref(), stored.checkpoint.as_ref()), (None, None, None));
        assert_eq!(stored.body, body);
        assert_eq!(stored.trail, trail);
        assert_same(&fixture.get(&stored).await, &stored);
    }
}

/// The largest batch is answered in order, whatever the order of its due instants and lanes.
pub async fn insert_takes_ten_thousand_in_order(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let batch: Vec<NewTask> = (0..10_000)
        .map(|n: i64| {
            task().queue(&format!("q{}", n % 7)).due(at(-(n * 7_919 % 10_007))).payload(&n.to_string()).build()
        })
        .collect();
    let expected: Vec<TaskId> = batch.iter().map(|task| task.id).collect();
    let stored = fixture.insert(batch).await;
    assert_eq!(ids(&stored), expected);
    for (n, task) in stored.iter().enumerate() {
        assert_eq!(task.body.payload.get(), n.to_string());
        assert_eq!(task.lane.key.queue, format!("q{}", n % 7));
    }
    let lanes: BTreeSet<_> = stored.iter().map(|task| task.lane.id).collect();
    assert_eq!(lanes.len(), 7, "tasks with the same lane key share a lane, others do not");
    let listed: BTreeSet<TaskId> = ids(&fixture.list(all_of(TENANT), 1_000).await).into_iter().collect();
    assert_eq!(listed, expected.into_iter().collect());
}

/// A payload is read back byte for byte, also at the maximum size.
pub async fn insert_keeps_every_byte(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let wide = "ä€😀\\\"\\n\\u0000 \u{202e}rtl\u{feff}\u{ffff}";
    let large = format!("\"{}\"", wide.repeat(256 * 1_024 / wide.len()));
    let padded = format!("[{}1 ,\t2\r\n]", " ".repeat(256 * 1_024 - 8));
    let texts = [
        large.as_str(),
        padded.as_str(),
        "null",
        "1.0",
        "-0",
        "1E+2",
        "12345678901234567890123456789.000",
        "\"\"",
        "{}",
        "[]",
        "{\"b\":1 , \"a\" : 2}",
        "\"\u{7f}é e\u{301}\"",
    ];
    let batch = texts.iter().map(|text| task().payload(text).label("text", "é e\u{301} ' \" % _ \\").build()).collect();
    let answers = fixture.store.insert(batch).await.expect("insert answers");
    for (answer, text) in answers.into_iter().zip(texts) {
        let stored = created(answer);
        for found in [&stored, &fixture.get(&stored).await] {
            assert_eq!(found.body.payload.get().len(), text.len());
            assert!(found.body.payload.get() == text, "a payload was changed: {:.60}", found.body.payload.get());
            assert_eq!(found.body.metadata["text"], "é e\u{301} ' \" % _ \\");
        }
    }
    let leased = fixture.lease(fixture.list(all_of(TENANT), 1).await[0].lane.id, texts.len()).await;
    assert!(leased.iter().zip(texts).all(|(task, text)| task.body.payload.get() == text), "a lease has other bytes");
}

/// A call without items is answered without items, and does no harm.
pub async fn empty_calls_answer_nothing(factory: &dyn StoreFactory) {
    let StoreFixture { store, .. } = StoreFixture::open(factory).await;
    let inserted: Vec<Inserted> = store.insert(Vec::new()).await.expect("insert answers");
    assert!(inserted.is_empty());
    assert!(store.claim(Vec::new()).await.expect("claim answers").is_empty());
    assert!(store.start(Vec::new()).await.expect("start answers").is_empty());
    assert!(store.apply(Vec::new()).await.expect("apply answers").is_empty());
    assert!(store.extend(Vec::new()).await.expect("extend answers").is_empty());
    assert!(store.get(TENANT, Vec::new()).await.expect("get answers").is_empty());
    let page = store.list(all_of(TENANT), None, 10).await.expect("list answers");
    assert!(page.tasks.is_empty() && page.next.is_none());
    assert!(store.heads(None, at(1), 10).await.expect("heads answers").is_empty());
    assert!(store.overdue(Vec::new(), 10).await.expect("overdue answers").is_empty());
    assert!(store.counts().await.expect("counts answers").is_empty());
}
