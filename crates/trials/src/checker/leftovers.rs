//! Laws 22 and 23, as the database tells them: what was there after the quiet time that should not have been.

use super::Findings;
use super::law::Law;
use crate::history::History;

/// Tells everything that was left.
pub fn check(history: &History, findings: &mut Findings) {
    let Some(witness) = &history.witness else { return };
    findings.about = None;
    for what in &witness.held {
        findings.demand(false, Law::NothingHeldForEver, || what.clone());
    }
    for what in &witness.left {
        findings.demand(false, Law::NothingLeftBehind, || what.clone());
    }
}
