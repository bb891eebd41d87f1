//! The conditional write that the state machine makes and a store applies.
//!
//! Invariant: no code outside of [`state`](super) makes a [`Change`].

use std::ops::Deref;

use super::{Position, State};
use crate::ids::NodeId;
use crate::json::Json;
use crate::task::{Edit, Hold};
use crate::time::Timestamp;
use crate::trail::Trail;

/// One conditional write, as [`transition`](super::transition) made it. Every caller can read its
/// [fields](ChangeFields). Only the state machine can make one, and the only edit is to narrow its
/// condition.
#[derive(Clone, Debug)]
pub struct Change {
    fields: ChangeFields,
}

/// What a [`Change`] expects of a task and writes to it. It is applied only while the task is in
/// `from` at `expected_version` and, where they are given, belongs to `tenant` and has
/// `expected_hold`.
#[derive(Clone, Debug)]
pub struct ChangeFields {
    /// The tenant the task must belong to, if the change was made without reading the task.
    pub tenant: Option<String>,
    /// The hold the task must still have, if the change was decided because of it. A heartbeat
    /// extends the hold without a new version.
    pub expected_hold: Option<ExpectedHold>,
    /// The state the task must be in.
    pub from: State,
    /// The version the task must have.
    pub expected_version: u64,
    /// When the change was decided.
    pub at: Timestamp,
    /// The new state.
    pub to: State,
    /// The new version.
    pub version: u64,
    /// The new number of attempts; none keeps it.
    pub attempts: Option<u32>,
    /// The new number of crashes; none keeps it.
    pub crashes: Option<u32>,
    /// Whether the run is now asked to stop.
    pub cancel_requested: bool,
    /// When it is due next; none keeps it.
    pub due_at: Option<Timestamp>,
    /// The new hold, for a change to a held state. Any other change ends the hold, except for a
    /// request to stop.
    pub hold: Option<Hold>,
    /// What the run returned.
    pub result: Option<Json>,
    /// What the submitter changed.
    pub edit: Option<Box<Edit>>,
    /// Whether the tasks that finished because of this one are revived.
    pub revives_dependents: bool,
    /// The steps to append to the trail.
    pub trail: Trail,
    /// What to keep of the trail before them, if it is too long; none keeps all of it.
    pub kept_trail: Option<Trail>,
}

impl Deref for Change {
    type Target = ChangeFields;

    fn deref(&self) -> &ChangeFields {
        &self.fields
    }
}

impl Change {
    /// A change with these fields, which [`transition`](super::transition) has decided.
    pub(super) const fn new(fields: ChangeFields) -> Self {
        Self { fields }
    }

    /// The same change, applied only if the task belongs to `tenant`.
    #[must_use]
    pub fn of_tenant(mut self, tenant: &str) -> Self {
        self.fields.tenant = Some(tenant.to_owned());
        self
    }

    /// The same change, applied only while the task still has `hold`.
    #[must_use]
    pub fn expecting_hold(mut self, hold: Option<&Hold>) -> Self {
        self.fields.expected_hold = hold.map(ExpectedHold::of);
        self
    }

    /// The same change, which also shortens the task's trail if that is too long. `trail` was read
    /// together with the version that the change expects.
    #[must_use]
    pub fn shortening(mut self, trail: &Trail) -> Self {
        self.fields.kept_trail = trail.shortened();
        self
    }

    /// Its fields, without a copy.
    pub fn into_fields(self) -> ChangeFields {
        self.fields
    }

    /// A change that the state machine would not make, for tests of what a store refuses and for
    /// planted bugs.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn forged(mut self, edit: impl FnOnce(&mut ChangeFields)) -> Self {
        edit(&mut self.fields);
        self
    }

    /// The position of a task that was at `before`, after this change.
    pub fn position_after(&self, before: &Position) -> Position {
        Position {
            state: self.to,
            version: self.version,
            attempts: self.attempts.unwrap_or(before.attempts),
            crashes: self.crashes.unwrap_or(before.crashes),
            cancel_requested: self.cancel_requested,
        }
    }
}

/// The hold as it was read. If it was extended or detached since, the change is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedHold {
    /// When it would expire.
    pub expires_at: Timestamp,
    /// The node it was tied to.
    pub node: Option<NodeId>,
}

impl ExpectedHold {
    /// The hold as it was read.
    fn of(hold: &Hold) -> Self {
        Self { expires_at: hold.expires_at, node: hold.node }
    }
}
