//! How a queue is spelled in columns, whatever the database.

use punctual_core::queues::{Live, Pause, Queue, Settings};
use punctual_core::state::State;
use punctual_core::time::Timestamp;

/// What is written for the settings of a queue that was removed; statements know it.
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
            version: i64::try_from(queue.version).unwrap_or(i64::MAX),
        }
    }

    /// The queue of a row; says which if its settings cannot be read. Without them nobody knows what it restricts.
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
        let removed = self.settings == REMOVED;
        Ok(Queue { tenant: self.tenant, name: self.name, settings, pause, version, removed })
    }
}

/// The queue of a row, which is paused if its settings cannot be read, and what is wrong with them then. Only who sets it
/// anew and resumes it says what it restricts; others are not held up.
pub(crate) fn queue_or_paused(row: QueueRow) -> (Queue, Option<String>) {
    let (tenant, name, version) = (row.tenant.clone(), row.name.clone(), row.version);
    let since = Timestamp::from_millis(row.paused_at.unwrap_or_default());
    match row.queue() {
        Ok(queue) => (queue, None),
        Err(fault) => {
            let reason = Some("its settings cannot be read: set it anew, then resume it".to_owned());
            let pause = Some(Pause { since, by: "punctual".to_owned(), reason, until: None });
            let version = u64::try_from(version).unwrap_or(0);
            let queue = Queue { pause, version, ..Queue::unset(&tenant, &name) };
            (queue, Some(fault))
        }
    }
}

/// Adds so many tasks in a state.
pub(crate) fn add(live: &mut Live, state: Option<State>, tasks: i64) {
    let place = match state {
        Some(State::Blocked) => &mut live.blocked,
        Some(State::Pending) => &mut live.pending,
        Some(State::Queued) => &mut live.queued,
        Some(State::Running) => &mut live.running,
        _ => return,
    };
    *place = place.saturating_add_signed(tasks);
}
