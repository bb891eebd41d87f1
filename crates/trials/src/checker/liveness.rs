//! Laws 21 and 22, after the faults have stopped and the server has drained: every task ends, and
//! none stays held.

use punctual_core::state::State;

use super::Findings;
use super::case::Case;
use super::law::Law;

/// The longest time after the end of a hold until the reaper takes the task back. The reaper checks
/// twice a second, but a machine that runs a whole test suite is slow.
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
    findings.demand(!late, Law::NothingHeldForever, || {
        format!("held until {until}, but still held at {}; {}", dumped.read.wall(), case.summary())
    });
}
