//! Tests of the timing engine: the meaning of expressions, clock changes, and the oracle.

mod changes;
mod expressions;
mod limits;
mod oracle;
mod refused;
pub(super) mod steps;

use super::{CronExpression, DstFold, DstGap, Pattern, Timing, TimingRules, Zone};
use crate::time::Timestamp;

/// The instant that a text names.
fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// An expression in a zone, with the defaults.
fn timing(cron: &str, zone: &str) -> Timing {
    let cron = CronExpression::parse(cron).unwrap_or_else(|fault| panic!("{cron} {fault}"));
    Timing {
        pattern: Pattern::Cron(cron),
        rules: TimingRules {
            zone: Zone::named(zone).unwrap_or_else(|fault| panic!("{zone} {fault}")),
            ..TimingRules::default()
        },
    }
}

/// An expression in a zone whose clocks are moved.
fn moved(cron: &str, zone: &str, dst_gap: DstGap, dst_fold: DstFold) -> Timing {
    let timing = timing(cron, zone);
    Timing { rules: TimingRules { dst_gap, dst_fold, ..timing.rules }, ..timing }
}

/// The instants from one day to another in UTC, in short form: `2026-03-29T01:00`.
fn instants(timing: &Timing, from: &str, to: &str) -> Vec<String> {
    let day = |day: &str| at(&format!("{day}T00:00:00Z"));
    timing
        .iter_between(day(from), Timestamp::from_millis(day(to).as_millis() - 1))
        .take(10_000)
        .map(|at| at.to_string().trim_end_matches(":00.000Z").trim_end_matches(".000Z").to_owned())
        .collect()
}
