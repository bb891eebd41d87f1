//! What a change does to its row. Both stores choose their statement by it.

use punctual_core::state::{Change, State};

/// What becomes of the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApplyKind {
    /// It moves to the history.
    Finish,
    /// It changes and stays live.
    Change,
    /// The same, and its content changes.
    Edit,
    /// It comes back from the history.
    Redrive,
    /// It changes and stays in the history.
    Purge,
}

impl ApplyKind {
    /// None: no row can fit the change. Only dead letters leave their final state.
    pub(crate) fn of(change: &Change) -> Option<Self> {
        match (change.from.is_final(), change.to.is_final()) {
            // A dead letter has no hold that a change could expect.
            (true, _) if change.expected_hold.is_some() || change.from != State::DeadLettered => None,
            (true, true) => Some(ApplyKind::Purge),
            (true, false) => Some(ApplyKind::Redrive),
            (false, true) => Some(ApplyKind::Finish),
            (false, false) if change.edit.is_some() => Some(ApplyKind::Edit),
            (false, false) => Some(ApplyKind::Change),
        }
    }
}
