//! An open circuit breaker over a task.

use punctual_client::Reason;
use punctual_core::breakers::OpenBreaker;

use super::reason;
use crate::explain::facts::Facts;

/// Nothing is taken but a probe. While one is under way, nobody knows how long that lasts.
pub(super) fn open(facts: &Facts) -> Option<Reason> {
    let breaker = facts.breaker.as_ref()?;
    let OpenBreaker { key, opened_at, next_probe_at, .. } = breaker;
    let over = if key.is_of_tenant() { format!("tenant {}", key.tenant) } else { format!("target {}", key.target) };
    let next = match breaker.probe {
        Some(probe) if breaker.half_open => format!("{probe} runs as a probe, and closes it if it succeeds"),
        _ if breaker.half_open => "a probe is under way, and closes it if it succeeds".to_owned(),
        _ => format!("the next probe, which may be this task, is made at {next_probe_at}"),
    };
    let message = format!("the circuit breaker of {over} is open since {opened_at} ({}); {next}", breaker.reason);
    Some(Reason {
        since: Some(*opened_at),
        until: Some(*next_probe_at).filter(|at| !breaker.half_open && *at > facts.now),
        reason: Some(breaker.reason.clone()),
        target: (!key.is_of_tenant()).then(|| key.target.clone()),
        ..reason("breaker_open", message)
    })
}
