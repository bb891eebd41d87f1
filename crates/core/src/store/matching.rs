//! Which tasks a [`Filter`] matches. The listings of the stores ask it of every row, and bulk
//! operations of every task that changed since it was listed.

use crate::lane::LaneKey;
use crate::store::Filter;
use crate::task::Task;
use crate::time::Timestamp;

impl Filter {
    /// Whether a task matches.
    pub fn matches(&self, task: &Task) -> bool {
        (self.states.is_empty() || self.states.contains(&task.state()))
            && self.allows_time(task.execute_at)
            && self.allows_lane(&task.lane.key)
            && self.allows_body(task)
    }

    /// Whether a task that is to be executed then can match.
    pub fn allows_time(&self, execute_at: Timestamp) -> bool {
        self.execute_after.is_none_or(|after| execute_at >= after)
            && self.execute_before.is_none_or(|before| execute_at < before)
    }

    /// Whether a task of this lane can match.
    pub fn allows_lane(&self, lane: &LaneKey) -> bool {
        lane.tenant == self.tenant
            && self.kind.as_ref().is_none_or(|kind| kind.matches(&lane.kind))
            && self.queue.as_ref().is_none_or(|queue| queue.matches(&lane.queue))
            && self.priority_min.is_none_or(|least| lane.priority >= least)
    }

    /// Whether a task can match, judging by all but its state, its time and its lane.
    pub fn allows_body(&self, task: &Task) -> bool {
        self.created_after.is_none_or(|after| task.created_at >= after)
            && self.created_before.is_none_or(|before| task.created_at < before)
            && self.completed_after.is_none_or(|after| task.completed_at.is_some_and(|at| at >= after))
            && self.completed_before.is_none_or(|before| task.completed_at.is_some_and(|at| at < before))
            && self.schedule_id.is_none_or(|schedule| task.body.schedule_id == Some(schedule))
            && is_or_any(self.ordering_key.as_deref(), task.body.ordering_key.as_deref())
            && is_or_any(self.concurrency_key.as_deref(), task.body.concurrency_key.as_deref())
            && is_or_any(self.idempotency_key.as_deref(), task.body.idempotency_key.as_deref())
            && is_or_any(self.worker_id.as_deref(), task.worker_id())
            && self.metadata.iter().all(|(key, value)| task.body.metadata.get(key) == Some(value))
            // Last, because it reads the trail.
            && self.error_code.as_ref().is_none_or(|code| task.trail.last_error().is_some_and(|(_, e)| e.code == *code))
    }
}

/// Whether a field has the wanted value; none wants any.
fn is_or_any(wanted: Option<&str>, field: Option<&str>) -> bool {
    wanted.is_none() || wanted == field
}
