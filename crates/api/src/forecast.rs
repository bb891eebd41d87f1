//! The forecast of due tasks, from the store's counts of waiting tasks and the instants of
//! schedules.
//!
//! Called by `GET /v1/forecast`. Reading counts is cheap, computing instants is not. So the numbers
//! of schedules read and of instants computed are bounded, and few forecasts are computed at once,
//! away from the threads that serve requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_client as wire;
use punctual_core::forecast::{Instants, Minute, UpcomingSchedule, Window, instants};
use punctual_core::insight::Insight;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use crate::cpu_pool::CpuPool;
use crate::problem::Problem;

/// Schedules that a forecast covers, …
pub const SCHEDULES_MAX: usize = 1_000;
/// … and reads at once: each comes with the task it submits.
const PAGE: usize = 100;
/// Instants that a forecast computes, a fraction of a microsecond each: those of 700 schedules that
/// fire every minute for a day.
pub const INSTANTS_MAX: usize = 1_000_000;
/// Forecasts that are computed at once.
const CONCURRENT_MAX: usize = 2;

/// Makes forecasts.
pub struct Forecasts {
    port: Arc<dyn Insight>,
    pool: CpuPool,
}

/// The schedules of a tenant that a forecast covers.
struct UpcomingSchedules {
    upcoming: Vec<UpcomingSchedule>,
    /// How many more the tenant has.
    missing: u64,
}

impl Forecasts {
    /// Forecasts from this port.
    pub fn new(port: Arc<dyn Insight>) -> Self {
        Self { port, pool: CpuPool::with_slots(CONCURRENT_MAX) }
    }

    /// The forecast of a tenant in a window, with the `top` largest minutes.
    pub async fn of(&self, tenant: &str, window: Window, top: usize) -> Result<wire::Forecast, Problem> {
        // Tasks first: what fires between the two reads is then missing, but never counted twice.
        let tasks = self.port.waiting(tenant, window.from, window.to).await?;
        let UpcomingSchedules { upcoming, missing } = self.schedules(tenant, window.to.begins()).await?;
        let instants = self.instants(upcoming, window).await?;
        Ok(put_together(window, tasks, &instants, missing, top))
    }

    async fn schedules(&self, tenant: &str, until: Timestamp) -> Result<UpcomingSchedules, StoreError> {
        let (mut upcoming, mut after) = (Vec::new(), None);
        for _ in 0..SCHEDULES_MAX / PAGE {
            let page = self.port.upcoming(tenant, until, after, PAGE).await?;
            upcoming.extend(page.schedules);
            after = page.next;
            if after.is_none() {
                return Ok(UpcomingSchedules { upcoming, missing: 0 });
            }
        }
        let all = self.port.upcoming_count(tenant, until).await?;
        let missing = all.saturating_sub(upcoming.len() as u64);
        Ok(UpcomingSchedules { upcoming, missing })
    }

    async fn instants(&self, upcoming: Vec<UpcomingSchedule>, window: Window) -> Result<Instants, Problem> {
        if upcoming.is_empty() {
            return Ok(Instants::default());
        }
        self.pool.run_pooled(move || instants(&upcoming, &window, INSTANTS_MAX)).await
    }
}

fn put_together(
    window: Window,
    tasks: Vec<(Minute, u64)>,
    instants: &Instants,
    missing: u64,
    top: usize,
) -> wire::Forecast {
    let mut minutes: BTreeMap<Minute, (u64, u64)> = BTreeMap::new();
    for (minute, tasks) in tasks {
        minutes.entry(minute).or_default().0 += tasks;
    }
    for (minute, schedules) in &instants.minutes {
        minutes.entry(*minute).or_default().1 += schedules;
    }
    let minute = |(minute, (tasks, schedules)): (Minute, (u64, u64))| wire::ForecastMinute {
        at: minute.begins(),
        tasks,
        schedules,
    };
    let minutes: Vec<wire::ForecastMinute> = minutes.into_iter().map(minute).collect();
    // Stable: of equal minutes the earlier comes first.
    let mut herds = minutes.clone();
    herds.sort_by_key(|minute| std::cmp::Reverse(minute.tasks.saturating_add(minute.schedules)));
    herds.truncate(top);
    wire::Forecast {
        from: window.from.begins(),
        to: window.to.begins(),
        complete: instants.until.is_none() && missing == 0,
        schedules_until: instants.until.map(|until| until.max(window.from).begins()),
        schedules_missing: missing,
        tasks: minutes.iter().map(|minute| minute.tasks).sum(),
        schedules: minutes.iter().map(|minute| minute.schedules).sum(),
        minutes,
        herds,
    }
}
