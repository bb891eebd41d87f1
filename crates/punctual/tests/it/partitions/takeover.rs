//! Who takes over from a node that dies, freezes or loses its connections, at default settings: the
//! lease is thirty seconds.

use super::*;

/// Far less than a lease, and more than a busy machine needs.
const AT_ONCE: Duration = Duration::from_secs(12);
/// Longer than it takes to notice a node that is gone, in seconds.
const A_WHILE: f64 = 4.0;

const GONE: &str = "a node is gone";

/// Waits until a node that `is_it` leads.
async fn until_led(caller: &Caller, is_it: impl Fn(&Value) -> bool) -> Value {
    eventually("the node leads", AT_ONCE, async || {
        let nodes = caller.list("/v1/admin/nodes").await;
        let leader = nodes.iter().find(|node| node["leader"] == true && is_it(node)).cloned();
        leader.ok_or_else(|| format!("{nodes:#?}"))
    })
    .await
}

/// Lets a while pass: until a webhook of this queue has been called then.
async fn pass_a_while(caller: &Caller, queue: &str) {
    let sink = Sink::start();
    let due = written(in_seconds(A_WHILE));
    caller.submit(json!({"type": "t", "queue": queue, "callback_url": sink.url("/"), "execute_at": due})).await;
    sink.wait_for("/", 1, SOON).await;
}

/// Nodes at default settings that share all partitions, one of which leads.
async fn started(nodes: usize) -> (Cluster, Owners) {
    let cluster = Cluster::with_leases(nodes, None).await;
    let owners = until_shared(&cluster.caller(0), nodes, Duration::from_secs(40)).await;
    until_led(&cluster.caller(0), |_| true).await;
    (cluster, owners)
}

#[tokio::test]
async fn everything_of_a_killed_node_moves_at_once() {
    let ((mut cluster, _), sink) = (started(3).await, Sink::start());
    let leader = until_led(&cluster.caller(0), |_| true).await;
    let place = cluster.nodes.iter().position(|node| leader["address"] == node.address()).expect("it is one of them");
    let queue = queue_of_each(&cluster).await.swap_remove(place);
    sink.answer("/", SinkAnswer::hang());
    let task = json!({"type": "t", "queue": queue, "callback_url": sink.url("/"), "retry_policy": quick(3)});
    let id = cluster.caller(place).submit_id(task).await;
    cluster.caller(place).until(&id, "RUNNING").await;
    sink.wait_for("/", 1, SOON).await;
    sink.answer("/", SinkAnswer::status(200));

    cluster.nodes.remove(place).kill();
    let begun = Instant::now();
    let survivor = cluster.caller(0);
    until_shared(&survivor, 2, AT_ONCE).await;
    until_led(&survivor, |node| node["id"] != leader["id"]).await;
    survivor.until_within(&id, "COMPLETED", AT_ONCE).await;
    assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    let runs = survivor.runs(&id).await;
    assert_eq!(runs[0]["error"]["code"], "worker_lost", "{runs:#?}");
    let logs: String = cluster.nodes.iter().map(TestServer::log).collect();
    assert_eq!(logs.matches(GONE).count(), 1, "one node declares it: {logs}");
    let worker = runs[0]["worker_id"].as_str().expect("a run has a worker");
    let is_named = |line: &str| line.contains("took back the tasks of a lost worker") && line.contains(worker);
    assert!(logs.lines().any(|line| is_named(line) && line.contains(&id)), "{logs}");
}

#[tokio::test]
async fn a_node_takes_over_from_its_own_last_process() {
    let (mut cluster, _) = started(1).await;
    cluster.replace(0).await;
    let own = id_of_node(&cluster.caller(0), &cluster.nodes[0]).await;
    eventually("the new process owns everything", AT_ONCE, async || {
        let shares = shares(&owners(&cluster.caller(0)).await);
        if shares == BTreeMap::from([(own.clone(), PARTITIONS)]) { Ok(()) } else { Err(format!("{shares:?}")) }
    })
    .await;
    until_led(&cluster.caller(0), |node| node["id"] == *own).await;
}

#[tokio::test]
async fn a_frozen_node_keeps_what_it_has_for_its_lease() {
    let (mut cluster, before) = started(2).await;
    let queues = queue_of_each(&cluster).await;
    cluster.nodes[0].process().signal("STOP");
    pass_a_while(&cluster.caller(1), &queues[1]).await;
    let after = owners(&cluster.caller(1)).await;
    cluster.nodes[0].process().signal("CONT");
    assert_eq!(after, before);
    pass_a_while(&cluster.caller(1), &queues[0]).await;
    assert_eq!(owners(&cluster.caller(1)).await, before);
}

#[tokio::test]
async fn a_node_that_loses_its_lock_keeps_what_it_has() {
    let (cluster, before) = started(2).await;
    let queues = queue_of_each(&cluster).await;
    let database = punctual_testkit::postgres::connect(&cluster.database).await;
    let mut known = Vec::new();
    for _ in 0..5 {
        let locks = eventually("both nodes hold new locks", AT_ONCE, async || {
            let rows = database.query("SELECT backend FROM punctual.node_locks ORDER BY 1", &[]).await;
            let locks: Vec<i32> = rows.expect("the locks can be read").iter().map(|row| row.get(0)).collect();
            let are_new = locks.len() == 2 && locks.iter().all(|lock| !known.contains(lock));
            if are_new { Ok(locks) } else { Err(format!("{locks:?}")) }
        })
        .await;
        for lock in &locks {
            database.query("SELECT pg_terminate_backend($1)", &[lock]).await.expect("a connection can be ended");
        }
        known.extend(locks);
    }
    pass_a_while(&cluster.caller(0), &queues[1]).await;
    assert_eq!(owners(&cluster.caller(0)).await, before);
    assert!(cluster.nodes.iter().all(|node| !node.log().contains(GONE)));
}

#[tokio::test]
async fn nothing_moves_when_the_database_restarts() {
    let ((mut cluster, before), sink) = (started(2).await, Sink::start());
    let ids = submit_webhooks(&cluster.caller(0), &sink, 400, 0.5, 8.0).await;
    sink.wait_for("/", 50, SOON).await;
    cluster.restart_postgres().await;
    // Until then a call may meet a connection that the restart has broken.
    sink.wait_for("/", ids.len(), Duration::from_mins(1)).await;
    until_delivered(&cluster.caller(0), &sink, &ids).await;
    let queues = queue_of_each(&cluster).await;
    pass_a_while(&cluster.caller(0), &queues[1]).await;
    assert_eq!(owners(&cluster.caller(1)).await, before);
    assert!(cluster.nodes.iter().all(|node| !node.log().contains(GONE)));
}
