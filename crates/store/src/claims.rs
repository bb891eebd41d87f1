//! The events of claims and starts. Both stores call this, so a claim means the same in each.

use std::borrow::Cow;

use punctual_core::ids::NodeId;
use punctual_core::state::{By, Change, ChangeFields, Event, Position, State, transition};
use punctual_core::store::{CLAIM_AHEAD_MAX_MILLIS, Claimant, DispatchTo, Start};
use punctual_core::task::{Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

use crate::columns::number_column;

/// A claim fails at most about this many expired tasks and leaves further ones to the next claim.
/// This bounds its duration.
pub(crate) const EXPIRED_MAX: usize = 1_000;

/// The actor that the trail names for a claimant.
pub(crate) fn actor(claimant: &Claimant) -> Actor<'_> {
    match claimant {
        Claimant::Dispatch { to: DispatchTo::Broker { .. }, .. } => Actor::Scheduler,
        Claimant::Dispatch { to: DispatchTo::Worker { name, .. }, .. } | Claimant::Worker { name, .. } => {
            Actor::Worker(Cow::Borrowed(name))
        }
    }
}

/// Lower bound of `due_at` for a claim.
pub(crate) fn due_from(claimant: &Claimant) -> i64 {
    match claimant {
        Claimant::Dispatch { from: Some(from), .. } => from.as_millis(),
        _ => i64::MIN,
    }
}

/// Upper bound of `due_at` for a claim made at `now`.
pub(crate) fn due_by(claimant: &Claimant, now: Timestamp) -> Timestamp {
    match claimant {
        Claimant::Worker { due_by: Some(due_by), .. } => (*due_by).clamp(now, now.plus_millis(CLAIM_AHEAD_MAX_MILLIS)),
        _ => now,
    }
}

/// The event of a claim of a task with this timeout.
pub(crate) fn claim_event(claimant: &Claimant, node: NodeId, now: Timestamp, timeout_millis: u64) -> Event<'static> {
    let until = |millis: u64| now.plus_millis(number_column(millis));
    match claimant {
        Claimant::Dispatch { to: DispatchTo::Worker { name, grace_millis }, .. } => {
            Event::Lease(webhook_hold(name, *grace_millis, node, now, timeout_millis))
        }
        Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis }, .. } => Event::Claim(Hold {
            worker: node.to_string(),
            node: Some(node),
            since: now,
            expires_at: until(*visibility_millis),
            deadline_at: until(*visibility_millis),
            lease_millis: *visibility_millis,
        }),
        Claimant::Worker { name, lease_millis, .. } => Event::Lease(Hold {
            worker: name.clone(),
            node: None,
            since: now,
            expires_at: until((*lease_millis).min(timeout_millis)),
            deadline_at: until(timeout_millis),
            lease_millis: *lease_millis,
        }),
    }
}

/// The event of a start of a queued task with this timeout.
pub(crate) fn start_event(start: &Start, node: NodeId, now: Timestamp, timeout_millis: u64) -> Event<'static> {
    Event::Start(webhook_hold(&start.worker, start.grace_millis, node, now, timeout_millis))
}

/// The hold of a webhook's run: it lasts for the timeout, and then long enough to settle the run.
fn webhook_hold(worker: &str, grace_millis: u64, node: NodeId, now: Timestamp, timeout_millis: u64) -> Hold {
    let lasts = timeout_millis.saturating_add(grace_millis);
    let end = now.plus_millis(number_column(lasts));
    Hold {
        worker: worker.to_owned(),
        node: Some(node),
        since: now,
        expires_at: end,
        deadline_at: end,
        lease_millis: lasts,
    }
}

/// The change of a row that was read in a state which allows the event.
pub(crate) fn expect_change(position: &Position, event: Event<'_>, by: &By<'_>) -> Change {
    transition(position, event, by).expect("invariant: the row was read in a state that takes this step")
}

/// Updates a task that was read with the change of its claim or start.
pub(crate) fn update_task(task: &mut Task, change: Change) {
    task.position = change.position_after(&task.position);
    if change.to == State::Running {
        task.worker = change.hold.as_ref().map(|hold| hold.worker.clone());
        task.started_at = Some(change.at);
    }
    let ChangeFields { hold, trail, kept_trail, .. } = change.into_fields();
    task.hold = hold;
    if let Some(kept) = kept_trail {
        task.trail = kept;
    }
    task.trail.extend(&trail);
}
