//! An open circuit breaker over a task.

use punctual_client::Reason;
use punctual_core::breakers::OpenBreaker;

use super::reason;
use crate::explain::facts::Facts;

/// The reason for an open breaker. The task has no position: a probe lasts for an unknown time, and
/// the next one is chosen only when it is claimed. A breaker whose next probe comes before the task
/// is due is no reason: it may be closed by then.
pub(super) fn open(facts: &Facts, breaker: &OpenBreaker) -> Option<Reason> {
    let (now, due_at) = (facts.now, facts.task.due_at);
    let OpenBreaker { key, opened_at, next_probe_at, .. } = breaker;
    if due_at > now && *next_probe_at <= due_at {
        return None;
    }
    let over = over(breaker);
    let next = match breaker.probe {
        Some(probe) if breaker.half_open => format!("{probe} runs as a probe, and closes it if it succeeds"),
        _ if breaker.half_open => "a probe is under way, and closes it if it succeeds".to_owned(),
        _ => format!(
            "at {next_probe_at} at the earliest one task under it is tried, which may be this one or another; the others \
             follow if that succeeds, and wait for the next probe if not"
        ),
    };
    let last = breaker.last_probe.as_ref();
    let last =
        last.map(|probe| format!("; the last probe failed at {}: {}", probe.at, probe.error)).unwrap_or_default();
    let message = format!("the circuit breaker of {over} is open since {opened_at} ({}); {next}{last}", breaker.reason);
    Some(Reason {
        since: Some(*opened_at),
        until: Some(*next_probe_at).filter(|at| !breaker.half_open && *at > now),
        reason: Some(breaker.reason.clone()),
        target: (!key.is_of_tenant()).then(|| key.target.clone()),
        ..reason("breaker_open", message)
    })
}

/// What a breaker is over, for a sentence.
pub(super) fn over(OpenBreaker { key, .. }: &OpenBreaker) -> String {
    if key.is_of_tenant() { format!("tenant {}", key.tenant) } else { format!("target {}", key.target) }
}
