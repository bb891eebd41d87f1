//! Law 5: tokens are granted once and grow, an old one has no effect, and a lease is kept.

use std::collections::BTreeMap;

use super::Findings;
use super::case::{Case, HeldRun, SettleCall};
use super::law::Law;
use crate::history::{CallAnswer, WorkerReport};

/// Checks the holders of the task, and until when they held it.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    unique_and_growing(case, findings);
    for settle in case.settles().filter(SettleCall::accepted) {
        fenced(case, settle, findings);
    }
    leases_kept(case, findings);
}

fn unique_and_growing(case: &Case<'_>, findings: &mut Findings) {
    let mut by_token: BTreeMap<u64, Vec<HeldRun>> = BTreeMap::new();
    for delivery in case.deliveries() {
        by_token.entry(delivery.token).or_default().push(delivery);
    }
    for (token, deliveries) in &by_token {
        findings.demand(deliveries.len() == 1, Law::TokensFence, || {
            format!("token {token} was handed out more than once: {deliveries:?}")
        });
    }
    // A webhook may be in flight for a while; a lease is granted during its request.
    let leases: Vec<&HeldRun> = by_token.values().flatten().filter(|delivery| delivery.asked.is_some()).collect();
    for pair in leases.windows(2) {
        findings.demand(pair[0].asked <= Some(pair[1].at), Law::TokensFence, || {
            format!("the greater token was handed out first: {pair:?}")
        });
    }
}

/// An old token has no effect. A repeated report that was first accepted while the token was the
/// newest changes nothing. Completions have their own law.
fn fenced(case: &Case<'_>, settle: SettleCall<'_>, findings: &mut Findings) {
    let repeated = case.step(settle.token + 1).is_some_and(|step| settle.is_recorded_by(step));
    let newer = case.deliveries().find(|other| other.token > settle.token && other.at < settle.call.invoked);
    if settle.report != WorkerReport::Completed {
        findings.demand(newer.is_none() || repeated, Law::TokensFence, || {
            format!("token {} was accepted after {newer:?}: {:?}", settle.token, settle.call)
        });
    }
    if settle.report == WorkerReport::Heartbeat {
        revived(case, settle, findings);
    }
}

/// A heartbeat after the end of its lease extends nothing.
fn revived(case: &Case<'_>, settle: SettleCall<'_>, findings: &mut Findings) {
    let others =
        || case.settles().filter(|other| other.token == settle.token && other.report == WorkerReport::Heartbeat);
    let unclear = others().any(|other| matches!(other.call.answer, CallAnswer::Unknown));
    let before = others().filter(|other| other.call.invoked < settle.call.invoked);
    let extended = before.filter_map(|other| other.call.answer.shown()?.lease_expires_at);
    let granted = case.grants.iter().filter(|grant| grant.token == settle.token).map(|grant| grant.expires_at);
    if let Some(end) = granted.chain(extended).max().filter(|_| !unclear) {
        findings.demand(!settle.call.invoked.surely_after(end, case.lag_millis), Law::TokensFence, || {
            format!("the lease under token {} ran out at {end} and was revived: {:?}", settle.token, settle.call)
        });
    }
}

/// A run is not taken from its worker before the end of the lease that the worker was promised.
fn leases_kept(case: &Case<'_>, findings: &mut Findings) {
    let trail = case.trail();
    for (at, started) in trail.iter().enumerate().filter(|(_, step)| step.is("started")) {
        let Some(promised) = case.promised_until(started.version) else { continue };
        let Some(ended) = trail[at + 1..].iter().find(|step| !step.is("cancel_requested")) else { continue };
        // After a request to stop, the worker's next call ends the run under its name.
        let by_worker = ended.actor.starts_with("worker");
        findings.demand(by_worker || ended.at >= promised, Law::LeaseIsKept, || {
            format!("{} was promised the task until {promised}; {}", started.actor, case.summary())
        });
    }
}
