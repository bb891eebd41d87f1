//! The model's store: rows, and writes that are conditional exactly as the contract in
//! `punctual_core::store` says.
//!
//! Called by the [`Protocol`]'s actions. A function that answers none has changed nothing.

use punctual_core::state::State;

use crate::bounds::{ModelBounds, Route};
use crate::bug::Bug;
use crate::machine::{Happening, Write, decide};
use crate::protocol::Protocol;
use crate::row::{Deed, HoldLeft, Mark, ModelRow, Stand, Version};

/// What a write compares; only bugs compare less than all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteCondition {
    /// State and version, as the contract says.
    Full,
    /// The state alone.
    StateOnly,
    /// Nothing: the caller has compared what it thought fit.
    Waived,
}

impl Protocol {
    /// `claim`: a due task is given to the taker; one that has expired fails instead.
    pub(crate) fn claim(&self, row: &ModelRow, route: Route) -> Option<ModelRow> {
        let spoilt = self.has(Bug::CancelledIsClaimed) && row.stand.state == State::Cancelled;
        let stand = if spoilt { Stand { state: State::Pending, ..row.stand } } else { row.stand };
        if stand.state != State::Pending || row.due_in > 0 {
            return None;
        }
        let happening = match (row.expires_in, route) {
            (Some(0), _) => Happening::Expire,
            (_, Route::Pull) => Happening::Lease(Self::lease()),
            (_, Route::Push) => Happening::Claim(Self::node_hold()),
        };
        let mut after = self.apply(row, &*decide(stand, happening)?, WriteCondition::Waived)?;
        if after.stand.state == State::Running {
            self.hand_out(&mut after);
        }
        Some(after)
    }

    /// `start`: what is queued at that version begins.
    pub(crate) fn start(&self, row: &ModelRow, version: Version) -> Option<ModelRow> {
        let spoilt =
            self.has(Bug::StartsTwice) && row.stand.state == State::Running && row.stand.version == version + 1;
        let fits = row.stand.state == State::Queued && row.stand.version == version;
        if !fits && !spoilt {
            return None;
        }
        let write = decide(Stand { state: State::Queued, ..row.stand }, Happening::Start(Self::node_hold()))?;
        let mut after = self.apply(row, &write, WriteCondition::Waived)?;
        self.hand_out(&mut after);
        Some(after)
    }

    /// `extend`: a sign of life of the holder, which may detach the run from its node. The answer
    /// tells it the new end of its lease. A hold that has run out stays so.
    pub(crate) fn extend(&self, row: &ModelRow, token: Version, detach: bool) -> Option<ModelRow> {
        let Stand { state, version, cancel_requested, .. } = row.stand;
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
            WriteCondition::Full => row.stand.state == write.from && row.stand.version == write.expected_version,
            WriteCondition::StateOnly => row.stand.state == write.from,
            WriteCondition::Waived => true,
        };
        if !fits {
            return None;
        }
        let write = self.spoilt(row, write);
        let mut after = row.clone();
        after.stand = Stand {
            state: write.to,
            version: write.version,
            attempts: write.attempts.unwrap_or(row.stand.attempts),
            crashes: write.crashes.unwrap_or(row.stand.crashes),
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

    /// Whether `overdue` tells this row: its hold has run out, or it has expired waiting.
    pub(crate) fn is_overdue(&self, row: &ModelRow) -> bool {
        match row.stand.state {
            _ if self.has(Bug::ReaperOff) => false,
            State::Pending => row.expires_in == Some(0),
            State::Queued if self.has(Bug::UnstartedNotReaped) => false,
            State::Running if self.has(Bug::StopsNotReaped) && row.stand.cancel_requested => false,
            _ => row.hold.is_some_and(|hold| self.has_run_out(hold)),
        }
    }

    /// Whether the hold is one that the reaper takes a task back for.
    pub(crate) fn has_run_out(&self, hold: HoldLeft) -> bool {
        hold.ticks <= u8::from(self.has(Bug::ExpiryOffByOne))
    }

    /// Whether the hold is still the one that was judged, where one was.
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

    /// Remembers the token that a run was given, and what its worker was promised: a hold of one of
    /// our own nodes is good only while the others take that node for alive, which is no promise.
    fn hand_out(&self, row: &mut ModelRow) {
        row.handed = if self.has(Bug::TokenIsAttempt) { row.stand.attempts } else { row.stand.version };
        row.promised = row.hold.filter(|hold| !hold.of_node).map_or(0, |hold| hold.ticks);
    }

    /// The write as a planted bug makes it.
    fn spoilt(&self, row: &ModelRow, write: &Write) -> Write {
        let mut write = write.clone();
        // Where the version was not compared the row counts on from its own.
        let base = row.stand.version;
        write.version = base + write.version - write.expected_version;
        for mark in &mut write.marks {
            mark.version = base + mark.version - write.expected_version;
        }
        let does = |deed: Deed| write.marks.iter().any(|mark| mark.deed == deed);
        let spares = write.marks.iter().any(|mark| matches!(mark.deed, Deed::Spared(_)));
        if self.has(Bug::CancelKeepsVersion) && does(Deed::CancelRequested) {
            renumber(&mut write, base);
        } else if self.has(Bug::RedriveResetsVersion) && does(Deed::Redriven) {
            renumber(&mut write, 1);
        } else if self.has(Bug::AttemptCountedAtCompletion) && does(Deed::Claimed) {
            write.attempts = None;
        } else if self.has(Bug::AttemptCountedAtCompletion) && does(Deed::Completed) {
            write.attempts = Some(row.stand.attempts + 1);
        } else if (self.has(Bug::GiveBackCounts) && does(Deed::GivenBack)) || (self.has(Bug::SparedCounts) && spares) {
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
        *mark = Mark { version, ..*mark };
    }
}
