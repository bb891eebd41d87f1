//! Laws 21 and 22, after the faults have stopped and the server had time: every task ends, and
//! nothing stays held.

use punctual_core::state::State;

use super::Findings;
use super::case::Case;
use super::law::Law;

/// The latest time after the end of a hold at which it is taken back. The reaper checks twice a
/// second; a machine that runs a whole test suite beside it is slow.
const TAKEN_BACK_WITHIN_MILLIS: i64 = 3_000;
/// How long a webhook worker has beyond the timeout to record the outcome.
const GRACE_MILLIS: i64 = 30_000;

/// Checks the final state of the task.
pub fn check(case: &Case<'_>, findings: &mut Findings) {
    let Some(dumped) = case.dumped else { return };
    findings.demand(dumped.state.is_final(), Law::EverythingEnds, || {
        format!("{} at {}; {}", dumped.state.as_str(), dumped.read.wall(), case.summary())
    });
    if dumped.state != State::Running {
        return;
    }
    let Some(started) = case.trail().iter().rev().find(|step| step.is("started")) else { return };
    let timeout = i64::try_from(dumped.timeout_millis).unwrap_or(i64::MAX / 2);
    let at_most = started.at.plus_millis(timeout.saturating_add(if dumped.pushed { GRACE_MILLIS } else { 0 }));
    let until = case.promised_until(started.version).unwrap_or(at_most);
    let late = dumped.read.surely_after(until.plus_millis(TAKEN_BACK_WITHIN_MILLIS), case.lag_millis);
    findings.demand(!late, Law::NothingHeldForEver, || {
        format!("held until {until}, and still at {}; {}", dumped.read.wall(), case.summary())
    });
}
