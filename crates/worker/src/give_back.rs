//! Gives back tasks that were dispatched and never started, when this node shuts down.
//!
//! The consumer calls it for the messages that wait in a broker that ends with the process.

use std::collections::BTreeMap;

use punctual_core::broker::Message;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Change, Event, State, transition};
use punctual_core::store::Applied;
use punctual_core::trail::Actor;
use tokio_util::sync::CancellationToken;

use crate::consumer::Deps;
use crate::retry::retry;

/// Gives back the tasks that are still queued at their message's version; returns how many. Their
/// attempts are not counted. The reaper takes back those that cannot be given back before `stop`.
pub(crate) async fn give_back(deps: &Deps, messages: Vec<Message>, stop: &CancellationToken) -> usize {
    let mut by_tenant: BTreeMap<String, Vec<(TaskId, u64)>> = BTreeMap::new();
    for message in messages {
        by_tenant.entry(message.tenant).or_default().push((message.task_id, message.version));
    }
    let mut changes: Vec<(TaskId, Change)> = Vec::new();
    for (tenant, queued) in by_tenant {
        // A message does not have the number of attempts, so the task is read.
        let call = || deps.store.get(&tenant, queued.iter().map(|(id, _)| *id).collect());
        let tasks = retry("cannot read tasks", None, stop, call).await.unwrap_or_default();
        let now = deps.clock.now();
        let by = By { now, node: deps.node, actor: Actor::Node };
        changes.extend(queued.into_iter().zip(tasks).filter_map(|((id, version), task)| {
            let position = task?.position;
            let ours = position.state == State::Queued && position.version == version;
            let change = ours.then(|| transition(&position, Event::GiveBack(now), &by).ok())??;
            Some((id, change))
        }));
    }
    if changes.is_empty() {
        return 0;
    }
    let call = || deps.store.apply(changes.clone());
    let applied = retry("cannot give tasks back", None, stop, call).await.unwrap_or_default();
    applied.iter().filter(|applied| matches!(applied, Applied::Done(_))).count()
}
