//! What is in the way of whoever is to take a task.

use punctual_client::Reason;
use punctual_core::lane::Route;
use punctual_core::partitions::Partition;
use punctual_core::time::Timestamp;
use punctual_scheduler::outlook::{Crowded, Dispatch, Found};

use super::line::{doing, in_line, later, many, or_more, others, thousands};
use super::reason;
use crate::explain::facts::{Facts, Owner, Taker, Workers};

/// What keeps a task from being taken that its queue would let go.
pub(super) fn obstacles(facts: &Facts) -> Vec<Reason> {
    match &facts.taker {
        Some(Taker::Workers(workers @ Workers { known: 0, .. })) => vec![nobody_polls(facts, *workers)],
        Some(Taker::Nobody { partition, since }) => vec![nobody_owns(facts, *partition, *since)],
        Some(Taker::Here(Dispatch { found, crowded })) => {
            let found = found.map(|found| found_backlog(facts, found));
            found.into_iter().chain((!crowded.is_empty()).then(|| no_place(facts, crowded))).collect()
        }
        Some(Taker::Workers(_) | Taker::Elsewhere(_)) | None => Vec::new(),
    }
}

/// Nothing is in its way but that somebody takes it.
pub(super) fn about_to_be_taken(facts: &Facts) -> Reason {
    let key = &facts.task.lane.key;
    let line = others(facts.ahead);
    let told = match (&facts.taker, &key.route) {
        (Some(Taker::Elsewhere(owner)), _) => dispatched_elsewhere(facts, owner),
        (Some(Taker::Workers(workers)), _) => waits_for_workers(facts, *workers),
        (_, Route::Push(target)) => {
            let message = format!("it is due and about to be handed to a webhook worker for {target}; {line}");
            Reason { target: Some(target.clone()), ..reason("due_waiting_for_worker", message) }
        }
        (_, Route::Pull) => {
            let message = format!("it is due and waits for a pull worker of queue {} to take it; {line}", key.queue);
            reason("due_waiting_for_worker", message)
        }
    };
    in_line(Reason { queue: Some(key.queue.clone()), ..told }, facts.ahead)
}

/// Places and the found backlog are known to the node that dispatches it, so that one is named with all that is known.
fn dispatched_elsewhere(facts: &Facts, Owner { partition, node, seen }: &Owner) -> Reason {
    let (number, line) = (partition.number(), others(facts.ahead));
    let name = seen.as_ref().map(|seen| seen.name.clone());
    let address = seen.as_ref().map(|seen| seen.address.clone()).filter(|address| !address.is_empty());
    let last_seen_at = seen.as_ref().map(|seen| seen.last_seen_at);
    let named = name.as_deref().unwrap_or("of an unknown name");
    let when = last_seen_at.map(|at| format!(" and was last seen at {at}")).unwrap_or_default();
    let ask = match &address {
        Some(address) => format!("ask it at {address} for the explanation of this task"),
        None => "where it listens is not known".to_owned(),
    };
    let message = format!(
        "it is due and dispatched by node {named} ({node}), which owns partition {number} of its queue{when}: whether that \
         has a place for it, only that node can tell; {ask}; {line}"
    );
    Reason {
        by: Some(node.to_string()),
        node: name,
        address,
        last_seen_at,
        partition: Some(number),
        ..reason("due_waiting_for_worker", message)
    }
}

/// Workers that ask for such tasks are there. If all of them hold some, that is why nobody takes it.
fn waits_for_workers(facts: &Facts, workers: Workers) -> Reason {
    let Workers { known, busy, tasks, or_more: more } = workers;
    let (key, line) = (&facts.task.lane.key, others(facts.ahead));
    let (code, message) = if busy == known {
        let who = match known {
            1 if !more => "the only worker that asks".to_owned(),
            1 => "the only worker that was looked at and asks".to_owned(),
            _ if more => format!("all {} workers that were looked at and ask", thousands(known)),
            _ => format!("all {} workers that ask", thousands(known)),
        };
        let held = if more { format!("{} tasks", or_more(tasks, more)) } else { many(tasks, "task") };
        let message = format!(
            "it is due, and {who} for queue {} or type {} {} busy with {held}: it is taken when one of them asks for more, \
             or another comes; {line}",
            key.queue,
            key.kind,
            if known == 1 { "is" } else { "are" },
        );
        ("workers_busy", message)
    } else {
        let message = format!(
            "it is due and waits for a pull worker of queue {} to take it; workers that ask for such tasks: {}, of which {} \
             tasks; {line}",
            key.queue,
            or_more(known, more),
            doing(busy, "hold"),
        );
        ("due_waiting_for_worker", message)
    };
    Reason { workers: Some(known), busy: Some(busy), ..reason(code, message) }
}

fn nobody_polls(facts: &Facts, workers: Workers) -> Reason {
    let key = &facts.task.lane.key;
    let missed = if workers.or_more { "; not all workers were looked at" } else { "" };
    let message = format!(
        "it is due, but no worker has asked for queue {} or type {} in the last minute, and none that did before holds a \
         task{missed}",
        key.queue, key.kind
    );
    Reason { queue: Some(key.queue.clone()), ..reason("no_worker_polling", message) }
}

fn nobody_owns(facts: &Facts, partition: Partition, since: Option<Timestamp>) -> Reason {
    let (queue, number) = (facts.task.lane.key.queue.clone(), partition.number());
    let when = since.map_or_else(|| "owns".to_owned(), |since| format!("has owned since {since}"));
    let message = format!(
        "queue {queue} is in partition {number}, which no node {when}: its webhooks are dispatched as soon as a node with \
         the role scheduler takes it"
    );
    Reason { since, queue: Some(queue), partition: Some(number), ..reason("no_partition_owner", message) }
}

fn found_backlog(facts: &Facts, Found { since, per_second }: Found) -> Reason {
    let message = format!(
        "it was due before this node took over its queue at {since}; of what was found then {} a second {} dispatched, \
         after what has come due since; {}",
        thousands(u64::from(per_second)),
        if per_second == 1 { "is" } else { "are" },
        others(facts.ahead)
    );
    #[expect(clippy::cast_precision_loss, reason = "nobody counts as far as a double cannot")]
    let before = facts.ahead.tasks as f64;
    let told = Reason {
        since: Some(since),
        until: (!facts.ahead.or_more).then(|| later(facts.now, before, f64::from(per_second))),
        queue: Some(facts.task.lane.key.queue.clone()),
        per_second: Some(f64::from(per_second)),
        ..reason("found_backlog", message)
    };
    in_line(told, facts.ahead)
}

fn no_place(facts: &Facts, crowded: &[Crowded]) -> Reason {
    let key = &facts.task.lane.key;
    let target = match &key.route {
        Route::Push(target) => Some(target.clone()),
        Route::Pull => None,
    };
    let whose = |crowded: &Crowded| match crowded {
        Crowded::Target => format!("target {}", target.as_deref().unwrap_or_default()),
        Crowded::Tenant => format!("tenant {}", key.tenant),
        Crowded::Band(band) => format!("tasks of {} priority", band.as_str()),
    };
    let word = |crowded: &Crowded| match crowded {
        Crowded::Target => "target",
        Crowded::Tenant => "tenant",
        Crowded::Band(_) => "band",
    };
    let all: Vec<String> = crowded.iter().map(whose).collect();
    let message = format!(
        "no webhook worker of this node is free for it: the places that {} may have are taken until a call ends; {}",
        all.join(" and "),
        others(facts.ahead)
    );
    let crowded = crowded.iter().map(|crowded| word(crowded).to_owned()).collect();
    in_line(Reason { target, crowded, ..reason("webhook_places", message) }, facts.ahead)
}
