//! What will be due, put together from the store's counts of waiting tasks and the instants of schedules.
//!
//! The counts are read by their range; what costs is computing instants. So there is a bound on the schedules that are read
//! and on the instants that are computed, a few are computed at a time, and apart from the threads that serve everybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_client as wire;
use punctual_core::forecast::{Instants, Minute, Upcoming, Window, instants};
use punctual_core::insight::Insight;
use punctual_core::store::StoreError;
use tokio::sync::Semaphore;

use crate::problem::{Code, Problem};

/// Schedules that are followed at the most …
pub const MOST_SCHEDULES: usize = 1_000;
/// … and read at once: each comes with what it submits.
const PAGE: usize = 100;
/// Instants that are computed at the most, a fraction of a microsecond each: those of 700 schedules that fire every minute
/// for a day.
pub const MOST_INSTANTS: usize = 1_000_000;
/// Forecasts that are computed at once.
const AT_ONCE: usize = 2;

/// Makes forecasts.
pub struct Forecasts {
    port: Arc<dyn Insight>,
    turns: Arc<Semaphore>,
}

/// What the tenant's schedules will do, as far as it was looked at.
struct Schedules {
    upcoming: Vec<Upcoming>,
    /// How many more there are.
    missing: u64,
}

impl Forecasts {
    /// Forecasts of what this port tells.
    pub fn new(port: Arc<dyn Insight>) -> Self {
        Self { port, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// What will be due of a tenant in a window, and the `top` minutes of it.
    pub async fn of(&self, tenant: &str, window: Window, top: usize) -> Result<wire::Forecast, Problem> {
        // Tasks first: what fires between the two reads is then missing for once, and never there twice.
        let tasks = self.port.waiting(tenant, window.from, window.to).await?;
        let Schedules { upcoming, missing } = self.schedules(tenant).await?;
        let instants = self.instants(upcoming, window).await?;
        Ok(put_together(window, tasks, &instants, missing, top))
    }

    async fn schedules(&self, tenant: &str) -> Result<Schedules, StoreError> {
        let (mut upcoming, mut after) = (Vec::new(), None);
        for _ in 0..MOST_SCHEDULES / PAGE {
            let page = self.port.upcoming(tenant, after, PAGE).await?;
            upcoming.extend(page.schedules);
            after = page.next;
            if after.is_none() {
                return Ok(Schedules { upcoming, missing: 0 });
            }
        }
        let all = self.port.upcoming_count(tenant).await?;
        let missing = all.saturating_sub(upcoming.len() as u64);
        Ok(Schedules { upcoming, missing })
    }

    async fn instants(&self, upcoming: Vec<Upcoming>, window: Window) -> Result<Instants, Problem> {
        if upcoming.is_empty() {
            return Ok(Instants::default());
        }
        let failed = |error: String| {
            tracing::error!(error, "a forecast could not be computed");
            Problem::new(Code::Internal, "the forecast could not be computed")
        };
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|error| failed(error.to_string()))?;
        let computing = tokio::task::spawn_blocking(move || {
            // Whoever asked may be gone by then; the turn lasts as long as the work.
            let _turn = turn;
            instants(&upcoming, &window, MOST_INSTANTS)
        });
        computing.await.map_err(|error| failed(error.to_string()))
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
    // Stable: of minutes that are alike the first comes first.
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
