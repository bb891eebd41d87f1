//! Damaged rows of the embedded store: reported in the log, out of the way of the other tasks.

use std::path::Path;

use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Serve;
use serde_json::json;

use crate::it::world::{PUNCTUAL, SOON, caller_of, id_of};

fn damage(data: &Path, sql: &str) {
    let database = rusqlite::Connection::open(data.join("punctual.db")).expect("the database opens");
    database.execute_batch(sql).expect("it is damaged");
}

/// No claim ever reads one of these rows.
#[tokio::test]
async fn a_damaged_row_that_no_claim_reads_is_quarantined() {
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
        eventually("it is logged", SOON, async || {
            let log = node.log();
            let found =
                log.lines().any(|line| line.contains("quarantine") && line.contains(id) && line.contains(reason));
            if found { Ok(()) } else { Err(log) }
        })
        .await;
    }
    let caller = caller_of(&node);
    // The row is committed a moment after the log line, and counted every few seconds.
    eventually("they are counted", SOON, async || {
        let metrics = caller.api.get("/metrics").await;
        let found = metrics.text().lines().any(|line| line == "punctual_tasks_quarantined{} 3");
        if found { Ok(()) } else { Err(metrics.to_string()) }
    })
    .await;
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), ids[3], "the others continue");
}

#[tokio::test]
async fn a_torn_history_is_refused_not_shown_in_part() {
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
    caller.report("complete", &lease, json!({})).await.expect(200);
    assert_eq!(caller.task(&id).await["status"], "COMPLETED", "the task itself can still be read");
}

#[tokio::test]
async fn an_unreadable_finished_task_is_left_out_of_lists() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = Serve::new(PUNCTUAL, &data);
    let mut node = serve.start().await;
    let caller = caller_of(&node);
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(caller.submit_id(json!({"type": "t", "queue": "q"})).await);
        let lease = caller.lease_one("q").await;
        caller.report("complete", &lease, json!({})).await.expect(200);
    }
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
    damage(&data, "UPDATE history SET lane = 99 WHERE seq = 1");
    let node = serve.start().await;
    let caller = caller_of(&node);
    let listed = caller.api.get("/v1/tasks?status=COMPLETED").await.expect(200);
    let listed: Vec<String> = listed["items"].as_array().unwrap().iter().map(id_of).collect();
    assert_eq!(listed, ids[1..]);
    node.until_logged(&["cannot read a finished task", &ids[0]]).await;
}
