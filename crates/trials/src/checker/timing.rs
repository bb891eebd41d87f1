//! Laws 7 and 9: no task is delivered early or expired, and an edit counts from its acknowledgement
//! on.

use punctual_core::time::Timestamp;

use super::Findings;
use super::case::Case;
use super::law::Law;
use super::planned::{DueOrigin, DuePlan, plans};
use crate::history::{Stamp, TrailStep};

/// Checks when the task was delivered, and with which payload.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    let plans = plans(case);
    for (step, plan) in plans.iter().filter(|(step, _)| step.is("claimed") || step.is("started")) {
        let law = law(plan.origin);
        findings.demand(step.at >= plan.due_at, law, || {
            format!("{} at {} although it was due at {}; {}", step.reason, step.at, plan.due_at, case.summary())
        });
        let expired = plan.expires_at.is_some_and(|expiry| step.at >= expiry);
        findings.demand(!expired, Law::NeverExpired, || {
            format!("{} at {}, expired at {:?}; {}", step.reason, step.at, plan.expires_at, case.summary())
        });
    }
    for delivery in case.deliveries() {
        let Some((_, plan)) = at_version(&plans, delivery.token) else { continue };
        findings.demand(!delivery.at.surely_before(plan.due_at), law(plan.origin), || {
            format!("due at {}, but delivered at {}: {delivery:?}", plan.due_at, delivery.at.wall())
        });
        let late = |(asked, expiry): (Stamp, Timestamp)| asked.surely_after(expiry, case.lag_millis);
        findings.demand(!delivery.asked.zip(plan.expires_at).is_some_and(late), Law::NeverExpired, || {
            format!("requested and delivered after its expiry {:?}: {delivery:?}", plan.expires_at)
        });
    }
    let leased = case.grants.iter().map(|grant| (grant.token, &grant.payload));
    for (token, payload) in leased.chain(case.arrivals.iter().map(|arrival| (arrival.token, &arrival.payload))) {
        let Some((_, plan)) = at_version(&plans, token) else { continue };
        findings.demand(plan.payloads.contains(&payload), Law::EditHolds, || {
            format!("delivered {payload} under token {token}, but wanted {:?}; {}", plan.payloads, case.summary())
        });
    }
}

fn law(origin: DueOrigin) -> Law {
    match origin {
        DueOrigin::First => Law::NeverEarly,
        DueOrigin::Edit => Law::EditHolds,
    }
}

fn at_version<'p, 'a>(
    plans: &'p [(&'a TrailStep, DuePlan<'a>)],
    version: u64,
) -> Option<&'p (&'a TrailStep, DuePlan<'a>)> {
    plans.iter().find(|(step, _)| step.version == version)
}
