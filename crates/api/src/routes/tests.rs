//! The promises of all lists: pages, cursors, parameters and tenants. `/v1/tasks` and
//! `/v1/schedules` are tested through a real server.

use punctual_core::breakers::Breakers;
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::registry::Registry;
use serde_json::{Value, json};

use crate::presence::PresenceFlusher;
use crate::testing::{World, node, open_breaker};

/// A list: where it is, a member of its items, and the values of that in the order of the list.
type List = (String, &'static str, Value);

/// A world with something in every list.
async fn filled() -> (World, Vec<List>) {
    let world = World::new();
    for (number, worker) in ["a", "é ∞", "c", "bb", "b"].into_iter().enumerate() {
        let polling = json!({"worker_id": worker, "queues": ["q"]});
        world.send("POST", "/v1/leases", Some(polling)).await.expect(200);
        if number == 2 {
            // The rest is only in memory.
            PresenceFlusher::new(world.api.clone()).run_once().await.unwrap();
        }
    }
    for queue in ["b", "a%2Fb", "c", "a"] {
        world.send("POST", &format!("/v1/queues/{queue}/pause"), None).await.expect(200);
    }
    let task = world.submit(json!({"type": "t", "queue": "d", "delay_seconds": 60})).await;
    for _ in 0..2 {
        world.send("PATCH", &format!("/v1/tasks/{task}"), Some(json!({"delay_seconds": 60}))).await.expect(200);
        world.send("POST", &format!("/v1/tasks/{task}/run"), None).await.expect(200);
    }
    for number in [3, 1, 2] {
        world.sqlite.record_node(node(NodeId::new(number))).await.unwrap();
    }
    world.sqlite.take_share(NodeId::new(1), 3, 30_000).await.unwrap();
    let breakers =
        [("a", ""), ("a", "http://a:80"), ("b", ""), ("b", "http://b:80"), ("b", "http://b:81"), ("c", "http://c:80")];
    for (tenant, target) in breakers {
        assert!(world.sqlite.open_breaker(open_breaker(tenant, target, 60_000)).await.unwrap());
    }
    let lists = [
        ("/v1/workers", "worker_id", json!(["a", "b", "bb", "c", "é ∞"])),
        ("/v1/queues", "name", json!(["a", "a/b", "b", "c", "d"])),
        (&format!("/v1/tasks/{task}/events"), "reason", json!(["submitted", "edited", "run_now", "edited", "run_now"])),
        ("/v1/admin/nodes", "id", json!([1, 2, 3].map(|number| NodeId::new(number).to_string()))),
        ("/v1/admin/partitions", "partition", json!([0, 1, 2])),
        ("/v1/admin/breakers", "target", json!(breakers.map(|(_, target)| Some(target).filter(|t| !t.is_empty())))),
        ("/v1/admin/breakers?tenant=b", "target", json!([null, "http://b:80", "http://b:81"])),
        ("/v1/admin/breakers?tenant=c", "target", json!(["http://c:80"])),
        ("/v1/admin/breakers?tenant=nobody", "target", json!([])),
    ];
    (world, lists.map(|(path, member, expected)| (path.to_owned(), member, expected)).to_vec())
}

/// The path of a list with one more parameter.
fn with(path: &str, parameter: &str) -> String {
    format!("{path}{}{parameter}", if path.contains('?') { '&' } else { '?' })
}

#[tokio::test]
async fn pages_of_a_list_follow_each_other() {
    let (world, lists) = filled().await;
    for (path, member, expected) in lists {
        for limit in [1, 2, 5, 1_000] {
            let (mut items, mut page) = (Vec::new(), world.get(&with(&path, &format!("limit={limit}"))).await);
            loop {
                assert!(page["items"].as_array().unwrap().len() <= limit, "{path}: {page}");
                items.extend(page["items"].as_array().unwrap().clone());
                let Some(cursor) = page["next_cursor"].as_str() else { break };
                assert!(items.len() < expected.as_array().unwrap().len(), "nothing follows a page that holds the rest");
                page = world.get(&with(&path, &format!("limit={limit}&cursor={cursor}"))).await;
            }
            let listed: Value = items.into_iter().map(|mut item| item[member].take()).collect();
            assert_eq!(listed, expected, "{path}, {limit} at a time");
        }
    }
}

#[tokio::test]
async fn a_cursor_is_good_for_its_own_list_only() {
    let (world, lists) = filled().await;
    for (path, ..) in &lists {
        let page = world.get(&with(path, "limit=1")).await;
        let Some(cursor) = page["next_cursor"].as_str() else { continue };
        let runs = (path.replace("/events", "/runs"), "", json!([]));
        for (other, ..) in lists.iter().chain([&runs]).filter(|(other, ..)| other != path) {
            let answer = world.send("GET", &with(other, &format!("cursor={cursor}")), None).await;
            assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "invalid_cursor"), "{path} {other}");
        }
    }
}

#[tokio::test]
async fn a_list_refuses_parameters_it_does_not_take() {
    let (world, lists) = filled().await;
    for (path, ..) in lists {
        for parameter in ["limit=0", "lim=1"] {
            let answer = world.send("GET", &with(&path, parameter), None).await;
            assert_eq!(answer.pointers(), [format!("?{}", &parameter[..parameter.len() - 2])], "{path}");
        }
    }
    assert_eq!(world.send("GET", "/v1/admin/breakers?tenant=", None).await.pointers(), ["?tenant"]);
}

#[tokio::test]
async fn a_list_shows_nothing_of_other_tenants() {
    let (world, _) = filled().await;
    for path in ["/v1/workers", "/v1/queues"] {
        let answer = world.send_with("GET", path, ("punctual-tenant", "other")).await;
        assert_eq!(answer.expect(200)["items"], json!([]), "{path}");
    }
}
