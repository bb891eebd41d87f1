//! Laws 22 and 23, as the database shows them: everything that must not be left after the quiet
//! time.

use super::Findings;
use super::law::Law;
use crate::history::History;

/// Reports everything that was left.
pub fn check(history: &History, findings: &mut Findings) {
    let Some(witness) = &history.witness else { return };
    findings.about = None;
    for what in &witness.held {
        findings.demand(false, Law::NothingHeldForever, || what.clone());
    }
    for what in &witness.left {
        findings.demand(false, Law::NothingLeftBehind, || what.clone());
    }
}
