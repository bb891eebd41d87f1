//! Times: both kinds at once, not RFC 3339, too far away.

use serde_json::json;

use crate::it::world::{id_of, shared};

#[tokio::test]
async fn at_most_one_of_execute_at_and_delay_seconds() {
    let caller = shared().await;
    caller
        .api
        .post("/v1/tasks", &json!({"type": "t", "execute_at": "2101-01-01T00:00:00Z", "delay_seconds": 5}))
        .await
        .problem(422);
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_time_that_is_not_rfc_3339_is_refused() {
    let caller = shared().await;
    for bad in [
        "",
        "tomorrow",
        "2101-01-01",
        "2101-01-01T00:00:00",
        "2101-01-01 00:00",
        "2101-01-01T24:00:00Z",
        "2101-01-01T00:60:00Z",
        "2101-13-01T00:00:00Z",
        "2101-02-29T00:00:00Z",
        "2101-00-10T00:00:00Z",
        "2101-01-01T00:00Z",
        "2101-01-01T00:00:00.Z",
        "2101-01-01T00:00:00+24:00",
        "2101-01-01T00:00:00+0200",
        "2101-01-01T00:00:00 +02:00",
        "2101-01-01T00:00:00[Europe/Berlin]",
        "2101-01-01T00:00:00Z\n",
        " 2101-01-01T00:00:00Z",
        "20101-01-01T00:00:00Z",
        "+292277-01-09T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "2016-12-31T23:59:61Z",
        "٢١٠١-01-01T00:00:00Z",
    ] {
        for field in ["execute_at", "expires_at"] {
            caller.api.post("/v1/tasks", &json!({"type": "t", field: bad})).await.invalid(&format!("/{field}"));
        }
    }
    for bad in [json!(1_779_472_800), json!(1.5), json!(["2101-01-01T00:00:00Z"]), json!({}), json!(true)] {
        caller.api.post("/v1/tasks", &json!({"type": "t", "execute_at": bad})).await.invalid("/execute_at");
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn a_leap_second_is_refused() {
    let caller = shared().await;
    for leap in ["2016-12-31T23:59:60Z", "2101-06-30T23:59:60Z"] {
        caller.api.post("/v1/tasks", &json!({"type": "t", "execute_at": leap})).await.invalid("/execute_at");
    }
    caller.expect_nothing_stored().await;
}

#[tokio::test]
async fn odd_forms_of_rfc_3339_are_refused_or_exact() {
    let caller = shared().await;
    for (odd, instant) in [
        ("2101-01-01t00:00:00z", "2101-01-01T00:00:00.000Z"),
        ("2101-01-01T00:00:00.123456789012Z", "2101-01-01T00:00:00.124Z"),
        ("2101-01-01 00:00:00Z", "2101-01-01T00:00:00.000Z"),
        ("2101-01-01T00:00:00-00:00", "2101-01-01T00:00:00.000Z"),
    ] {
        let answer = caller.api.post("/v1/tasks", &json!({"type": "t", "execute_at": odd})).await;
        if answer.status() == 201 {
            assert_eq!(answer.value()["execute_at"], instant, "{odd}");
        } else {
            answer.invalid("/execute_at");
        }
    }
}

#[tokio::test]
async fn a_time_too_far_away_is_refused() {
    let caller = shared().await;
    let ages = caller.stranger();
    for delay in [
        json!(1e12),
        json!(1e18),
        json!(1e300),
        json!(9_223_372_036_854_775_807_i64),
        json!(18_446_744_073_709_551_615_u64),
    ] {
        ages.api.post("/v1/tasks", &json!({"type": "t", "delay_seconds": delay})).await.invalid("/delay_seconds");
    }
    for bad in [json!("5"), json!([5]), json!(true)] {
        ages.api.post("/v1/tasks", &json!({"type": "t", "delay_seconds": bad})).await.invalid("/delay_seconds");
    }
    for (field, far) in [
        ("execute_at", "10000-01-01T00:00:00Z"),
        ("execute_at", "292277026596-12-04T15:30:08Z"),
        ("expires_at", "10000-01-01T00:00:00Z"),
    ] {
        ages.api.post("/v1/tasks", &json!({"type": "t", field: far})).await.invalid(&format!("/{field}"));
    }
    ages.expect_nothing_stored().await;
    // Within the horizon, a time is kept exactly and waited for.
    for edge in ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59-23:59", "2300-01-01T00:00:00Z"] {
        let answer = caller.api.post("/v1/tasks", &json!({"type": "t", "execute_at": edge})).await;
        if answer.status() == 201 {
            let task = caller.task(&id_of(&answer.value())).await;
            assert_eq!(task["status"], "PENDING", "{edge}");
            let kept = task["execute_at"].as_str().unwrap_or_default();
            assert!(kept.starts_with(&edge[..4]), "{edge} became {kept}");
        } else {
            answer.invalid("/execute_at");
        }
    }
}

#[tokio::test]
async fn the_beginning_of_time_is_the_past() {
    let caller = shared().await;
    for (n, old) in ["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999Z", "1583-01-01T00:00:00Z"].into_iter().enumerate()
    {
        let queue = format!("old-{n}");
        let answer = caller.api.post("/v1/tasks", &json!({"type": "t", "queue": queue, "execute_at": old})).await;
        if answer.status() == 201 {
            assert_eq!(id_of(&caller.lease_one(&queue).await["task"]), id_of(&answer.value()), "{old}");
        } else {
            answer.invalid("/execute_at");
        }
    }
}
