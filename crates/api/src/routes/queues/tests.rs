use serde_json::{Value, json};

use crate::testing::World;

async fn put(world: &World, body: Value) -> crate::testing::Answer {
    world.send("PUT", "/v1/queues/mail", Some(body)).await
}

fn pointers(problem: &Value) -> Vec<&str> {
    problem["errors"].as_array().unwrap().iter().map(|fault| fault["pointer"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn setting_a_queue_replaces_all_its_settings() {
    let world = World::new();
    assert_eq!(world.send("GET", "/v1/queues/mail", None).await.problem(), "not_found");
    let body = json!({
        "max_concurrency": 3,
        "rate_limit": {"per_second": 2.5},
        "max_depth": 10,
        "retry_policy": {"max_retries": 7},
        "timeout_seconds": 1.5,
        "dispatch_jitter_seconds": 5,
        "on_dead_letter": "hold",
        "callback_url": "https://Hooks.example/mail#part",
        "callback_headers": {"X-Team": "billing"},
    });
    let answer = put(&world, body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let queue = answer.json();
    assert_eq!(queue["rate_limit"], json!({"per_second": 2.5, "burst": 1}));
    assert_eq!((&queue["max_concurrency"], &queue["timeout_seconds"]), (&json!(3), &json!(1.5)));
    assert_eq!((&queue["retry_policy"]["max_retries"], &queue["on_dead_letter"]), (&json!(7), &json!("hold")));
    assert_eq!(queue["callback_url"], "https://hooks.example/mail");
    assert_eq!(queue["callback_headers"], json!({"X-Team": "billing"}));
    assert_eq!(queue["counts"], json!({"BLOCKED": 0, "PENDING": 0, "QUEUED": 0, "RUNNING": 0}));
    assert_eq!(world.send("GET", "/v1/queues/mail", None).await.json(), queue);

    let queue = put(&world, json!({"max_depth": 4})).await.json();
    assert_eq!(
        (&queue["max_concurrency"], &queue["rate_limit"], &queue["max_depth"]),
        (&json!(null), &json!(null), &json!(4))
    );
    assert_eq!((&queue["on_dead_letter"], &queue["version"]), (&json!("continue"), &json!(2)));
    assert_eq!((&queue["callback_url"], &queue["callback_headers"]), (&json!(null), &json!({})));
}

#[tokio::test]
async fn all_faults_of_settings_are_reported() {
    let world = World::new();
    let body = json!({
        "max_concurrency": 0,
        "rate_limit": {"per_second": 0, "burst": 0},
        "max_depth": -1,
        "retry_policy": {"max_retries": 1001},
        "timeout_seconds": 0,
        "dispatch_jitter_seconds": 3601,
        "callback_url": "http://169.254.169.254/",
        "callback_headers": {"Host": "x"},
    });
    let answer = put(&world, body).await;
    assert_eq!(answer.problem(), "invalid_request");
    let problem = answer.json();
    let mut faults = pointers(&problem);
    faults.sort_unstable();
    let expected = [
        "/callback_headers/Host",
        "/callback_url",
        "/dispatch_jitter_seconds",
        "/max_concurrency",
        "/max_depth",
        "/rate_limit/burst",
        "/rate_limit/per_second",
        "/retry_policy/max_retries",
        "/timeout_seconds",
    ];
    assert_eq!(faults, expected);
    assert!(answer.text.contains("pause the queue"), "{}", answer.text);
    for (body, pointer) in [
        (json!({"max_concurency": 1}), "/max_concurency"),
        (json!({"rate_limit": {"burst": 1}}), "/rate_limit/per_second"),
        (json!({"rate_limit": 5}), "/rate_limit"),
        (json!({"on_dead_letter": "stop"}), "/on_dead_letter"),
        (json!({"callback_headers": {"x": "y"}}), "/callback_headers"),
        (json!({"max_concurrency": 1.5}), "/max_concurrency"),
    ] {
        let problem = put(&world, body).await.json();
        assert_eq!((&problem["status"], pointers(&problem)), (&json!(422), vec![pointer]));
    }
    assert_eq!(world.send("GET", "/v1/queues/mail", None).await.status, 404, "nothing was set");
}

#[tokio::test]
async fn a_pause_is_no_setting() {
    let world = World::new();
    let body = json!({"reason": "the mail server is down", "until": "2026-05-22T19:00:00Z"});
    let queue = world.send("POST", "/v1/queues/mail/pause", Some(body)).await.json();
    assert_eq!(queue["paused"], true);
    let pause = json!({
        "paused_at": "2026-05-22T18:00:00.000Z",
        "paused_by": "client",
        "reason": "the mail server is down",
        "until": "2026-05-22T19:00:00.000Z",
    });
    assert_eq!(queue["pause"], pause);
    assert_eq!(put(&world, json!({"max_depth": 4})).await.json()["pause"], pause, "settings leave it");
    assert_eq!(put(&world, json!({"paused": true})).await.json()["pause"], pause, "it is paused already");
    assert_eq!(put(&world, json!({"paused": false})).await.json()["paused"], false);
    assert_eq!(put(&world, json!({"paused": true})).await.json()["pause"]["until"], json!(null));
    assert_eq!(world.send("POST", "/v1/queues/mail/resume", None).await.json()["paused"], false);
    assert_eq!(world.send("POST", "/v1/queues/mail/resume", None).await.status, 200, "twice is no fault");
    assert_eq!(world.send("POST", "/v1/queues/mial/resume", None).await.status, 404);
    assert_eq!(world.send("GET", "/v1/queues/mial", None).await.status, 404, "nothing was made of it");

    let until = json!({"until": "2026-05-22T18:00:05Z"});
    assert_eq!(world.send("POST", "/v1/queues/mail/pause", Some(until)).await.json()["paused"], true);
    world.clock.advance_millis(5_000);
    let queue = world.send("GET", "/v1/queues/mail", None).await.json();
    assert_eq!((&queue["paused"], &queue["pause"]), (&json!(false), &json!(null)));

    for body in
        [json!({"until": "2026-05-22T18:00:05Z"}), json!({"until": "soon"}), json!({"reason": "x".repeat(1_025)})]
    {
        assert_eq!(world.send("POST", "/v1/queues/mail/pause", Some(body)).await.problem(), "invalid_request");
    }
    assert_eq!(
        world.send("POST", "/v1/queues/mail/resume", Some(json!({"now": true}))).await.problem(),
        "invalid_request"
    );
}

#[tokio::test]
async fn queues_are_listed_page_by_page_and_bound_to_their_tenant() {
    let world = World::new();
    for name in ["b", "a%2Fb", "c", "a"] {
        assert_eq!(world.send("POST", &format!("/v1/queues/{name}/pause"), None).await.status, 200);
    }
    let task = json!({"type": "t", "queue": "d"});
    assert_eq!(world.send("POST", "/v1/tasks", Some(task)).await.status, 201);
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.send("GET", &format!("/v1/queues?limit=2{cursor}"), None).await.json();
        names.extend(page["items"].as_array().unwrap().iter().map(|queue| queue["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else {
            assert_eq!(page["items"][0]["counts"]["PENDING"], 1);
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(names, ["a", "a/b", "b", "c", "d"]);
    let request = axum::http::Request::builder().uri("/v1/queues").header("punctual-tenant", "acme");
    let page = world.call(request.body(axum::body::Body::empty()).unwrap()).await.json();
    assert_eq!(page["items"], json!([]));
    assert_eq!(world.send("GET", "/v1/queues/a%20b", None).await.problem(), "invalid_request");
}
