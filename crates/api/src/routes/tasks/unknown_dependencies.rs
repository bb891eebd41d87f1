//! The refusal of a task that depends on tasks which do not exist.
//!
//! The store names one of them. This looks for the others, so that one answer has all. Invariant:
//! how many tasks are read for one request is bounded, and a store that does not answer costs the
//! others only.

use std::collections::HashSet;

use punctual_client::Dependency;
use punctual_client::problem::FieldError;
use punctual_core::ids::TaskId;
use punctual_submission::ITEMS_MAX;
use punctual_submission::reading::quoted;
use serde::Deserialize;

use crate::problem::{Code, Problem};
use crate::state::Api;

/// The tasks that are looked for in one request.
const SOUGHT_MAX: usize = 1_000;
/// The tasks that are read at once: each may have a large payload.
const READ_AT_ONCE: usize = 20;

/// Looks for the tasks that one request depends on.
pub struct UnknownDependencies<'a> {
    api: &'a Api,
    tenant: &'a str,
    /// How many more tasks it looks for.
    left: usize,
}

/// What a submitted task says about others.
#[derive(Default, Deserialize)]
struct Dependent {
    #[serde(default)]
    depends_on: Vec<Dependency>,
}

impl<'a> UnknownDependencies<'a> {
    /// For a request of a tenant.
    pub fn new(api: &'a Api, tenant: &'a str) -> Self {
        Self { api, tenant, left: SOUGHT_MAX }
    }

    /// The refusal of the task that was sent as `text` at `place` of the request; the store said
    /// that `first` does not exist.
    pub async fn refusal(&mut self, text: &[u8], place: &str, first: TaskId) -> Problem {
        let Dependent { depends_on } = serde_json::from_slice(text).unwrap_or_default();
        let named = depends_on.iter().enumerate().filter_map(|(at, dependency)| match dependency {
            Dependency::Id(text) => Some((at, text.as_str(), text.parse::<TaskId>().ok()?)),
            Dependency::Member(_) => None,
        });
        let named: Vec<(usize, &str, TaskId)> = named.collect();
        let unknown = self.among(named.iter().map(|(.., id)| *id).collect(), first).await;
        let faults = named.into_iter().filter(|(.., id)| unknown.contains(id)).take(ITEMS_MAX);
        let faults = faults.map(|(at, text, id)| {
            let fault =
                FieldError::new(format!("{place}/depends_on/{at}"), format!("names {id}, which does not exist"));
            fault.with_value(quoted("depends_on", text))
        });
        let detail = match unknown.len() {
            1 => format!("depends_on names {first}, and there is no such task; nothing was stored"),
            _ => format!("depends_on names {first} and others, and there are no such tasks; nothing was stored"),
        };
        Problem::new(Code::UnknownDependency, detail).listing(faults.collect())
    }

    /// Those of the tasks that do not exist, as many as an answer lists; one is known.
    async fn among(&mut self, ids: Vec<TaskId>, first: TaskId) -> HashSet<TaskId> {
        let mut unknown = HashSet::from([first]);
        let mut seen = HashSet::from([first]);
        let others: Vec<TaskId> = ids.into_iter().filter(|id| seen.insert(*id)).take(self.left).collect();
        for ids in others.chunks(READ_AT_ONCE) {
            if unknown.len() >= ITEMS_MAX {
                break;
            }
            self.left = self.left.saturating_sub(ids.len());
            let Ok(tasks) = self.api.store.get(self.tenant, ids.to_vec()).await else { break };
            let missing = ids.iter().zip(tasks).filter(|(_, task)| task.is_none());
            unknown.extend(missing.map(|(id, _)| *id));
        }
        unknown
    }
}
