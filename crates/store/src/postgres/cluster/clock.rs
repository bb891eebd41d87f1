//! The database's time, estimated from one sample per second.
//!
//! A sample is the database's time, dated when the answer arrived. An estimate adds the time that
//! has passed since on this machine's monotonic clock, so that it is never ahead of the database.
//! The wall clock of this machine only serves to report its skew.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::time::Timestamp;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::postgres::ConnectError;
use crate::postgres::connection::Address;
use crate::postgres::connection::Session;
use crate::postgres::connection::SharedConnections;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;

/// How often a sample is taken, and how many are kept. The best of them counts: a slow answer is
/// out of date when it arrives.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const SAMPLES_MAX: usize = 8;

/// The estimate follows a clock that went back by more than this. For less it stands still until
/// the clock has caught up.
const STEP_BACK_MILLIS_MAX: i64 = 1_000;

/// The database's time (see the module).
pub struct PostgresClock {
    estimate: Arc<Estimate>,
    sampler: JoinHandle<()>,
}

impl PostgresClock {
    /// Connects and takes samples until this is dropped.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let address = Address::parse(url)?;
        let connections = SharedConnections::new(&address, 1, 1);
        let estimate = Arc::new(Estimate::default());
        // Takes as many samples as are kept: one answer may be slow, and the node must not begin
        // behind the others.
        let first = async |session: &Session| {
            for _ in 0..SAMPLES_MAX {
                sample(session, &estimate).await?;
            }
            Ok(())
        };
        connections.call(first).await.map_err(|fault| ConnectError::database(&address, fault.to_string()))?;
        let sampling = Arc::clone(&estimate);
        let sampler = tokio::spawn(async move {
            let mut is_failing = false;
            loop {
                tokio::time::sleep(SAMPLE_INTERVAL).await;
                let sampled = connections.call(async |session: &Session| sample(session, &sampling).await).await;
                match sampled {
                    Err(fault) if !is_failing => {
                        is_failing = true;
                        warn!(error = %fault, "cannot read the database's time; going on from the last answer");
                    }
                    Ok(()) if is_failing => {
                        is_failing = false;
                        info!("the database's time is known again");
                    }
                    _ => {}
                }
            }
        });
        Ok(Self { estimate, sampler })
    }

    /// By how many milliseconds the wall clock of this machine is ahead of the database (negative:
    /// behind).
    pub fn skew_millis(&self) -> i64 {
        SystemClock.now().millis_since(self.now())
    }
}

impl Clock for PostgresClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.estimate.at(Instant::now()))
    }
}

impl Drop for PostgresClock {
    fn drop(&mut self) {
        self.sampler.abort();
    }
}

async fn sample(session: &Session, estimate: &Estimate) -> Result<(), Fault> {
    let asked = Instant::now();
    let rows = session.query(Sql::Now, &[]).await?;
    let arrived = Instant::now();
    if let Some(row) = rows.first() {
        estimate.take_in(row.get(0), asked, arrived);
    }
    Ok(())
}

/// The samples, and the last estimate.
#[derive(Default)]
struct Estimate(Mutex<Samples>);

#[derive(Default)]
struct Samples {
    kept: VecDeque<(i64, Instant)>,
    last: Option<i64>,
}

impl Estimate {
    fn take_in(&self, millis: i64, asked: Instant, arrived: Instant) {
        let mut samples = self.0.lock();
        // When the answer arrives, the database's time is its content, or later by up to the time
        // it took: the process may have been frozen meanwhile.
        let latest = later(millis, asked, arrived);
        let known = samples.kept.iter().map(|(of, at)| later(*of, *at, arrived)).max();
        if known.is_some_and(|known| known > latest + STEP_BACK_MILLIS_MAX || known < millis - STEP_BACK_MILLIS_MAX) {
            samples.kept.clear();
        }
        if samples.kept.len() == SAMPLES_MAX {
            samples.kept.pop_front();
        }
        samples.kept.push_back((millis, arrived));
    }

    fn at(&self, now: Instant) -> i64 {
        let mut samples = self.0.lock();
        let best = samples.kept.iter().map(|(millis, at)| later(*millis, *at, now)).max().unwrap_or_default();
        let estimate = match samples.last {
            Some(last) if last > best && last - best <= STEP_BACK_MILLIS_MAX => last,
            _ => best,
        };
        samples.last = Some(estimate);
        estimate
    }
}

fn later(millis: i64, at: Instant, now: Instant) -> i64 {
    let passed = now.saturating_duration_since(at).as_millis();
    millis.saturating_add(i64::try_from(passed).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    #[test]
    fn time_passes_between_samples_and_the_best_counts() {
        let (estimate, start) = (Estimate::default(), Instant::now());
        estimate.take_in(10_000, start, start);
        assert_eq!(estimate.at(after(start, 250)), 10_250);
        // An answer that took 40 ms is out of date.
        estimate.take_in(10_960, after(start, 960), after(start, 1_000));
        assert_eq!(estimate.at(after(start, 1_001)), 11_001);
        // A quicker one is more exact.
        estimate.take_in(12_003, after(start, 2_000), after(start, 2_000));
        assert_eq!(estimate.at(after(start, 2_000)), 12_003);
    }

    #[test]
    fn time_stands_still_rather_than_go_back_a_little() {
        let (estimate, start) = (Estimate::default(), Instant::now());
        estimate.take_in(10_000, start, start);
        assert_eq!(estimate.at(after(start, 1_000)), 11_000);
        let slower = Estimate::default();
        slower.0.lock().last = Some(11_000);
        slower.take_in(10_500, start, start);
        assert_eq!(slower.at(after(start, 100)), 11_000);
        assert_eq!(slower.at(after(start, 600)), 11_100);
    }

    #[test]
    fn a_jump_of_the_database_is_followed() {
        let (estimate, start) = (Estimate::default(), Instant::now());
        estimate.take_in(100_000, start, start);
        assert_eq!(estimate.at(start), 100_000);
        estimate.take_in(50_000, after(start, 999), after(start, 1_000));
        assert_eq!(estimate.at(after(start, 1_000)), 50_000);
        estimate.take_in(900_000, after(start, 1_999), after(start, 2_000));
        assert_eq!(estimate.at(after(start, 2_000)), 900_000);
    }

    #[test]
    fn an_answer_that_a_frozen_process_reads_late_is_no_jump() {
        let (estimate, start) = (Estimate::default(), Instant::now());
        estimate.take_in(10_000, start, start);
        // Asked after a second and answered at once; the process was frozen for six seconds.
        estimate.take_in(11_000, after(start, 1_000), after(start, 7_000));
        assert_eq!(estimate.at(after(start, 7_000)), 17_000);
        // The database's clock was set back by more than the answer took.
        estimate.take_in(2_000, after(start, 8_000), after(start, 9_000));
        assert_eq!(estimate.at(after(start, 9_000)), 2_000);
    }
}
