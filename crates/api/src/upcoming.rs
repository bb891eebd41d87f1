//! What will run, one by one: waiting tasks and the instants of schedules.
//!
//! Called by `GET /v1/upcoming`. A page holds what it returns and one page of schedules, however
//! many there are, and reads few more tasks than it returns: the counts of the forecast say up to
//! which minute it has to look.

use std::sync::Arc;

use punctual_client as wire;
use punctual_core::forecast::{Minute, Soonest, UpcomingKey, UpcomingPosition, UpcomingSchedule, UpcomingTask};
use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::insight::Insight;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_submission::DEFAULT_QUEUE;

use crate::cpu_pool::CpuPool;
use crate::problem::Problem;

/// Schedules that a page covers, …
const SCHEDULES_MAX: usize = 10_000;
/// … and reads at once: each comes with the task it submits.
const SCHEDULES_PAGE: usize = 100;
/// Pages that are computed at once.
const CONCURRENT_MAX: usize = 2;
/// The minutes whose counts are read first. Each further read is of twice as many.
const MINUTES_FIRST: i64 = 1_440;

/// Makes pages of what will run.
pub struct UpcomingPages {
    port: Arc<dyn Insight>,
    pool: CpuPool,
}

/// What a page is of.
#[derive(Clone, Copy)]
pub struct UpcomingRequest {
    /// The current instant.
    pub now: Timestamp,
    /// It begins strictly after this position.
    pub after: UpcomingPosition,
    /// It ends before this instant.
    pub to: Timestamp,
    /// How many items it has at most.
    pub limit: usize,
}

/// A page of what will run.
pub struct UpcomingSlice {
    /// What will run, the soonest first.
    pub items: Vec<wire::UpcomingItem>,
    /// The position after which the next page begins; none at the end.
    pub next: Option<UpcomingPosition>,
    /// How many schedules it leaves out.
    pub schedules_missing: u64,
}

/// The names that an item is shown with.
#[derive(Clone)]
struct UpcomingNames {
    task: Option<TaskId>,
    schedule: Option<(ScheduleId, String)>,
    kind: String,
    queue: String,
}

impl UpcomingPages {
    /// Pages from this port.
    pub fn new(port: Arc<dyn Insight>) -> Self {
        Self { port, pool: CpuPool::with_slots(CONCURRENT_MAX) }
    }

    /// A page of what will run.
    pub async fn page(&self, tenant: &str, request: UpcomingRequest) -> Result<UpcomingSlice, Problem> {
        let UpcomingRequest { after, to, limit, .. } = request;
        let until = self.reach(tenant, after.at, to, limit).await?;
        // One more than the page has shows that there is a next page.
        let mut soonest = Soonest::new(limit + 1);
        // Tasks first: what fires between the two reads is then missing, but never there twice.
        for task in self.port.upcoming_tasks(tenant, after.last_task(), until, limit + 1).await? {
            soonest.add(
                UpcomingPosition { at: task.due_at, of: UpcomingKey::Task(task.number) },
                UpcomingNames::task(task),
            );
        }
        let (soonest, schedules_missing) = self.add_schedules(tenant, request, until, soonest).await?;
        let mut items: Vec<(UpcomingPosition, UpcomingNames)> = soonest.into_items().collect();
        let next = if items.len() > limit {
            items.truncate(limit);
            items.last().map(|(position, _)| *position)
        } else {
            (until < to).then(|| UpcomingPosition::before(until))
        };
        let items = items.into_iter().map(|(position, shown)| shown.at(position.at)).collect();
        Ok(UpcomingSlice { items, next, schedules_missing })
    }

    /// An instant by which more tasks are due than a page has; `to` if there are fewer.
    async fn reach(&self, tenant: &str, from: Timestamp, to: Timestamp, limit: usize) -> Result<Timestamp, StoreError> {
        // The counts begin after the current minute.
        let (mut begin, end) = (Minute::of(from).plus(1), Minute::of(to).plus(1));
        let (mut minutes, mut waiting) = (MINUTES_FIRST, 0);
        while begin < end {
            let stop = begin.plus(minutes).min(end);
            for (minute, tasks) in self.port.waiting(tenant, begin, stop).await? {
                waiting += tasks;
                if waiting > limit as u64 {
                    return Ok(minute.plus(1).begins().min(to));
                }
            }
            (begin, minutes) = (stop, minutes * 2);
        }
        Ok(to)
    }

    /// Adds the instants of schedules. Returns how many schedules are left out, too.
    async fn add_schedules(
        &self,
        tenant: &str,
        request: UpcomingRequest,
        until: Timestamp,
        mut soonest: Soonest<UpcomingNames>,
    ) -> Result<(Soonest<UpcomingNames>, u64), Problem> {
        let (mut name, mut covered) = (None, 0);
        for _ in 0..SCHEDULES_MAX / SCHEDULES_PAGE {
            let page = self.port.upcoming(tenant, until, name, SCHEDULES_PAGE).await?;
            covered += page.schedules.len() as u64;
            let add = move || {
                for schedule in page.schedules {
                    let shown = UpcomingNames::schedule(&schedule);
                    soonest.add_instants(&schedule, request.now, request.after, until, &shown);
                }
                soonest
            };
            soonest = self.pool.run_pooled(add).await?;
            name = page.next;
            if name.is_none() {
                return Ok((soonest, 0));
            }
        }
        let all = self.port.upcoming_count(tenant, until).await?;
        Ok((soonest, all.saturating_sub(covered)))
    }
}

impl UpcomingNames {
    fn task(task: UpcomingTask) -> Self {
        Self { task: Some(task.id), schedule: None, kind: task.kind, queue: task.queue }
    }

    fn schedule(schedule: &UpcomingSchedule) -> Self {
        let names = schedule.task.clone();
        Self {
            task: None,
            schedule: Some((schedule.id, schedule.name.clone())),
            kind: names.kind,
            queue: names.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned()),
        }
    }

    fn at(self, at: Timestamp) -> wire::UpcomingItem {
        let (schedule_id, name) = self.schedule.unzip();
        wire::UpcomingItem { at, schedule_id, task_id: self.task, name, kind: self.kind, queue: self.queue }
    }
}
