//! The answer to a batch: an item for each task.
//!
//! A member that depends on a refused member was not stored either. If the refusal is temporary,
//! the dependent gets the same one; otherwise it is refused for good. Linear in the number of
//! tasks, however long the chains of dependencies are.

use std::collections::{HashMap, HashSet};

use axum::http::StatusCode;
use axum::response::Response;
use punctual_client as wire;
use punctual_core::ids::TaskId;
use punctual_core::store::Inserted;
use punctual_core::task::Task;
use punctual_submission::batch_members::depends_on_refused;
use punctual_submission::{Faults, LISTED_MAX};

use crate::answer::json;
use crate::extract::body::MediaType;
use crate::extract::query::View;
use crate::problem::{Code, Problem};
use crate::routes::tasks::submit::{key_reused, queue_full, too_many_lanes, unanswered};
use crate::routes::tasks::unknown_dependencies::UnknownDependencies;
use crate::state::Api;
use crate::view;

/// What is answered for each stored task.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ShownTasks {
    /// Its id.
    Ids,
    /// The task, as much of it as the caller may see.
    In(View),
}

/// What became of the tasks of a batch.
pub(super) struct BatchOutcome {
    /// The refusals of the check.
    pub checked: Vec<Option<Problem>>,
    /// The store's answers for the others.
    pub inserted: Vec<Inserted>,
    /// The ids that the tasks have or would have.
    pub ids: Vec<TaskId>,
}

impl BatchOutcome {
    /// The refusals of the tasks that depend on unknown tasks outside the batch, by their places.
    pub async fn unknown_dependencies(
        &self,
        api: &Api,
        tenant: &str,
        body: &[u8],
        media_type: MediaType,
    ) -> HashMap<usize, Problem> {
        let mut refusals = HashMap::new();
        let members: HashSet<TaskId> = self.ids.iter().copied().collect();
        let places = self.checked.iter().enumerate().filter(|(_, refusal)| refusal.is_none()).map(|(place, _)| place);
        let unknown = places.zip(&self.inserted).filter_map(|(place, inserted)| match inserted {
            Inserted::UnknownDependency(id) if !members.contains(id) => Some((place, *id)),
            _ => None,
        });
        let unknown: Vec<(usize, TaskId)> = unknown.collect();
        if unknown.is_empty() {
            return refusals;
        }
        let texts = super::task_texts(body, media_type, &mut Faults::default()).unwrap_or_default();
        let mut others = UnknownDependencies::new(api, tenant);
        for (place, id) in unknown {
            let text = texts.get(place).copied().unwrap_or_default();
            refusals.insert(place, others.refusal(text, &format!("/tasks/{place}"), id).await);
        }
        refusals
    }

    /// An item for each task of the batch. `unknown` has the refusals of tasks with unknown
    /// dependencies.
    pub fn answer(
        self,
        unknown: HashMap<usize, Problem>,
        shown: ShownTasks,
        atomic: bool,
    ) -> Result<Response, Problem> {
        let Self { checked, inserted, ids } = self;
        answer(checked, inserted, &ids, unknown, shown, atomic)
    }
}

fn answer(
    checked: Vec<Option<Problem>>,
    inserted: Vec<Inserted>,
    ids: &[TaskId],
    mut unknown: HashMap<usize, Problem>,
    shown: ShownTasks,
    atomic: bool,
) -> Result<Response, Problem> {
    let mut of_children = refusals_of_children(&checked, &inserted, ids);
    let mut inserted = inserted.into_iter();
    let total = checked.len();
    let mut refusals: Vec<(usize, Problem)> = Vec::new();
    let mut items = Vec::with_capacity(total);
    for (place, refusal) in checked.into_iter().enumerate() {
        let problem = match refusal {
            Some(problem) => problem,
            None => match inserted.next().ok_or_else(unanswered)? {
                Inserted::Created(task) => {
                    items.push(accepted(StatusCode::CREATED, task, shown));
                    continue;
                }
                Inserted::Replayed(task) => {
                    items.push(accepted(StatusCode::OK, task, shown));
                    continue;
                }
                Inserted::Withheld => continue,
                Inserted::KeyReused(_) => key_reused(),
                Inserted::UnknownDependency(_) => {
                    of_children.remove(&place).or_else(|| unknown.remove(&place)).ok_or_else(unanswered)?
                }
                Inserted::QueueFull(queue) => queue_full(&queue),
                Inserted::TooManyLanes(most) => too_many_lanes(most),
            },
        };
        if atomic {
            refusals.push((place, problem));
        } else {
            items.push(refused(&problem));
        }
    }
    match whole_refusal(&refusals, total) {
        Some(problem) => Err(problem),
        None if shown == ShownTasks::In(View::Summary) => {
            let items: Vec<_> = items.iter().map(view::summary).collect();
            Ok(json(StatusCode::OK, &serde_json::json!({ "items": items })))
        }
        None => Ok(json(StatusCode::OK, &wire::BatchAnswer { items })),
    }
}

/// The refusal of a batch that is stored as a whole or not at all; none if no task is refused. It
/// is temporary if all refusals are.
fn whole_refusal(refusals: &[(usize, Problem)], total: usize) -> Option<Problem> {
    let (place, first) = refusals.first()?;
    let detail = format!(
        "{} of {total} tasks were refused, so nothing was stored. Task {place}: {}",
        refusals.len(),
        first.detail()
    );
    let waits = refusals.iter().map(|(_, problem)| problem.retry_after_seconds());
    let longest = waits.collect::<Option<Vec<u32>>>().and_then(|waits| waits.into_iter().max());
    let problem = match longest {
        Some(seconds) => Problem::new(first.code(), detail).retry_after(seconds),
        None => Problem::new(Code::BatchRefused, detail),
    };
    let faults = refusals.iter().flat_map(|(place, problem)| problem.faults_at(&format!("/tasks/{place}")));
    Some(problem.listing(faults.take(LISTED_MAX).collect()))
}

fn accepted(status: StatusCode, task: Task, shown: ShownTasks) -> wire::BatchItem {
    let (task_id, task) = match shown {
        ShownTasks::Ids => (Some(task.id), None),
        ShownTasks::In(_) => (None, Some(Box::new(view::task(task)))),
    };
    wire::BatchItem { status: status.as_u16(), task, task_id, error: None, retry_after_seconds: None }
}

fn refused(problem: &Problem) -> wire::BatchItem {
    let (status, error) = (problem.status().as_u16(), Some(Box::new(problem.to_wire())));
    let retry_after_seconds = problem.retry_after_seconds();
    wire::BatchItem { status, task: None, task_id: None, error, retry_after_seconds }
}

/// The refusals of the members that depend on a member which was not stored, by their places.
fn refusals_of_children(checked: &[Option<Problem>], inserted: &[Inserted], ids: &[TaskId]) -> HashMap<usize, Problem> {
    if !inserted.iter().any(|inserted| matches!(inserted, Inserted::UnknownDependency(_))) {
        return HashMap::new();
    }
    let place_of: HashMap<TaskId, usize> = ids.iter().copied().zip(0..).collect();
    let (mut parents, mut deferred) = (HashMap::new(), HashMap::new());
    let stored = checked.iter().enumerate().filter(|(_, refusal)| refusal.is_none()).map(|(place, _)| place);
    for (place, inserted) in stored.zip(inserted) {
        match inserted {
            Inserted::UnknownDependency(id) => {
                if let Some(parent) = place_of.get(id) {
                    parents.insert(place, *parent);
                }
            }
            Inserted::QueueFull(queue) => drop(deferred.insert(place, queue_full(queue))),
            Inserted::TooManyLanes(most) => drop(deferred.insert(place, too_many_lanes(*most))),
            _ => {}
        }
    }
    refusals(parents, deferred)
}

/// The refusals of the members that have parents. `deferred` are the temporary refusals.
fn refusals(mut parents: HashMap<usize, usize>, mut deferred: HashMap<usize, Problem>) -> HashMap<usize, Problem> {
    let mut refusals = HashMap::with_capacity(parents.len());
    let children: Vec<usize> = parents.keys().copied().collect();
    for child in children {
        // Up to a member whose refusal is known, removing each on the way so that none is met
        // twice; then down again.
        let mut path = Vec::new();
        let mut at = child;
        while let Some(parent) = parents.remove(&at) {
            path.push((at, parent));
            at = parent;
        }
        for (child, parent) in path.into_iter().rev() {
            let problem = match deferred.get(&parent) {
                Some(refusal) => {
                    let problem = depends_on_deferred(parent, refusal);
                    deferred.insert(child, problem.clone());
                    problem
                }
                None => depends_on_refused(child, parent).into(),
            };
            refusals.insert(child, problem);
        }
    }
    refusals
}

/// The refusal of a task that depends on a member with a temporary refusal: both can be tried
/// again.
fn depends_on_deferred(parent: usize, refusal: &Problem) -> Problem {
    let detail = format!(
        "it depends on task {parent} of the batch, which was refused for now; nothing was stored, try both again later"
    );
    Problem::new(refusal.code(), detail).retry_after(refusal.retry_after_seconds().unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use punctual_core::store::FullQueue;

    use super::*;

    fn full() -> Problem {
        queue_full(&FullQueue { name: "mail".to_owned(), max_depth: 3 })
    }

    #[test]
    fn a_child_is_refused_as_the_parent_of_its_parent_is() {
        // 0 → 1 → 2, which found no room; 3 → 4, which is refused for good.
        let parents = HashMap::from([(0, 1), (1, 2), (3, 4)]);
        let refusals = refusals(parents, HashMap::from([(2, full())]));
        let item = |place: usize| refused(&refusals[&place]);
        for (place, parent) in [(0, 1), (1, 2)] {
            let item = item(place);
            assert_eq!((item.status, item.retry_after_seconds), (429, Some(1)));
            let error = item.error.unwrap();
            assert_eq!(error.code, "queue_full");
            assert!(error.detail.contains(&format!("depends on task {parent} of the batch")), "{}", error.detail);
        }
        assert_eq!((item(3).status, item(3).retry_after_seconds), (422, None));
        assert_eq!(item(3).error.unwrap().code, "unknown_dependency");
    }

    #[test]
    fn a_long_chain_takes_no_time() {
        const LENGTH: usize = 10_000;
        let parents = (0..LENGTH).map(|place| (place, place + 1)).collect();
        let begun = std::time::Instant::now();
        let refusals = refusals(parents, HashMap::from([(LENGTH, full())]));
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(refusals.len(), LENGTH);
        assert!(refusals.values().all(|problem| problem.status() == 429));
    }

    #[test]
    fn only_a_dependency_on_a_member_is_named_by_its_place() {
        let (own, foreign) = ([TaskId::new(), TaskId::new(), TaskId::new()], TaskId::new());
        let checked = [None, Some(key_reused()), None];
        let inserted = [Inserted::UnknownDependency(foreign), Inserted::UnknownDependency(own[1])];
        let refusals = refusals_of_children(&checked, &inserted, &own);
        assert_eq!(refusals.keys().collect::<Vec<_>>(), [&2], "the first is refused by the id it names");
        assert_eq!(refusals[&2].status(), 422);
        assert!(refusals[&2].detail().contains("task 1 of the batch"), "{}", refusals[&2].detail());
    }
}
