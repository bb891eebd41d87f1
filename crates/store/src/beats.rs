//! What a sign of life does to the hold of a running task. Pure; both stores call it.

use punctual_core::state::State;
use punctual_core::store::Beat;
use punctual_core::task::Hold;
use punctual_core::time::Timestamp;

use crate::columns::{Unreadable, number_column};
use crate::task_row::{TaskColumn, TaskRow, boolean, hold, number, state};

/// The hold of a running task.
pub(crate) struct RunningHold {
    version: u64,
    timeout_millis: i64,
    hold: Hold,
}

impl RunningHold {
    /// Reads columns 2 to 12 of `hold_look.sql`. None: the task does not run, or was asked to stop.
    pub(crate) fn read(row: &impl TaskRow) -> Result<Option<Self>, Unreadable> {
        let asked_to_stop = boolean(row, TaskColumn(4, "cancel_requested"))?;
        if state(row, TaskColumn(2, "state"))? != State::Running || asked_to_stop {
            return Ok(None);
        }
        let worker = row.text(TaskColumn(6, "worker"))?;
        Ok(Some(Self {
            version: number(row, TaskColumn(3, "version"))?,
            timeout_millis: number_column(number(row, TaskColumn(5, "timeout_millis"))?),
            hold: hold(row, 7, worker)?.ok_or(Unreadable("lease_expires_at"))?,
        }))
    }

    /// The hold after a beat; none if its token does not hold the task, or the hold has run out.
    pub(crate) fn extend(&mut self, beat: &Beat, now: Timestamp) -> Option<Hold> {
        let hold = &mut self.hold;
        // A hold that ran out is lost, even if the reaper has not taken the task back yet.
        if self.version != beat.token || now >= hold.expires_at {
            return None;
        }
        let before = hold.expires_at;
        // Never past the deadline and never shorter than before: a clock that went back takes
        // nothing away.
        let asked = now.plus_millis(number_column(hold.lease_millis));
        hold.expires_at = asked.min(hold.deadline_at).max(hold.expires_at);
        debug_assert!(hold.expires_at >= before, "a beat shortens no lease");
        if beat.detach {
            hold.node = None;
            hold.deadline_at = hold.since.plus_millis(self.timeout_millis).min(hold.deadline_at);
            hold.expires_at = hold.deadline_at;
        }
        Some(hold.clone())
    }
}
