//! Reasons that concern the claimant of a task: the pull worker or the node that would take it.

use punctual_client::Reason;
use punctual_core::lane::Route;
use punctual_core::partitions::Partition;
use punctual_core::time::Timestamp;
use punctual_scheduler::dispatch_status::{BacklogPace, SlotOwner, WebhookStatus};

use super::reason;
use super::wording::{doing, later, or_more, quantity, queue_ahead, thousands, with_position};
use crate::explain::facts::{ExpectedClaimant, Facts, OwnerNode, PollingWorkers};

/// The obstacles of a task that its queue would allow to run.
pub(super) fn obstacles(facts: &Facts) -> Vec<Reason> {
    match &facts.claimant {
        Some(ExpectedClaimant::Workers(workers @ PollingWorkers { known: 0, .. })) => {
            vec![no_worker_polls(facts, *workers)]
        }
        Some(ExpectedClaimant::None { partition, since }) => vec![no_node_owns(facts, *partition, *since)],
        Some(ExpectedClaimant::Here(WebhookStatus { backlog, crowded })) => {
            let backlog = backlog.map(|pace| found_backlog(facts, pace));
            backlog.into_iter().chain((!crowded.is_empty()).then(|| no_free_slot(facts, crowded))).collect()
        }
        Some(ExpectedClaimant::Workers(_) | ExpectedClaimant::Elsewhere(_)) | None => Vec::new(),
    }
}

/// Nothing is in its way: it only has to be taken.
pub(super) fn about_to_be_taken(facts: &Facts) -> Reason {
    let key = &facts.task.lane.key;
    let line = queue_ahead(facts.ahead);
    let base = match (&facts.claimant, &key.route) {
        (Some(ExpectedClaimant::Elsewhere(owner)), _) => dispatched_elsewhere(facts, owner),
        (Some(ExpectedClaimant::Workers(workers)), _) => waits_for_workers(facts, *workers),
        (_, Route::Push(target)) => {
            let message = format!("it is due and about to be handed to a webhook worker for {target}; {line}");
            Reason { target: Some(target.clone()), ..reason("due_waiting_for_worker", message) }
        }
        (_, Route::Pull) => {
            let message = format!("it is due and waits for a pull worker of queue {} to take it; {line}", key.queue);
            reason("due_waiting_for_worker", message)
        }
    };
    with_position(Reason { queue: Some(key.queue.clone()), ..base }, facts.ahead)
}

/// Names the node that dispatches the task: only that node knows its slots and its backlog.
fn dispatched_elsewhere(facts: &Facts, owner: &OwnerNode) -> Reason {
    let OwnerNode { partition, node, seen, taken_over_at } = owner;
    let (number, line) = (partition.number(), queue_ahead(facts.ahead));
    let name = seen.as_ref().map(|seen| seen.name.clone());
    let address = seen.as_ref().map(|seen| seen.address.clone()).filter(|address| !address.is_empty());
    let last_seen_at = seen.as_ref().map(|seen| seen.last_seen_at);
    let named = name.as_deref().unwrap_or("of an unknown name");
    let mut when = last_seen_at.map(|at| format!(" and was last seen at {at}")).unwrap_or_default();
    if let Some(at) = taken_over_at {
        when = format!("{when}; it is silent: unless it reports before, another node takes over at {at}");
    }
    let ask = match &address {
        Some(address) => format!("ask it at {address} for the explanation of this task"),
        None => "where it listens is not known".to_owned(),
    };
    let message = format!(
        "it is due and dispatched by node {named} ({node}), which owns partition {number} of its queue{when}; only that \
         node knows whether it has a free slot; {ask}; {line}"
    );
    Reason {
        until: *taken_over_at,
        by: Some(node.to_string()),
        node: name,
        address,
        last_seen_at,
        partition: Some(number),
        ..reason("due_waiting_for_worker", message)
    }
}

/// Workers poll for such tasks. If all of them hold tasks, that is why the task waits.
fn waits_for_workers(facts: &Facts, workers: PollingWorkers) -> Reason {
    let PollingWorkers { known, busy, tasks, or_more: more } = workers;
    let (key, line) = (&facts.task.lane.key, queue_ahead(facts.ahead));
    let (code, message) = if busy == known {
        let workers = match known {
            1 if !more => "the only worker that polls".to_owned(),
            1 => "the only known worker that polls".to_owned(),
            _ if more => format!("all {} known workers that poll", thousands(known)),
            _ => format!("all {} workers that poll", thousands(known)),
        };
        let held = if more { format!("{} tasks", or_more(tasks, more)) } else { quantity(tasks, "task") };
        let message = format!(
            "it is due, and {workers} for queue {} or type {} {} busy with {held}: it is taken when one of them asks for more, \
             or another comes; {line}",
            key.queue,
            key.kind,
            if known == 1 { "is" } else { "are" },
        );
        ("workers_busy", message)
    } else {
        let message = format!(
            "it is due and waits for a pull worker of queue {} to take it; workers that poll for such tasks: {}, of which {} \
             tasks; {line}",
            key.queue,
            or_more(known, more),
            doing(busy, "hold"),
        );
        ("due_waiting_for_worker", message)
    };
    Reason { workers: Some(known), busy: Some(busy), ..reason(code, message) }
}

fn no_worker_polls(facts: &Facts, workers: PollingWorkers) -> Reason {
    let key = &facts.task.lane.key;
    let missed = if workers.or_more { "; not all workers were read" } else { "" };
    let message = format!(
        "it is due, but no worker has asked for queue {} or type {} in the last minute, and none that did before holds a \
         task{missed}",
        key.queue, key.kind
    );
    Reason { queue: Some(key.queue.clone()), ..reason("no_worker_polling", message) }
}

fn no_node_owns(facts: &Facts, partition: Partition, since: Option<Timestamp>) -> Reason {
    let (queue, number) = (facts.task.lane.key.queue.clone(), partition.number());
    let when = since.map_or_else(|| "owns".to_owned(), |since| format!("has owned since {since}"));
    let message = format!(
        "queue {queue} is in partition {number}, which no node {when}: its webhooks are dispatched as soon as a node with \
         the role scheduler takes it"
    );
    Reason { since, queue: Some(queue), partition: Some(number), ..reason("no_partition_owner", message) }
}

fn found_backlog(facts: &Facts, BacklogPace { since, per_second }: BacklogPace) -> Reason {
    let message = format!(
        "it was due before this node took over its queue at {since}; the node dispatches the tasks it found then \
         at {} per second, after those that fell due since; {}",
        thousands(u64::from(per_second)),
        queue_ahead(facts.ahead)
    );
    #[expect(clippy::cast_precision_loss, reason = "a double is exact far beyond any count of tasks")]
    let before = facts.ahead.tasks as f64;
    let base = Reason {
        since: Some(since),
        until: (!facts.ahead.or_more).then(|| later(facts.now, before, f64::from(per_second))),
        queue: Some(facts.task.lane.key.queue.clone()),
        per_second: Some(f64::from(per_second)),
        ..reason("found_backlog", message)
    };
    with_position(base, facts.ahead)
}

fn no_free_slot(facts: &Facts, crowded: &[SlotOwner]) -> Reason {
    let key = &facts.task.lane.key;
    let target = match &key.route {
        Route::Push(target) => Some(target.clone()),
        Route::Pull => None,
    };
    let whose = |crowded: &SlotOwner| match crowded {
        SlotOwner::Target => format!("target {}", target.as_deref().unwrap_or_default()),
        SlotOwner::Tenant => format!("tenant {}", key.tenant),
        SlotOwner::Band(band) => format!("tasks of {} priority", band.as_str()),
    };
    let word = |crowded: &SlotOwner| match crowded {
        SlotOwner::Target => "target",
        SlotOwner::Tenant => "tenant",
        SlotOwner::Band(_) => "band",
    };
    let all: Vec<String> = crowded.iter().map(whose).collect();
    let message = format!(
        "no webhook worker of this node is free for it: all slots of {} are taken until a call ends; {}",
        all.join(" and "),
        queue_ahead(facts.ahead)
    );
    let crowded = crowded.iter().map(|crowded| word(crowded).to_owned()).collect();
    with_position(Reason { target, crowded, ..reason("webhook_places", message) }, facts.ahead)
}
