//! Ordering keys on several nodes: the tasks of a key are in queues of different nodes, and pull
//! workers of every node take some of them.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::json;

use super::{expect_turns, numbers};
use crate::it::cluster::Cluster;
use crate::it::partitions::queue_of_each;
use crate::it::workers::Workers;
use crate::it::world::{SOON, id_of, merged, quick, written};

const KEYS: usize = 4;
const OF_EACH: usize = 20;

/// The tasks of a key; the runs of all of them, webhooks and pulled, call the sink.
struct Key {
    name: String,
    sink: Sink,
    ids: Vec<String>,
}

/// Whether a task is for pull workers: some in every queue are.
fn is_pulled(number: usize) -> bool {
    number % 4 == 3
}

/// Submits the tasks of all keys, one of each at a time, at alternating nodes, spread over queues
/// of all nodes. The tasks of the first key with these numbers are webhooks whose first call gets
/// no answer.
async fn submit(cluster: &Cluster, stuck: &[usize]) -> Vec<Key> {
    let queues = queue_of_each(cluster).await;
    let key = |number: usize| Key { name: format!("k{number}"), sink: Sink::start(), ids: Vec::new() };
    let mut keys: Vec<Key> = (0..KEYS).map(key).collect();
    for key in &keys {
        key.sink.answer("/", SinkAnswer::status(200).after(Duration::from_millis(20)));
        key.sink.script(
            "/stuck",
            [SinkAnswer::hang(), SinkAnswer::status(200), SinkAnswer::hang(), SinkAnswer::status(200)],
        );
    }
    // One instant for all, so that only the order of submission decides.
    let execute_at = written(Timestamp::now());
    for number in 0..OF_EACH {
        let task = |(place, key): (usize, &Key)| {
            let task = json!({
                "type": "t",
                "queue": queues[number % queues.len()],
                "ordering_key": key.name,
                "execute_at": execute_at,
                "payload": {"number": number, "sink": key.sink.url("/")},
                "retry_policy": quick(20),
            });
            let path = if place == 0 && stuck.contains(&number) { "/stuck" } else { "/" };
            let pushed = json!({"callback_url": key.sink.url(path)});
            merged(task, if is_pulled(number) { json!({"type": "u"}) } else { pushed })
        };
        let tasks = keys.iter().enumerate().map(task).collect();
        let submitted = cluster.caller(number / 2 % cluster.nodes.len()).submit_all(tasks).await;
        for (key, task) in keys.iter_mut().zip(&submitted) {
            key.ids.push(id_of(task));
        }
    }
    keys
}

#[tokio::test]
async fn one_of_a_key_runs_at_a_time_on_several_nodes() {
    let cluster = Cluster::start(3).await;
    let workers = Workers::start(cluster.callers(), KEYS);
    for key in submit(&cluster, &[]).await {
        let (mut callers, mut pullers) = (BTreeSet::new(), BTreeSet::new());
        for (number, id) in key.ids.iter().enumerate() {
            cluster.caller(0).until_within(id, "COMPLETED", SOON * 3).await;
            let runs = cluster.caller(0).runs(id).await;
            assert_eq!(runs.len(), 1, "{runs:#?}");
            let names = if is_pulled(number) { &mut pullers } else { &mut callers };
            names.insert(runs[0]["worker_id"].to_string());
        }
        assert_eq!(callers.len(), 3, "webhooks of a key on every node");
        assert!(!pullers.is_empty());
        expect_turns(&key.sink, OF_EACH);
        assert_eq!(numbers(&key.sink).len(), OF_EACH);
    }
    workers.end().await;
}

/// Kills the node that calls the webhook which has the turn, twice.
#[tokio::test]
async fn the_order_survives_killed_nodes() {
    let stuck = [5, 14];
    let mut cluster = Cluster::start(3).await;
    let workers = Workers::start(cluster.callers(), KEYS);
    let keys = submit(&cluster, &stuck).await;
    for (number, hits) in stuck.into_iter().zip([1, 3]) {
        keys[0].sink.wait_for("/stuck", hits, SOON * 2).await;
        let running = cluster.caller(0).until(&keys[0].ids[number], "RUNNING").await;
        let node = cluster.place_of(running["worker_id"].as_str().expect("a name")).await.expect("a node that lives");
        cluster.replace(node).await;
        workers.moved(node, cluster.caller(node));
    }
    for key in &keys {
        for id in &key.ids {
            cluster.caller(0).until_within(id, "COMPLETED", SOON * 3).await;
        }
        expect_turns(&key.sink, OF_EACH);
    }
    for number in stuck {
        let hits = numbers(&keys[0].sink).into_iter().filter(|hit| *hit == number).count();
        let retries = cluster.caller(0).task(&keys[0].ids[number]).await["retry_count"].as_u64();
        assert_eq!((hits, retries), (2, Some(1)), "the run was lost and repeated");
    }
    workers.end().await;
}
