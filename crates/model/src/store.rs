//! The model's store: conditional writes, by the contract in `punctual_core::store`.
//!
//! Called by the [`Protocol`]'s actions. A function that returns none has changed nothing.

use punctual_core::state::State;

use crate::bounds::{ModelBounds, Route};
use crate::bug::Bug;
use crate::machine::{ModelEvent, Write, decide};
use crate::protocol::Protocol;
use crate::row::{HoldLeft, ModelRow, RowPosition, StepKind, StepMark, Version};

/// What a write compares. Only bugs compare less than everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// State and version, as the contract says.
    Full,
    /// The state alone.
    StateOnly,
    /// Nothing: the caller has compared.
    Waived,
}

impl Protocol {
    /// `claim`: a due task goes to the claimant; one that has expired fails instead.
    pub(crate) fn claim(&self, row: &ModelRow, route: Route) -> Option<ModelRow> {
        let spoilt = self.has(Bug::CancelledIsClaimed) && row.position.state == State::Cancelled;
        let position = if spoilt { RowPosition { state: State::Pending, ..row.position } } else { row.position };
        if position.state != State::Pending || row.due_in > 0 {
            return None;
        }
        let event = match (row.expires_in, route) {
            (Some(0), _) => ModelEvent::Expire,
            (_, Route::Pull) => ModelEvent::Lease(Self::lease()),
            (_, Route::Push) => ModelEvent::Claim(Self::node_hold()),
        };
        let mut after = self.apply(row, &*decide(position, event)?, WriteCondition::Waived)?;
        if after.position.state == State::Running {
            self.hand_out(&mut after);
        }
        Some(after)
    }

    /// `start`: the run of the task that is queued at that version begins.
    pub(crate) fn start(&self, row: &ModelRow, version: Version) -> Option<ModelRow> {
        let spoilt =
            self.has(Bug::StartsTwice) && row.position.state == State::Running && row.position.version == version + 1;
        let fits = row.position.state == State::Queued && row.position.version == version;
        if !fits && !spoilt {
            return None;
        }
        let write = decide(RowPosition { state: State::Queued, ..row.position }, ModelEvent::Start(Self::node_hold()))?;
        let mut after = self.apply(row, &write, WriteCondition::Waived)?;
        self.hand_out(&mut after);
        Some(after)
    }

    /// `extend`: a heartbeat of the holder, which may detach the run from its node. The answer has
    /// the new end of the lease. A hold that has run out is not extended.
    pub(crate) fn extend(&self, row: &ModelRow, token: Version, detach: bool) -> Option<ModelRow> {
        let RowPosition { state, version, cancel_requested, .. } = row.position;
        let fits = version == token || self.has(Bug::HeartbeatIgnoresToken);
        if state != State::Running || cancel_requested || !fits {
            return None;
        }
        let mut after = row.clone();
        let hold = after.hold.as_mut().filter(|hold| hold.ticks > 0 || self.has(Bug::ExtendRevives))?;
        let end = if self.has(Bug::HeartbeatPassesDeadline) {
            ModelBounds::LEASE
        } else {
            ModelBounds::LEASE.min(hold.deadline)
        };
        hold.ticks = hold.ticks.max(end);
        hold.of_node &= !detach;
        if !hold.of_node {
            after.promised = hold.ticks;
        }
        Some(after)
    }

    /// `apply`: one conditional write; none if it was lost.
    pub(crate) fn apply(&self, row: &ModelRow, write: &Write, condition: WriteCondition) -> Option<ModelRow> {
        let fits = match condition {
            WriteCondition::Full => row.position.state == write.from && row.position.version == write.expected_version,
            WriteCondition::StateOnly => row.position.state == write.from,
            WriteCondition::Waived => true,
        };
        if !fits {
            return None;
        }
        let write = self.spoilt(row, write);
        let mut after = row.clone();
        after.position = RowPosition {
            state: write.to,
            version: write.version,
            attempts: write.attempts.unwrap_or(row.position.attempts),
            crashes: write.crashes.unwrap_or(row.position.crashes),
            cancel_requested: write.cancel_requested,
        };
        after.due_in = write.due_in.unwrap_or(row.due_in);
        if !write.cancel_requested {
            after.hold = write.hold;
            after.promised = 0;
        }
        after.result = write.result.or(row.result);
        if write.expiry_gone {
            after.expires_in = None;
        }
        after.trail.extend(write.marks);
        Some(after)
    }

    /// Whether `overdue` returns this row: its hold has run out, or it has expired while it waited.
    pub(crate) fn is_overdue(&self, row: &ModelRow) -> bool {
        match row.position.state {
            _ if self.has(Bug::ReaperOff) => false,
            State::Pending => row.expires_in == Some(0),
            State::Queued if self.has(Bug::UnstartedNotReaped) => false,
            State::Running if self.has(Bug::StopsNotReaped) && row.position.cancel_requested => false,
            _ => row.hold.is_some_and(|hold| self.has_run_out(hold)),
        }
    }

    /// Whether the reaper takes a task with this hold back.
    pub(crate) fn has_run_out(&self, hold: HoldLeft) -> bool {
        hold.ticks <= u8::from(self.has(Bug::ExpiryOffByOne))
    }

    /// Whether the hold is still the one that was judged, if one was judged.
    pub(crate) fn is_still_held(&self, row: &ModelRow, judged: Option<HoldLeft>) -> bool {
        let same = judged.is_none_or(|judged| row.hold.is_some_and(|hold| hold.is_as(judged)));
        same || self.has(Bug::ReaperJudgesStaleHold)
    }

    /// The hold of a pull worker.
    fn lease() -> HoldLeft {
        HoldLeft { ticks: ModelBounds::LEASE, deadline: ModelBounds::DEADLINE, of_node: false }
    }

    /// The hold of one of our nodes.
    fn node_hold() -> HoldLeft {
        HoldLeft { ticks: ModelBounds::DISPATCH, deadline: ModelBounds::DISPATCH, of_node: true }
    }

    /// Records the token of a run and the promise to its worker. A hold of one of our nodes is no
    /// promise: it lasts only while the other nodes consider that node alive.
    fn hand_out(&self, row: &mut ModelRow) {
        row.handed = if self.has(Bug::TokenIsAttempt) { row.position.attempts } else { row.position.version };
        row.promised = row.hold.filter(|hold| !hold.of_node).map_or(0, |hold| hold.ticks);
    }

    /// The write as a planted bug makes it.
    fn spoilt(&self, row: &ModelRow, write: &Write) -> Write {
        let mut write = write.clone();
        // If the version was not compared, the row continues from its own.
        let base = row.position.version;
        write.version = base + write.version - write.expected_version;
        for mark in &mut write.marks {
            mark.version = base + mark.version - write.expected_version;
        }
        let does = |kind: StepKind| write.marks.iter().any(|mark| mark.kind == kind);
        let spares = write.marks.iter().any(|mark| matches!(mark.kind, StepKind::Spared(_)));
        if self.has(Bug::CancelKeepsVersion) && does(StepKind::CancelRequested) {
            renumber(&mut write, base);
        } else if self.has(Bug::RedriveResetsVersion) && does(StepKind::Redriven) {
            renumber(&mut write, 1);
        } else if self.has(Bug::AttemptCountedAtCompletion) && does(StepKind::Claimed) {
            write.attempts = None;
        } else if self.has(Bug::AttemptCountedAtCompletion) && does(StepKind::Completed) {
            write.attempts = Some(row.position.attempts + 1);
        } else if (self.has(Bug::GiveBackCounts) && does(StepKind::GivenBack))
            || (self.has(Bug::SparedCounts) && spares)
        {
            write.attempts = None;
        } else if self.has(Bug::RedriveKeepsExpiry) {
            write.expiry_gone = false;
        } else if self.has(Bug::LeaseSkipsAStep) && write.marks.len() > 1 {
            write.marks.remove(0);
        }
        write
    }
}

/// Gives a write of one step this version.
fn renumber(write: &mut Write, version: Version) {
    write.version = version;
    for mark in &mut write.marks {
        *mark = StepMark { version, ..*mark };
    }
}
