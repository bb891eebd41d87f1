//! What is in the way of whoever is to take a task.

use punctual_client::Reason;
use punctual_core::lane::Route;
use punctual_core::partitions::Partition;
use punctual_core::time::Timestamp;
use punctual_scheduler::outlook::{Crowded, Dispatch, Found};

use super::{in_line, later, others, reason, thousands};
use crate::explain::facts::{Facts, Taker};

/// What keeps a task from being taken that its queue would let go.
pub(super) fn obstacles(facts: &Facts) -> Vec<Reason> {
    match &facts.taker {
        Some(Taker::Workers { are_polling: false }) => vec![nobody_polls(facts)],
        Some(Taker::Nobody { partition, since }) => vec![nobody_owns(facts, *partition, *since)],
        Some(Taker::Here(Dispatch { found, crowded })) => {
            let found = found.map(|found| found_backlog(facts, found));
            found.into_iter().chain((!crowded.is_empty()).then(|| no_place(facts, crowded))).collect()
        }
        Some(Taker::Workers { are_polling: true } | Taker::Elsewhere { .. }) | None => Vec::new(),
    }
}

/// Nothing is in its way: somebody is about to take it.
pub(super) fn about_to_be_taken(facts: &Facts) -> Reason {
    let key = &facts.task.lane.key;
    let line = others(facts.ahead);
    let told = match (&facts.taker, &key.route) {
        (Some(Taker::Elsewhere { partition, node, name }), _) => {
            let (number, named) = (partition.number(), name.as_deref().unwrap_or("of an unknown name"));
            let message = format!(
                "it is due and dispatched by node {named} ({node}), which owns partition {number} of its queue: whether \
                 that has a place for it, only that node can tell; {line}"
            );
            let by = Some(node.to_string());
            Reason { by, partition: Some(number), ..reason("due_waiting_for_worker", message) }
        }
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

fn nobody_polls(facts: &Facts) -> Reason {
    let key = &facts.task.lane.key;
    let message =
        format!("it is due, but no worker has asked for queue {} or type {} in the last minute", key.queue, key.kind);
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
        "it was due before this node took over its queue at {since}; of what was found then {} a second are dispatched, \
         after what has come due since; {}",
        thousands(u64::from(per_second)),
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
