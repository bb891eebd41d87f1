//! `apply` with the submitter's edits.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneKey, Route};
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::state::{Event, State};
use punctual_core::task::{Callback, CallbackBody, Destination, Edit, OrderingKeyEdit, Task};

use super::{StoreFactory, StoreFixture, all_of, assert_same, ids};
use crate::fixtures::{START, TENANT, at, json, task};

/// Each edited field is new, and every other field is as it was.
pub async fn apply_writes_every_edit(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let policy = RetryPolicy {
        max_retries: 9,
        backoff: Backoff::Exponential,
        backoff_millis: 77,
        max_backoff_millis: 88,
        jitter: Jitter::Full,
        ..RetryPolicy::default()
    };
    let labels = BTreeMap::from([("neu".to_owned(), "ja".to_owned())]);
    let edits: Vec<(Edit, Effect)> = vec![
        (Edit { execute_at: Some(at(500)), ..Edit::default() }, |task| {
            (task.execute_at, task.due_at) = (at(500), at(500));
        }),
        (Edit { payload: Some(json("[\"n\u{e9}w\"]")), ..Edit::default() }, |task| {
            task.body.payload = json("[\"n\u{e9}w\"]");
        }),
        (Edit { retry_policy: Some(policy), ..Edit::default() }, |task| {
            task.body.retry_policy = RetryPolicy {
                max_retries: 9,
                backoff: Backoff::Exponential,
                backoff_millis: 77,
                max_backoff_millis: 88,
                jitter: Jitter::Full,
                ..RetryPolicy::default()
            };
        }),
        (Edit { expires_at: Some(Some(at(700))), ..Edit::default() }, |task| task.expires_at = Some(at(700))),
        (Edit { expires_at: Some(None), ..Edit::default() }, |task| task.expires_at = None),
        (Edit { metadata: Some(labels), ..Edit::default() }, |task| {
            task.body.metadata = BTreeMap::from([("neu".to_owned(), "ja".to_owned())]);
        }),
        (Edit { metadata: Some(BTreeMap::new()), ..Edit::default() }, |task| task.body.metadata = BTreeMap::new()),
        (Edit { timeout_millis: Some(1_234), ..Edit::default() }, |task| task.body.timeout_millis = 1_234),
        (Edit { destination: Some(webhook()), ..Edit::default() }, |task| {
            task.body.callback = webhook().callback;
            task.lane = lane_with(task, |key| key.route = webhook().route);
        }),
        (Edit { destination: Some(Destination { route: Route::Pull, callback: None }), ..Edit::default() }, |task| {
            task.body.callback = None;
            task.lane = lane_with(task, |key| key.route = Route::Pull);
        }),
        (Edit { queue: Some("elsewhere".to_owned()), ..Edit::default() }, |task| {
            task.lane = lane_with(task, |key| "elsewhere".clone_into(&mut key.queue));
        }),
        (
            Edit { ordering_key: Some(OrderingKeyEdit { from: None, to: Some("k".to_owned()) }), ..Edit::default() },
            |task| {
                task.body.ordering_key = Some("k".to_owned());
            },
        ),
        (
            Edit { ordering_key: Some(OrderingKeyEdit { from: Some("k".to_owned()), to: None }), ..Edit::default() },
            |task| {
                task.body.ordering_key = None;
            },
        ),
        (Edit::default(), |_| {}),
    ];
    let mut task = fixture.insert_one(super::insert::full().due(at(60_000)).expires_at(at(90_000))).await;
    for (edit, expect) in edits {
        let change = fixture.change(&task, Event::Edit(Box::new(edit.clone())));
        let edited = fixture.apply(&task, Event::Edit(Box::new(edit))).await;
        expect(&mut task);
        assert_eq!(edited.lane.key, task.lane.key);
        task.lane = edited.lane.clone();
        task.position.version += 1;
        task.trail.extend(&change.1.trail);
        assert_same(&edited, &task);
    }
    fixture.advance(50);
    let now = fixture.apply(&task, Event::RunNow).await;
    assert_eq!((now.execute_at, now.due_at), (at(50), at(50)));
    assert_eq!(fixture.lease(now.lane.id, 1).await[0].body, task.body, "a worker gets the edited task");
}

fn webhook() -> Destination {
    let headers = BTreeMap::from([("x-a".to_owned(), "b".to_owned())]);
    let callback = Callback { url: "http://127.0.0.1:9/new".to_owned(), headers, body: CallbackBody::Envelope };
    Destination { route: Route::Push("http://127.0.0.1:9".to_owned()), callback: Some(callback) }
}

/// The lane of a task with another key.
fn lane_with(task: &Task, edit: impl Fn(&mut LaneKey)) -> Arc<Lane> {
    let mut lane = Lane::clone(&task.lane);
    edit(&mut lane.key);
    Arc::new(lane)
}

/// What an edit does to a task.
type Effect = fn(&mut Task);

/// A task with a new priority waits only in its new lane; the other tasks of its old lane stay.
pub async fn apply_moves_an_edited_task_to_its_new_lane(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().label("l", "1").times(3)).await;
    let there_before = fixture.insert_one(task().priority(9)).await;
    let moved = fixture.apply(&stored[0], priority(9)).await;
    assert_eq!(moved.lane, there_before.lane, "the lane was there before");
    let alone = fixture.apply(&stored[1], priority(0)).await;
    let mut key = stored[1].lane.key.clone();
    key.priority = 0;
    assert_eq!(alone.lane.key, key, "only the priority is new");
    assert_ne!(alone.lane.id, stored[1].lane.id);

    let mut heads: Vec<_> = fixture.heads(at(1), 100).await.into_iter().map(|(lane, _, due)| (lane, due)).collect();
    heads.sort_unstable();
    let mut expected = [stored[2].lane.id, there_before.lane.id, alone.lane.id].map(|lane| (lane, START));
    expected.sort_unstable();
    assert_eq!(heads, expected);
    let counts = fixture.counts().await;
    assert_eq!(counts[&(there_before.lane.id, State::Pending)], 2);
    assert_eq!(counts[&(alone.lane.id, State::Pending)], 1);
    assert_eq!(counts[&(stored[2].lane.id, State::Pending)], 1);

    assert_eq!(ids(&fixture.lease(stored[2].lane.id, 10).await), [stored[2].id]);
    assert_eq!(ids(&fixture.lease(alone.lane.id, 10).await), [alone.id]);
    assert_eq!(ids(&fixture.lease(there_before.lane.id, 10).await), [moved.id, there_before.id]);
    let urgent = punctual_core::store::Filter { priority_min: Some(9), ..all_of(TENANT) };
    assert_eq!(ids(&fixture.list(urgent, 10).await), [there_before.id, moved.id]);
}

fn priority(priority: u8) -> Event<'static> {
    Event::Edit(Box::new(Edit { priority: Some(priority), ..Edit::default() }))
}
