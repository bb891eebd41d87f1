//! A cluster whose roles are on different nodes: what each node serves and does.

use std::collections::BTreeSet;

use punctual_testkit::eventually::eventually;
use punctual_testkit::sink::Sink;
use serde_json::json;

use crate::it::cluster::Cluster;
use crate::it::world::{SOON, id_of, quick};

/// The nodes in the order in which [`split_cluster`] starts them.
const API: usize = 0;
const LEADER: usize = 1;
const SCHEDULER: usize = 2;

/// One node for the API, one leader, and one that dispatches and calls webhooks.
async fn split_cluster() -> Cluster {
    let mut cluster = Cluster::start(0).await;
    for roles in ["api", "leader", "scheduler,worker"] {
        let node = cluster.serve.clone().arg("--roles").arg(roles).start().await;
        cluster.nodes.push(node);
    }
    cluster
}

impl Cluster {
    /// The metrics of a node.
    async fn metrics(&self, node: usize) -> String {
        let answer = self.caller(node).api.get("/metrics").await;
        assert_eq!(answer.status(), 200, "{answer}");
        answer.text().to_owned()
    }

    /// Returns once a node shows this line among its metrics.
    async fn until_measured(&self, node: usize, line: &str) {
        eventually(line, SOON, async || {
            let metrics = self.metrics(node).await;
            if metrics.lines().any(|other| other == line) { Ok(()) } else { Err(metrics) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_without_the_api_answers_404_under_v1() {
    let cluster = split_cluster().await;
    for node in [LEADER, SCHEDULER] {
        let api = cluster.caller(node).api;
        assert_eq!(api.get("/healthz").await.expect(200), json!({"status": "ok"}));
        let ready = json!({"status": "ready", "checks": {"store": "ok", "broker": "ok", "migrations": "ok"}});
        assert_eq!(api.get("/readyz").await.expect(200), ready);
        let submit = api.post("/v1/tasks", &json!({"type": "t"})).await;
        let poll = api.post("/v1/leases", &json!({"worker_id": "w", "queues": ["q"], "max_tasks": 1})).await;
        for refused in [submit, poll, api.get("/v1/admin/nodes").await, api.get("/openapi.json").await] {
            assert_eq!(refused.problem_code(404, "not_found")["detail"], "there is no such path", "{refused}");
        }
        let mut picky = api.call("GET", "/v1/tasks");
        picky = picky.header("accept", "text/html");
        picky.send().await.problem_code(406, "not_acceptable");
    }
}

#[tokio::test]
async fn every_node_has_the_same_metrics() {
    let cluster = split_cluster().await;
    let families = async |node: usize| -> BTreeSet<String> {
        cluster.metrics(node).await.lines().filter(|line| line.starts_with("# TYPE ")).map(str::to_owned).collect()
    };
    let of_api = families(API).await;
    assert!(of_api.contains("# TYPE punctual_tasks_submitted_total counter"), "{of_api:#?}");
    for node in [LEADER, SCHEDULER] {
        assert_eq!(families(node).await, of_api);
        cluster.until_measured(node, r#"punctual_tasks{state="PENDING"} 0"#).await;
    }
    cluster.until_measured(LEADER, "punctual_leader 1").await;
    cluster.until_measured(SCHEDULER, "punctual_partitions_owned 64").await;
    cluster.until_measured(API, "punctual_partitions_owned 0").await;
}

#[tokio::test]
async fn roles_on_three_nodes_work_together() {
    let (cluster, sink) = (split_cluster().await, Sink::start());
    let caller = cluster.caller(API);
    let schedule = json!({"name": "s", "cron": "* * * * * *", "task": {"type": "t", "callback_url": sink.url("/")}});
    caller.api.post("/v1/schedules", &schedule).await.expect(201);
    sink.wait_for("/", 2, SOON).await;
    let fired = cluster.metrics(LEADER).await;
    assert!(fired.contains(r#"punctual_occurrences_total{outcome="fired"}"#), "{fired}");
    // A worker takes the task from the node with the API and is silent; the leader reaps it.
    let task = json!({"type": "t", "queue": "pulled", "retry_policy": quick(1)});
    let id = caller.submit_id(task).await;
    caller.lease_for("pulled", 1).await;
    let again = caller.lease_one("pulled").await;
    assert_eq!((id_of(&again["task"]), &again["task"]["retry_count"]), (id, &json!(1)));
}
