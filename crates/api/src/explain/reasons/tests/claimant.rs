//! Reasons that name the expected claimant.

use punctual_core::partitions::Partition;
use punctual_core::registry::{NodePresence, NodeSession};
use punctual_scheduler::fairness::Band;

use super::*;
use crate::explain::facts::OwnerNode;

#[test]
fn no_worker_polls_for_it() {
    let mut facts = Facts { claimant: Some(ExpectedClaimant::Workers(PollingWorkers::default())), ..pulled() };
    let (reason, eta) = shown(&facts);
    assert_eq!((&reason["code"], &reason["queue"], eta), (&json!("no_worker_polling"), &json!("mail"), None));
    let expected = "it is due, but no worker has asked for queue mail or type send in the last minute, and none that did \
                    before holds a task";
    assert_eq!(reason["message"], expected);
    facts.claimant = Some(ExpectedClaimant::Workers(PollingWorkers { or_more: true, ..PollingWorkers::default() }));
    assert_eq!(message(&shown(&facts).0), format!("{expected}; not all workers were read"));
}

#[test]
fn workers_that_are_all_busy() {
    let busy =
        |known, tasks, or_more| Some(ExpectedClaimant::Workers(PollingWorkers { known, busy: known, tasks, or_more }));
    let mut facts = Facts { claimant: busy(3, 1_200, false), ahead: ahead(1), ..pulled() };
    let expected = json!({
        "code": "workers_busy",
        "message": "it is due, and all 3 workers that poll for queue mail or type send are busy with 1,200 tasks: it is taken \
                    when one of them asks for more, or another comes; one other task of the queue goes before it",
        "queue": "mail",
        "workers": 3,
        "busy": 3,
        "position": 2,
    });
    assert_eq!(shown(&facts), (expected, None));
    facts.claimant = busy(1, 1, false);
    let only = "the only worker that polls for queue mail or type send is busy with 1 task:";
    assert!(message(&shown(&facts).0).contains(only), "{:?}", shown(&facts));
    facts.claimant = busy(1, 1, true);
    assert!(
        message(&shown(&facts).0)
            .contains("the only known worker that polls for queue mail or type send is busy with 1 or more tasks:"),
        "{:?}",
        shown(&facts)
    );
    // If a queue limit holds the task, only that reason is shown.
    facts.queue.settings.max_concurrency = Some(0);
    assert_eq!(codes(&facts), ["queue_concurrency"]);
}

#[test]
fn a_partition_without_an_owner() {
    let partition = Partition::new(7);
    let facts = Facts { claimant: Some(ExpectedClaimant::None { partition, since: Some(NOW) }), ..pushed() };
    let (reason, eta) = shown(&facts);
    assert_eq!((&reason["code"], &reason["partition"], eta), (&json!("no_partition_owner"), &json!(7), None));
    assert_eq!(reason["since"], "2026-05-22T18:00:00.000Z");
    let message = reason["message"].as_str().unwrap();
    assert!(message.contains("partition 7, which no node has owned since 2026-05-22T18:00:00.000Z"), "{message}");
    let facts = Facts { claimant: Some(ExpectedClaimant::None { partition, since: None }), ..facts };
    assert!(shown(&facts).0["message"].as_str().unwrap().contains("which no node owns"));
}

#[test]
fn the_found_backlog() {
    let backlog = Some(BacklogPace { since: NOW.plus_millis(-500), per_second: 10 });
    let here = WebhookStatus { backlog, crowded: Vec::new() };
    let mut facts = Facts { claimant: Some(ExpectedClaimant::Here(here)), ahead: ahead(25), ..pushed() };
    let (reason, eta) = shown(&facts);
    assert_eq!((&reason["code"], eta), (&json!("found_backlog"), Some(2_500)));
    assert_eq!((&reason["per_second"], &reason["position"]), (&json!(10.0), &json!(26)));
    assert_eq!(reason["since"], "2026-05-22T17:59:59.500Z");
    assert!(message(&reason).contains("dispatches the tasks it found then at 10 per second"), "{reason}");
    facts.ahead.or_more = true;
    assert_eq!(shown(&facts).1, None);
    let backlog = backlog.map(|pace| BacklogPace { per_second: 1, ..pace });
    facts.claimant = Some(ExpectedClaimant::Here(WebhookStatus { backlog, crowded: Vec::new() }));
    assert!(
        message(&shown(&facts).0).contains("dispatches the tasks it found then at 1 per second"),
        "{:?}",
        shown(&facts)
    );
}

#[test]
fn no_free_slot_for_a_webhook() {
    let crowded = vec![SlotOwner::Target, SlotOwner::Tenant, SlotOwner::Band(Band::Normal)];
    let facts = Facts { claimant: Some(ExpectedClaimant::Here(WebhookStatus { backlog: None, crowded })), ..pushed() };
    let expected = json!({
        "code": "webhook_places",
        "message": format!(
            "no webhook worker of this node is free for it: all slots of target {TARGET} and tenant acme and tasks of \
             normal priority are taken until a call ends; it is the next"
        ),
        "target": TARGET,
        "crowded": ["target", "tenant", "band"],
        "position": 1,
    });
    assert_eq!(shown(&facts), (expected, None));
}

#[test]
fn only_a_claimant_is_missing() {
    let (reason, eta) = shown(&Facts { ahead: ahead(1), ..pulled() });
    assert_eq!((&reason["code"], &reason["position"], eta), (&json!("due_waiting_for_worker"), &json!(2), None));
    assert_eq!(
        reason["message"],
        "it is due and waits for a pull worker of queue mail to take it; workers that poll for such tasks: 2, of which 1 holds \
         tasks; one other task of the queue goes before it"
    );
    assert_eq!((&reason["workers"], &reason["busy"]), (&json!(2), &json!(1)));
    assert_eq!(shown(&pushed()).0["target"], TARGET);
}

#[test]
fn the_node_that_dispatches_it_is_named() {
    let seen = NodePresence {
        id: NodeId::new(2),
        name: "b".into(),
        address: "10.0.0.2:7400".into(),
        roles: Vec::new(),
        version: String::new(),
        skew_millis: 0,
        lease: None,
        first_seen_at: NOW,
        last_seen_at: NOW.plus_millis(-1_000),
        session: NodeSession::Unknown,
        gone_at: None,
    };
    let owner = |seen| OwnerNode { partition: Partition::new(7), node: NodeId::new(2), seen, taken_over_at: None };
    let mut facts = Facts { claimant: Some(ExpectedClaimant::Elsewhere(owner(Some(seen.clone())))), ..pushed() };
    let expected = json!({
        "code": "due_waiting_for_worker",
        "message": "it is due and dispatched by node b (node_0000000000000002), which owns partition 7 of its queue and was \
                    last seen at 2026-05-22T17:59:59.000Z; only that node knows whether it has a free slot; ask it \
                    at 10.0.0.2:7400 for the explanation of this task; it is the next",
        "by": "node_0000000000000002",
        "node": "b",
        "address": "10.0.0.2:7400",
        "last_seen_at": "2026-05-22T17:59:59.000Z",
        "queue": "mail",
        "partition": 7,
        "position": 1,
    });
    assert_eq!(shown(&facts), (expected, None));
    let silent = OwnerNode { taken_over_at: Some(NOW.plus_millis(9_000)), ..owner(Some(seen.clone())) };
    facts.claimant = Some(ExpectedClaimant::Elsewhere(silent));
    let (reason, eta) = shown(&facts);
    let says = "it is silent: unless it reports before, another node takes over at 2026-05-22T18:00:09.000Z";
    assert!(message(&reason).contains(says), "{reason:#}");
    assert_eq!((&reason["until"], eta), (&json!("2026-05-22T18:00:09.000Z"), Some(9_000)));
    facts.claimant = Some(ExpectedClaimant::Elsewhere(owner(Some(NodePresence { address: String::new(), ..seen }))));
    let (reason, _) = shown(&facts);
    assert_eq!((reason.get("address"), &reason["node"]), (None, &json!("b")));
    facts.claimant = Some(ExpectedClaimant::Elsewhere(owner(None)));
    let (reason, _) = shown(&facts);
    assert!(message(&reason).contains("node of an unknown name (node_0000000000000002), which owns partition 7"));
    assert!(message(&reason).contains("where it listens is not known") && reason.get("last_seen_at").is_none());
}
