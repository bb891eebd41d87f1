//! The cron loop: fires schedules when they are due.
//!
//! The leader runs it. It reads which schedules are due for a check, plans each, and writes an
//! advance in one transaction: the tasks, the record of every instant, and the next instant. It
//! writes as the holder of the leader's lease, and only if the schedule is still as it was read. So
//! only one of two competing leaders, or of a leader and an edit, writes. Invariant: after a crash
//! between any two lines the instant is undecided, and the next pass decides it.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::LeaderLease;
use punctual_core::schedules::{Advance, Advanced, EVERY_PASS, OccurrenceOutcome, PauseSwitch, Schedules};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Upkeep};
use punctual_scheduler::cron_waker::CronWaker;
use punctual_submission::occurrences::{Occurrences, Prepared};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The maximum number of schedules that are read and written at once.
const PAGE_SCHEDULES: usize = 100;

/// The maximum number of pages in a pass; the next pass continues.
const PASS_PAGES_MAX: usize = 1_000;

/// The shortest time between two passes, however often the loop is woken.
const PASS_PAUSE_MIN: Duration = Duration::from_millis(10);

/// The maximum number of records that are removed at once.
const PRUNE_RECORDS_MAX: usize = 1_000;

/// How the cron loop works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The longest time between two passes: other nodes write schedules too.
    pub interval: Duration,
    /// The longest time between two passes while a schedule waits for a task to finish.
    pub waiting: Duration,
    /// How long the record of an instant is kept; none means forever.
    pub kept: Option<Duration>,
    /// How often old records are removed.
    pub prune_interval: Duration,
}

/// Counts instants by their outcome.
pub type OccurrenceCounter = Arc<dyn Fn(OccurrenceOutcome, u64) + Send + Sync>;

/// What the cron loop works with.
pub struct Deps {
    /// The schedules.
    pub schedules: Arc<dyn Schedules>,
    /// Removes old records.
    pub upkeep: Arc<dyn Upkeep>,
    /// Plans schedules, and makes and ends their tasks.
    pub occurrences: Occurrences,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// Wakes the loop when this node has written a schedule, or has finished a task that a schedule
    /// may wait for.
    pub waker: Arc<CronWaker>,
    /// Counts the decided instants.
    pub count_occurrences: OccurrenceCounter,
}

/// The cron loop (see the module).
pub struct CronLoop {
    deps: Deps,
    config: Config,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Schedules that were written.
    pub written: usize,
    /// Instants that fired.
    pub fired: usize,
    /// Schedules that another writer changed first; the next pass reads them again.
    pub lost_races: usize,
    /// Schedules that could not be written; the next pass reads them again.
    pub failed: usize,
    /// Whether a schedule waits for a task, and not for an instant.
    pub waits: bool,
    /// Whether there is more to do at once.
    pub more: bool,
    /// When the next instant comes.
    pub next_at: Option<Timestamp>,
}

impl CronLoop {
    /// A cron loop.
    pub fn new(deps: Deps, config: Config) -> Self {
        Self { deps, config }
    }

    /// Fires as the holder of `lease`, until `shutdown`, or until another node has held it since.
    pub async fn run(&self, lease: &LeaderLease, shutdown: CancellationToken) {
        let mut prune_at = Instant::now();
        while !shutdown.is_cancelled() {
            let next_pass_at = Instant::now() + PASS_PAUSE_MIN;
            let pause = match self.run_once(lease).await {
                Ok(Some(report)) => {
                    self.deps.waker.set_waiting(report.waits);
                    self.pause_after(&report)
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(error = %error, "cannot check the schedules; retrying at the next pass");
                    self.config.interval
                }
            };
            if prune_at <= Instant::now() {
                prune_at = Instant::now() + if self.prune().await { pause } else { self.config.prune_interval };
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                () = self.woken(next_pass_at) => {}
            }
        }
    }

    /// Returns once the loop is woken, and not before `earliest`.
    async fn woken(&self, earliest: Instant) {
        self.deps.waker.wait().await;
        tokio::time::sleep_until(earliest).await;
    }

    /// Decides and writes all that is due by now. None if another node has held the lease since.
    pub async fn run_once(&self, lease: &LeaderLease) -> Result<Option<Report>, StoreError> {
        let mut report = Report::default();
        let mut after = None;
        for _ in 0..PASS_PAGES_MAX {
            let now = self.deps.clock.now();
            let page = self.deps.schedules.due(now, after, PAGE_SCHEDULES).await?;
            let mut advances = Vec::with_capacity(page.snapshots.len());
            for snapshot in &page.snapshots {
                match self.deps.occurrences.check(Some(lease), snapshot, now).await? {
                    Prepared::Advance(advance, more) => {
                        advances.push(*advance);
                        report.more |= more;
                    }
                    Prepared::Nothing => {}
                    Prepared::Again => report.more = true,
                    Prepared::NotLeader => return Ok(None),
                }
                report.waits |= snapshot.schedule.progress.next_check_at == Some(EVERY_PASS);
            }
            if !self.write(lease, advances, now, &mut report).await? {
                return Ok(None);
            }
            after = page.next;
            if after.is_none() {
                report.next_at = self.deps.schedules.next_check(now).await?;
                return Ok(Some(report));
            }
        }
        report.more = true;
        Ok(Some(report))
    }

    /// Writes advances; false if another node leads. If they cannot be written together, they are
    /// written one by one, so that a bad one holds up no other.
    async fn write(
        &self,
        lease: &LeaderLease,
        advances: Vec<Advance>,
        now: Timestamp,
        report: &mut Report,
    ) -> Result<bool, StoreError> {
        if advances.is_empty() {
            return Ok(true);
        }
        let several = advances.len() > 1;
        match self.deps.schedules.advance(Some(lease), advances.clone()).await {
            Ok(Some(advanced)) => self.count(&advances, &advanced, now, report),
            Ok(None) => return Ok(false),
            Err(error) if several && !matches!(error, StoreError::Overloaded) => {
                tracing::warn!(error = %error, schedules = advances.len(), "cannot write schedules together; writing them one by one");
                for advance in advances {
                    match self.deps.schedules.advance(Some(lease), vec![advance.clone()]).await {
                        Ok(Some(advanced)) => self.count(&[advance], &advanced, now, report),
                        Ok(None) => return Ok(false),
                        Err(error) => {
                            tracing::error!(error = %error, schedule.id = %advance.id, "cannot write a schedule; retrying at the next pass");
                            report.failed += 1;
                        }
                    }
                }
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    fn count(&self, advances: &[Advance], advanced: &[Advanced], now: Timestamp, report: &mut Report) {
        for (advance, advanced) in advances.iter().zip(advanced) {
            let Advanced::Done { recorded, .. } = advanced else {
                report.lost_races += 1;
                report.more = true;
                continue;
            };
            report.written += 1;
            report.waits |= advance.next_check_at == Some(EVERY_PASS);
            // The next pass handles schedules that are still due, or due again.
            report.more |= advance.next_check_at.is_some_and(|at| at != EVERY_PASS && at <= now);
            if let Some(PauseSwitch::Pause(reason)) = &advance.switch {
                tracing::warn!(schedule.id = %advance.id, reason, "a task of a schedule failed; the schedule stays paused until resumed");
            }
            for record in advance.records.iter().filter(|record| recorded.contains(&record.instant)) {
                let outcome = record.outcome;
                report.fired += usize::from(outcome == OccurrenceOutcome::Fired);
                (self.deps.count_occurrences)(outcome, record.instants());
            }
        }
    }

    fn pause_after(&self, report: &Report) -> Duration {
        if report.more {
            // Yield even if there is more to do: other tasks share the thread.
            return Duration::from_millis(1);
        }
        let longest = if report.waits { self.config.waiting } else { self.config.interval };
        report.next_at.map_or(longest, |at| at.duration_from(self.deps.clock.now()).min(longest))
    }

    /// Removes some old records; returns whether there may be more.
    async fn prune(&self) -> bool {
        let Some(kept) = self.config.kept else { return false };
        let before = self.deps.clock.now().minus(kept);
        match self.deps.upkeep.prune(Prunable::Occurrences, before, PRUNE_RECORDS_MAX).await {
            Ok(pruned) => pruned.more,
            Err(error) => {
                tracing::warn!(error = %error, "cannot remove old records of schedules; retrying after the usual interval");
                false
            }
        }
    }
}
