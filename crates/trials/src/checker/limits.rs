//! Law 12 for queues: at no moment are more tasks of a queue `QUEUED` or `RUNNING` than its limit
//! allows.

use punctual_core::ids::TaskId;
use punctual_core::state::State;

use super::Findings;
use super::case::Case;
use super::law::Law;
use super::moments::{Moments, WriteMoment};
use crate::history::History;

/// Goes through the moments at which tasks of limited queues took and freed a place.
pub fn check(history: &History, cases: &[Case<'_>], moments: &Moments, findings: &mut Findings) {
    for (queue, most) in &history.limits {
        let is_of_queue = |case: &&Case<'_>| case.submission().is_some_and(|submission| submission.queue == *queue);
        let mut edges: Vec<Edge> = cases.iter().filter(is_of_queue).flat_map(|case| edges(case, moments)).collect();
        // A freed place can be taken at the same moment.
        edges.sort_unstable_by_key(|edge| (edge.moment, edge.is_taken));
        let mut held: Vec<TaskId> = Vec::new();
        for Edge { task, is_taken, moment } in edges {
            if !is_taken {
                held.retain(|other| *other != task);
                continue;
            }
            held.push(task);
            findings.about = Some(task);
            findings.demand(held.len() <= *most, Law::LimitHolds, || {
                let trails =
                    |id: &TaskId| cases.iter().find(|case| case.task == *id).map(|case| (case.task, case.summary()));
                let trails: Vec<_> = held.iter().filter_map(trails).collect();
                format!("more than {most} of the queue {queue:?} are claimed at moment {moment}: {trails:?}")
            });
        }
    }
}

/// A task takes a place, or frees it.
struct Edge {
    moment: WriteMoment,
    is_taken: bool,
    task: TaskId,
}

/// When a task took and freed its place. Intervals of no length are left out.
fn edges(case: &Case<'_>, moments: &Moments) -> Vec<Edge> {
    let (task, mut edges, mut since) = (case.task, Vec::new(), None);
    let edge = |moment: WriteMoment, is_taken: bool| Edge { moment, is_taken, task };
    for step in case.trail() {
        let Some(moment) = moments.at(task, step) else { continue };
        let is_held = matches!(step.to, State::Queued | State::Running);
        if is_held {
            since.get_or_insert(moment);
        } else if let Some(from) = since.take().filter(|from| *from < moment) {
            edges.extend([edge(from, true), edge(moment, false)]);
        }
    }
    edges.extend(since.map(|from| edge(from, true)));
    edges
}
