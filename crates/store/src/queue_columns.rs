//! How a queue is written in columns. Both stores read and write queues through this.
//!
//! A queue whose settings cannot be read counts as paused; it never fails the read of the others.

use std::collections::HashSet;

use parking_lot::Mutex;
use punctual_core::queues::{LiveCounts, Pause, Queue, Settings};
use punctual_core::state::State;
use punctual_core::time::Timestamp;
use tracing::error;

use crate::columns::number_column;

/// The settings column of a removed queue. Statements compare with it.
const REMOVED: &str = r#"{"removed":true}"#;

/// The columns of a row of `queues`, in this order.
pub(crate) struct QueueRow {
    pub tenant: String,
    pub name: String,
    pub settings: String,
    pub paused_at: Option<i64>,
    pub paused_by: Option<String>,
    pub pause_reason: Option<String>,
    pub paused_until: Option<i64>,
    pub version: i64,
    pub change_number: i64,
}

impl QueueRow {
    /// The row of a queue.
    pub(crate) fn of(queue: &Queue) -> Self {
        let pause = queue.pause.as_ref();
        Self {
            tenant: queue.tenant.clone(),
            name: queue.name.clone(),
            settings: if queue.removed {
                REMOVED.to_owned()
            } else {
                serde_json::to_string(&queue.settings).expect("invariant: settings are numbers and words")
            },
            paused_at: pause.map(|pause| pause.since.as_millis()),
            paused_by: pause.map(|pause| pause.by.clone()),
            pause_reason: pause.and_then(|pause| pause.reason.clone()),
            paused_until: pause.and_then(|pause| pause.until).map(Timestamp::as_millis),
            version: number_column(queue.version),
            change_number: number_column(queue.change_number),
        }
    }

    /// The queue of a row. Fails with a text that names the queue if its settings cannot be read.
    pub(crate) fn queue(self) -> Result<Queue, String> {
        let settings: Settings = serde_json::from_str(&self.settings)
            .map_err(|fault| format!("the settings of queue {} of {}: {fault}", self.name, self.tenant))?;
        let pause = self.paused_at.map(|since| Pause {
            since: Timestamp::from_millis(since),
            by: self.paused_by.unwrap_or_default(),
            reason: self.pause_reason,
            until: self.paused_until.map(Timestamp::from_millis),
        });
        let version = u64::try_from(self.version).unwrap_or(0);
        let change_number = u64::try_from(self.change_number).unwrap_or(0);
        let removed = self.settings == REMOVED;
        Ok(Queue { tenant: self.tenant, name: self.name, settings, pause, version, change_number, removed })
    }
}

/// A queue as it was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadQueue {
    pub queue: Queue,
    /// If false, its settings are unknown and it counts as paused.
    pub is_readable: bool,
}

/// The unreadable queues that were logged, each once.
#[derive(Default)]
pub(crate) struct QueueComplaints(Mutex<HashSet<String>>);

/// The maximum number of complaints that are remembered. Further ones are not logged.
const COMPLAINTS_MAX: usize = 10_000;

impl QueueComplaints {
    /// Reads a queue. A queue whose settings cannot be read is paused until it is set again and
    /// resumed: its limits are not known.
    pub(crate) fn read(&self, row: QueueRow) -> ReadQueue {
        let (tenant, name) = (row.tenant.clone(), row.name.clone());
        let (version, change_number) = (row.version, row.change_number);
        let since = Timestamp::from_millis(row.paused_at.unwrap_or_default());
        match row.queue() {
            Ok(queue) => ReadQueue { queue, is_readable: true },
            Err(fault) => {
                self.complain(fault);
                let reason = Some("its settings cannot be read: set it again, then resume it".to_owned());
                let pause = Some(Pause { since, by: "punctual".to_owned(), reason, until: None });
                let number = |column: i64| u64::try_from(column).unwrap_or(0);
                let (version, change_number) = (number(version), number(change_number));
                let queue = Queue { pause, version, change_number, ..Queue::unset(&tenant, &name) };
                ReadQueue { queue, is_readable: false }
            }
        }
    }

    fn complain(&self, fault: String) {
        let mut complaints = self.0.lock();
        if complaints.len() < COMPLAINTS_MAX && !complaints.contains(&fault) {
            error!(
                error = fault,
                "cannot read the settings of a queue; it is paused until it is set again and resumed"
            );
            complaints.insert(fault);
        }
    }
}

/// Adds tasks in a state to the counts of a queue.
pub(crate) fn add(live: &mut LiveCounts, state: Option<State>, tasks: i64) {
    let count = match state {
        Some(State::Blocked) => &mut live.blocked,
        Some(State::Pending) => &mut live.pending,
        Some(State::Queued) => &mut live.queued,
        Some(State::Running) => &mut live.running,
        _ => return,
    };
    *count = count.saturating_add_signed(tasks);
}
