//! Rows of the embedded store that somebody has damaged: told of in the log, out of the way of the others.

use std::path::Path;

use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Serve;
use serde_json::json;

use crate::it::world::{PUNCTUAL, SOON, caller_of, id_of};

fn damage(data: &Path, sql: &str) {
    let database = rusqlite::Connection::open(data.join("punctual.db")).expect("the database opens");
    database.execute_batch(sql).expect("it is damaged");
}

/// None of these is ever met by a claim.
#[tokio::test]
async fn a_damaged_row_that_nobody_would_meet_is_found_and_told_of() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = Serve::new(PUNCTUAL, &data);
    let mut node = serve.start().await;
    let mut ids = Vec::new();
    for number in 0..4 {
        ids.push(caller_of(&node).submit_id(json!({"type": "t", "queue": "q", "payload": number})).await);
    }
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
    damage(
        &data,
        "UPDATE tasks SET lane = 99 WHERE seq = 1;
         UPDATE tasks SET state = 3 WHERE seq = 2;
         UPDATE tasks SET state = 2, node = 7 WHERE seq = 3",
    );
    let node = serve.start().await;
    for (id, reason) in [(&ids[0], "its lane"), (&ids[1], "its lease_expires_at"), (&ids[2], "its lease_expires_at")] {
        eventually("it is told of", SOON, async || {
            let log = node.log();
            let told =
                log.lines().any(|line| line.contains("quarantine") && line.contains(id) && line.contains(reason));
            if told { Ok(()) } else { Err(log) }
        })
        .await;
    }
    let caller = caller_of(&node);
    // What is logged is committed a moment later, and counted every few seconds.
    eventually("they are counted", SOON, async || {
        let metrics = caller.api.get("/metrics").await;
        let told = metrics.text().lines().any(|line| line == "punctual_tasks_quarantined{} 3");
        if told { Ok(()) } else { Err(metrics.to_string()) }
    })
    .await;
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), ids[3], "the others go on");
}

#[tokio::test]
async fn a_history_that_is_cut_short_is_not_told_as_all_there_was() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = Serve::new(PUNCTUAL, &data);
    let mut node = serve.start().await;
    let id = caller_of(&node).submit_id(json!({"type": "t", "queue": "q"})).await;
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
    damage(&data, "UPDATE tasks SET trail = x'ff00'");
    let node = serve.start().await;
    let caller = caller_of(&node);
    for list in ["events", "runs"] {
        let refused = caller.api.get(&format!("/v1/tasks/{id}/{list}")).await;
        assert_eq!(refused.status(), 500, "{refused}");
        assert!(refused.text().contains("0 of its steps can be read"), "{refused}");
    }
    let lease = caller.lease_one("q").await;
    caller.tell("complete", &lease, json!({})).await.expect(200);
    assert_eq!(caller.task(&id).await["status"], "COMPLETED", "the task itself is as good as ever");
}

#[tokio::test]
async fn a_finished_task_that_cannot_be_read_is_left_out_of_lists_and_told_of() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = Serve::new(PUNCTUAL, &data);
    let mut node = serve.start().await;
    let caller = caller_of(&node);
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(caller.submit_id(json!({"type": "t", "queue": "q"})).await);
        let lease = caller.lease_one("q").await;
        caller.tell("complete", &lease, json!({})).await.expect(200);
    }
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
    damage(&data, "UPDATE history SET lane = 99 WHERE seq = 1");
    let node = serve.start().await;
    let caller = caller_of(&node);
    let listed = caller.api.get("/v1/tasks?status=COMPLETED").await.expect(200);
    let listed: Vec<String> = listed["items"].as_array().unwrap().iter().map(id_of).collect();
    assert_eq!(listed, ids[1..]);
    node.until_logged(&["a finished task cannot be read", &ids[0]]).await;
}
