//! `GET /v1/tasks`: filters, order, pages.

use std::collections::BTreeSet;

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{Caller, SOON, array, id_of, in_seconds, shared, time, written};

/// Submits tasks in one batch and returns their ids.
async fn submitted(caller: &Caller, tasks: Vec<Value>) -> Vec<String> {
    caller.submit_all(tasks).await.iter().map(id_of).collect()
}

/// Walks through all pages.
async fn pages(caller: &Caller, query: &str) -> Vec<Vec<Value>> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = caller.api.get(&format!("/v1/tasks?{query}{cursor}")).await.expect(200);
        pages.push(array(&page["items"]));
        assert!(pages.len() < 1000, "the walk has no end");
        match &page["next_cursor"] {
            Value::Null => return pages,
            Value::String(next) => cursor = format!("&cursor={}", percent(next)),
            other => panic!("next_cursor is neither null nor a string: {other}"),
        }
    }
}

/// Escapes what a query cannot hold.
fn percent(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

fn set(ids: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    ids.into_iter().map(Into::into).collect()
}

#[tokio::test]
async fn an_empty_list_has_no_items_and_no_cursor() {
    let caller = shared().await;
    let page = caller.api.get("/v1/tasks").await.expect(200);
    assert_eq!(page, json!({"items": [], "next_cursor": null}));
}

#[tokio::test]
async fn pages_have_no_gap_or_repeat() {
    let caller = shared().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.extend(
            submitted(&caller, (0..5).map(|m| json!({"type": format!("t{n}.{m}"), "delay_seconds": 600})).collect())
                .await,
        );
    }
    for limit in [1, 7, 24, 25, 26, 1000] {
        let pages = pages(&caller, &format!("limit={limit}")).await;
        assert!(pages.iter().all(|page| page.len() <= limit), "a page is longer than {limit}");
        let seen: Vec<Value> = pages.concat();
        assert_eq!(seen.len(), 25, "limit {limit}");
        assert_eq!(set(seen.iter().map(id_of)), set(ids.clone()), "limit {limit}");
        let created: Vec<_> = seen.iter().map(|task| time(&task["created_at"])).collect();
        assert!(created.is_sorted_by(|newer, older| newer >= older), "limit {limit}: not newest first: {created:?}");
    }
}

#[tokio::test]
async fn a_page_has_fifty_by_default_at_most_a_thousand() {
    let caller = shared().await;
    submitted(&caller, (0..1001).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await;
    let lengths =
        async |query: &str| array(&caller.api.get(&format!("/v1/tasks{query}")).await.expect(200)["items"]).len();
    assert_eq!(lengths("").await, 50);
    assert_eq!(lengths("?limit=1").await, 1);
    assert_eq!(lengths("?limit=1000").await, 1000);
    for limit in ["0", "1001", "1000000000", "-1", "ten", "1.5"] {
        caller.api.get(&format!("/v1/tasks?limit={limit}")).await.problem_any(&[400, 422]);
    }
}

#[tokio::test]
async fn submissions_do_not_disturb_a_walk_over_pages() {
    let caller = shared().await;
    let before = set(submitted(&caller, (0..30).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await);
    let mut seen = Vec::new();
    let mut page = caller.api.get("/v1/tasks?limit=4").await.expect(200);
    loop {
        seen.extend(array(&page["items"]).iter().map(id_of));
        caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        page = caller.api.get(&format!("/v1/tasks?limit=4&cursor={}", percent(cursor))).await.expect(200);
    }
    assert_eq!(set(seen.clone()).len(), seen.len(), "a task was seen twice");
    assert!(before.is_subset(&set(seen)), "a task was not seen");
}

#[tokio::test]
async fn order_execute_at_is_soonest_first_over_all_pages() {
    let caller = shared().await;
    let tasks = (0..23).map(|n| json!({"type": "t", "delay_seconds": 600 + (n * 7) % 23})).collect();
    let ids = submitted(&caller, tasks).await;
    for limit in [5, 100] {
        let seen: Vec<Value> = pages(&caller, &format!("order=execute_at&limit={limit}")).await.concat();
        assert_eq!(set(seen.iter().map(id_of)), set(ids.clone()));
        assert_eq!(seen.len(), ids.len());
        let due: Vec<_> = seen.iter().map(|task| time(&task["execute_at"])).collect();
        assert!(due.is_sorted(), "limit {limit}: not soonest first: {due:?}");
    }
    caller.api.get("/v1/tasks?order=sideways").await.problem_any(&[400, 422]);
}

#[tokio::test]
async fn a_cursor_that_was_tampered_with_is_refused() {
    let caller = shared().await;
    submitted(&caller, (0..3).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await;
    for cursor in ["x", "AAAA", "%00", "..%2F..", "%27%20OR%201=1--", &"A".repeat(5000)] {
        caller.api.get(&format!("/v1/tasks?cursor={cursor}")).await.problem_any(&[400, 414, 422]);
    }
}

#[tokio::test]
async fn a_cursor_does_not_lead_into_another_tenant() {
    let caller = shared().await;
    let stranger = caller.stranger();
    submitted(&caller, (0..9).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await;
    let own = set(submitted(&stranger, (0..9).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await);
    let page = caller.api.get("/v1/tasks?limit=2").await.expect(200);
    let cursor = percent(page["next_cursor"].as_str().expect("a cursor"));
    let answer = stranger.api.get(&format!("/v1/tasks?cursor={cursor}")).await;
    if answer.status() == 200 {
        let seen = set(array(&answer.value()["items"]).iter().map(id_of));
        assert!(seen.is_subset(&own), "another tenant's tasks were shown\n{answer}");
    } else {
        answer.problem_any(&[400, 422]);
    }
}

#[tokio::test]
async fn tasks_are_filtered_by_status_which_may_be_repeated() {
    let caller = shared().await;
    let ids = submitted(&caller, (0..3).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await;
    caller.api.delete(&format!("/v1/tasks/{}", ids[0])).await.expect(200);
    let done = caller.submit_id(json!({"type": "t", "queue": "done"})).await;
    let lease = caller.lease_one("done").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    let found = async |query: &str| set(caller.list_ids(query).await);
    assert_eq!(found("&status=PENDING").await, set(ids[1..].to_vec()));
    assert_eq!(found("&status=CANCELLED").await, set([ids[0].clone()]));
    assert_eq!(found("&status=COMPLETED").await, set([done.clone()]));
    assert_eq!(found("&status=COMPLETED&status=CANCELLED").await, set([done.clone(), ids[0].clone()]));
    assert_eq!(found("&status=DEAD_LETTERED").await, set([""; 0]));
    assert_eq!(found("").await.len(), 4);
    caller.api.get("/v1/tasks?status=SLEEPING").await.problem_any(&[400, 422]);
}

#[tokio::test]
async fn pages_over_several_states_are_in_one_order() {
    let caller = shared().await;
    let ids = submitted(&caller, (0..12).map(|_| json!({"type": "t", "delay_seconds": 600})).collect()).await;
    for id in ids.iter().step_by(2) {
        caller.api.delete(&format!("/v1/tasks/{id}")).await.expect(200);
    }
    let all: Vec<Value> = pages(&caller, "limit=1000").await.concat();
    let paged: Vec<Value> = pages(&caller, "limit=5&status=PENDING&status=CANCELLED").await.concat();
    assert_eq!(all.len(), 12);
    assert_eq!(paged.iter().map(id_of).collect::<Vec<_>>(), all.iter().map(id_of).collect::<Vec<_>>());
}

#[tokio::test]
async fn tasks_are_filtered_by_type_queue_and_priority() {
    let caller = shared().await;
    let ids = submitted(
        &caller,
        vec![
            json!({"type": "mail", "queue": "a", "priority": 1, "delay_seconds": 600}),
            json!({"type": "mail.bulk", "queue": "a", "priority": 6, "delay_seconds": 600}),
            json!({"type": "mail", "queue": "b", "priority": 7, "delay_seconds": 600}),
            json!({"type": "other", "queue": "b", "priority": 9, "delay_seconds": 600}),
        ],
    )
    .await;
    for (query, expected) in [
        ("&type=mail", vec![0, 2]),
        ("&type=mail.bulk", vec![1]),
        ("&type=mai", vec![]),
        ("&queue=a", vec![0, 1]),
        ("&queue=b&type=mail", vec![2]),
        ("&priority_min=7", vec![2, 3]),
        ("&priority_min=6", vec![1, 2, 3]),
        ("&priority_min=0", vec![0, 1, 2, 3]),
        ("&priority_min=9&queue=a", vec![]),
        (&format!("&schedule_id=sched_{}", uuid::Uuid::now_v7()), vec![]),
    ] {
        let expected = set(expected.into_iter().map(|n: usize| ids[n].clone()));
        assert_eq!(set(caller.list_ids(query).await), expected, "{query}");
    }
}

#[tokio::test]
async fn tasks_are_filtered_by_their_times() {
    let caller = shared().await;
    let first = caller.submit(json!({"type": "t", "execute_at": "2101-01-01T00:00:00Z"})).await;
    // So that an instant lies between the two.
    let between = eventually("time passes", SOON, async || {
        let now = in_seconds(0.0);
        if now > time(&first["created_at"]) + jiff::SignedDuration::from_millis(50) {
            Ok(now)
        } else {
            Err(now.to_string())
        }
    })
    .await;
    let second = caller.submit(json!({"type": "t", "execute_at": "2103-01-01T00:00:00Z"})).await;
    let (first, second, between) = (id_of(&first), id_of(&second), written(between));
    for (query, expected) in [
        (format!("&created_after={between}"), vec![&second]),
        (format!("&created_before={between}"), vec![&first]),
        (
            "&created_after=2000-01-01T00:00:00Z&created_before=2100-01-01T00:00:00%2B02:00".to_owned(),
            vec![&first, &second],
        ),
        ("&execute_after=2102-01-01T00:00:00Z".to_owned(), vec![&second]),
        ("&execute_before=2102-01-01T00:00:00Z".to_owned(), vec![&first]),
        ("&execute_after=2102-01-01T00:00:00Z&execute_before=2102-06-01T00:00:00Z".to_owned(), vec![]),
        ("&execute_after=2100-12-31T23:00:00-05:00".to_owned(), vec![&second]),
    ] {
        assert_eq!(set(caller.list_ids(&query).await), set(expected), "{query}");
    }
    caller.api.get("/v1/tasks?created_after=yesterday").await.problem_any(&[400, 422]);
}

#[tokio::test]
async fn tasks_are_filtered_by_metadata_literally() {
    let caller = shared().await;
    let odd = r"100%_\'; DROP TABLE tasks;--";
    let ids = submitted(
        &caller,
        vec![
            json!({"type": "t", "delay_seconds": 600, "metadata": {"customer": "4", "region": "eu"}}),
            json!({"type": "t", "delay_seconds": 600, "metadata": {"customer": "5", "region": "eu"}}),
            json!({"type": "t", "delay_seconds": 600, "metadata": {"note": odd}}),
            json!({"type": "t", "delay_seconds": 600, "metadata": {"note": "100xy"}}),
        ],
    )
    .await;
    for (query, expected) in [
        ("&metadata.region=eu".to_owned(), vec![0, 1]),
        ("&metadata.region=eu&metadata.customer=5".to_owned(), vec![1]),
        ("&metadata.region=e".to_owned(), vec![]),
        ("&metadata.absent=eu".to_owned(), vec![]),
        (format!("&metadata.note={}", percent(odd)), vec![2]),
        ("&metadata.note=100%25__".to_owned(), vec![]),
        ("&metadata.note=100%25".to_owned(), vec![]),
    ] {
        let expected = set(expected.into_iter().map(|n: usize| ids[n].clone()));
        assert_eq!(set(caller.list_ids(&query).await), expected, "{query}");
    }
}

#[tokio::test]
async fn a_listed_task_is_the_task() {
    let caller = shared().await;
    let task = caller.submit(json!({"type": "t", "delay_seconds": 600, "metadata": {"a": "b"}})).await;
    let listed = caller.list("/v1/tasks").await.remove(0);
    for member in
        ["task_id", "tenant", "type", "queue", "status", "version", "priority", "execute_at", "created_at", "metadata"]
    {
        assert_eq!(listed[member], task[member], "{member}");
    }
}
