//! `handover`: how late pushed tasks arrive while one of several servers ends and another takes
//! over.
//!
//! Tasks of many queues are due at a steady rate, so every server dispatches some of them. After a
//! third of the time one server is stopped and started again, or killed. The report has the
//! lateness of every task that came from then until lateness was normal again.

use std::time::Duration;

use punctual_client::{Backoff, Jitter, NewTask, RetryPolicyFields, Seconds};
use punctual_core::time::Timestamp;

use crate::BenchOptions;
use crate::arguments::ExitMode;
use crate::client::{BenchClient, now, task};
use crate::lead::{PreloadLead, due_at_rate};
use crate::report::BenchReport;
use crate::sink::{TaskArrival, WebhookSink, lateness};
use crate::site::Site;
use crate::submit::submit_all;

/// Nodes that renew every second, so that the server that is back soon has its share again.
const QUICK_RENEWALS: [(&str, &str); 2] =
    [("PUNCTUAL_LEADER__LEASE_SECONDS", "3"), ("PUNCTUAL_LEADER__RENEWAL_SECONDS", "1")];
/// How long after the server has ended, or is back, partitions may change hands.
const MOVING_MILLIS: i64 = 3_000;

/// Enough for every server to dispatch some of them.
const QUEUES: usize = 256;
/// The server that ends.
const ENDING: usize = 0;
/// Lateness below this is normal …
const NORMAL_MICROS: i64 = 100_000;
/// … and so is lateness up to this many times the 99th percentile before the outage.
const NORMAL_RATIO: i64 = 3;

/// The settings of the servers: a server that is killed has the usual ones.
pub fn settings(how: ExitMode) -> &'static [(&'static str, &'static str)] {
    match how {
        ExitMode::Graceful => &QUICK_RENEWALS,
        ExitMode::Kill => &[],
    }
}

/// What is measured.
#[derive(Clone, Copy)]
pub struct Handover {
    /// How the server ends.
    pub how: ExitMode,
    /// Tasks a second.
    pub rate: usize,
    /// For how long.
    pub seconds: usize,
}

/// Submits all tasks ahead, then ends a server while they fall due.
pub async fn run(
    client: &BenchClient,
    options: &BenchOptions,
    site: &mut Site,
    Handover { how, rate, seconds }: Handover,
) -> anyhow::Result<BenchReport> {
    let tasks = rate * seconds;
    let mut sink = WebhookSink::start().await?;
    let (lead, url) = (PreloadLead::of_rate(tasks), sink.url());
    let make = move |number: usize| {
        let due = due_at_rate(lead.due, rate, number);
        let task = task(number, &format!("handover-{}", number % QUEUES), Some(due), Some(&url));
        NewTask { retry_policy: Some(prompt_retries()), ..task }
    };
    submit_all(client, options.few_connections(), options.batch.max(2), tasks, "preloading", make).await?;
    lead.check()?;
    let (arrivals, gone) = tokio::join!(sink.wait(tasks), async {
        let third = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000) / 3;
        tokio::time::sleep(lead.due.plus_millis(third).duration_from(now())).await;
        end_server(site, how).await
    });
    let (arrivals, outage) = (arrivals?, gone?);
    let aftermath = Aftermath::of(&arrivals.first, outage);
    let (_, early) = lateness(&arrivals.first);
    let (usual, _) = lateness(aftermath.before(&arrivals.first));
    let (affected, _) = lateness(aftermath.within(&arrivals.first));
    let mut report = BenchReport::new(match how {
        ExitMode::Graceful => "handover_graceful",
        ExitMode::Kill => "handover_kill",
    });
    report.count("tasks", tasks);
    report.count("queues", QUEUES);
    report.count("rate_per_s", rate);
    report.count("seconds", seconds);
    report.number("usual_p99_ms", usual.value_at_quantile(0.99) as f64 / 1_000.0);
    report.count("affected", usize::try_from(affected.len())?);
    report.lateness(&affected, early);
    report.number_if_known("normal_after_s", aftermath.normal_after().map(|after| after.as_secs_f64()));
    report.count("repeated", arrivals.repeated);
    Ok(report)
}

/// From when until when partitions may have changed hands because of the server.
#[derive(Clone, Copy, Debug)]
struct ServerOutage {
    began: Timestamp,
    ended: Timestamp,
}

/// Retries that repeat a run at once if it is lost with its server.
fn prompt_retries() -> RetryPolicyFields {
    RetryPolicyFields {
        max_retries: Some(10),
        backoff: Some(Backoff::Fixed),
        backoff_seconds: Some(Seconds(0.1)),
        jitter: Some(Jitter::None),
        ..RetryPolicyFields::default()
    }
}

async fn end_server(site: &mut Site, how: ExitMode) -> anyhow::Result<ServerOutage> {
    let began = now();
    match how {
        ExitMode::Kill => site.kill(ENDING).await?,
        ExitMode::Graceful => {
            site.stop(ENDING).await?;
            site.start_again(ENDING).await?;
        }
    }
    Ok(ServerOutage { began, ended: now().plus_millis(MOVING_MILLIS) })
}

/// The time after the outage in which lateness was not normal.
struct Aftermath {
    outage: ServerOutage,
    /// From this due instant on no task came late; none if there is no such instant.
    until: Option<Timestamp>,
}

impl Aftermath {
    fn of(arrivals: &[TaskArrival], outage: ServerOutage) -> Self {
        let (usual, _) = lateness(arrivals.iter().filter(|arrival| arrival.at < outage.began.into()));
        let usual = i64::try_from(usual.value_at_quantile(0.99)).unwrap_or(i64::MAX);
        let normal = NORMAL_MICROS.max(usual.saturating_mul(NORMAL_RATIO));
        let late =
            arrivals.iter().filter(|arrival| arrival.at >= outage.began.into() && arrival.late_micros() > normal);
        let until = late.map(|arrival| arrival.due.plus_millis(1)).fold(outage.ended, Ord::max);
        // A later task on time proves that the aftermath is over.
        let was_normal = arrivals.iter().any(|arrival| arrival.due >= until);
        Self { outage, until: was_normal.then_some(until) }
    }

    /// The tasks that came before the outage.
    fn before<'a>(&self, arrivals: &'a [TaskArrival]) -> impl Iterator<Item = &'a TaskArrival> {
        let began = self.outage.began;
        arrivals.iter().filter(move |arrival| arrival.at < began.into())
    }

    /// The tasks that came since the outage and were due before lateness was normal.
    fn within<'a>(&self, arrivals: &'a [TaskArrival]) -> impl Iterator<Item = &'a TaskArrival> {
        let (began, until) = (self.outage.began, self.until);
        arrivals
            .iter()
            .filter(move |arrival| arrival.at >= began.into() && until.is_none_or(|until| arrival.due < until))
    }

    fn normal_after(&self) -> Option<Duration> {
        self.until.map(|until| until.duration_from(self.outage.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A task every ten milliseconds for twenty seconds, each as late as `late` says.
    fn arrivals(late: impl Fn(i64) -> i64) -> Vec<TaskArrival> {
        (0..2_000)
            .map(|number| number * 10)
            .map(|due| TaskArrival { due: at(due), at: at(due + late(due)).into() })
            .collect()
    }

    const OUTAGE: ServerOutage =
        ServerOutage { began: Timestamp::from_millis(5_000), ended: Timestamp::from_millis(8_000) };

    #[test]
    fn the_aftermath_lasts_until_no_task_is_late() {
        let dip = |due| if (5_000..9_000).contains(&due) { 9_000 - due } else { 2 };
        let arrivals = arrivals(dip);
        let aftermath = Aftermath::of(&arrivals, OUTAGE);
        // The last that is noticeably late is due 110 ms before nine seconds.
        assert_eq!(aftermath.until, Some(at(8_891)));
        assert_eq!(aftermath.normal_after(), Some(Duration::from_millis(3_891)));
        let (affected, early) = lateness(aftermath.within(&arrivals));
        assert_eq!((affected.len(), early), (390, 0));
        assert_eq!(affected.max() / 1_000_000, 4);
        assert_eq!(lateness(aftermath.before(&arrivals)).0.max() / 1_000, 2);
    }

    #[test]
    fn a_task_due_before_the_outage_counts_if_it_came_after() {
        let arrivals = arrivals(|due| if due == 4_990 { 3_000 } else { 2 });
        let aftermath = Aftermath::of(&arrivals, OUTAGE);
        assert_eq!(lateness(aftermath.within(&arrivals)).0.max() / 1_000_000, 3);
        assert_eq!(aftermath.until, Some(at(8_000)), "nothing after it was late");
    }

    #[test]
    fn usual_lateness_is_normal() {
        let arrivals = arrivals(|due| if due < 5_000 { 200 } else { 500 });
        assert_eq!(Aftermath::of(&arrivals, OUTAGE).until, Some(at(8_000)));
    }

    #[test]
    fn an_endless_aftermath_has_no_end() {
        let arrivals = arrivals(|due| if due < 5_000 { 2 } else { 500 });
        let aftermath = Aftermath::of(&arrivals, OUTAGE);
        assert_eq!((aftermath.until, aftermath.normal_after()), (None, None));
        assert_eq!(lateness(aftermath.within(&arrivals)).0.len(), 1_500);
    }
}
