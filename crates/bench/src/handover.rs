//! `handover`: how late pushed tasks arrive while one of several servers goes, and another takes over.
//!
//! Tasks of many queues are due at a steady rate, so every server dispatches some of them. A
//! third of the way one server is ended in good order and started again, or killed. What is
//! told is the lateness of everything that came from that moment until all was normal again.

use std::time::Duration;

use punctual_core::time::Timestamp;
use serde_json::json;

use crate::Options;
use crate::arguments::How;
use crate::client::{Client, now, task};
use crate::report::Report;
use crate::sink::{Arrival, Sink, lateness};
use crate::site::Site;
use crate::submit::submit_all;

/// Who is silent for three seconds is given up, whatever it is that it holds.
pub const SETTINGS: [(&str, &str); 2] =
    [("PUNCTUAL_LEADER__LEASE_SECONDS", "3"), ("PUNCTUAL_LEADER__RENEWAL_SECONDS", "1")];
/// For so long after the server has gone, or is back, things may change hands.
const LEASE: i64 = 3_000;

/// Enough for every server to dispatch some of them.
const QUEUES: usize = 256;
/// The server that goes.
const GOING: usize = 0;
/// Nobody complains of less, in microseconds; …
const NOTICEABLE: i64 = 100_000;
/// … and where more is usual, only so many times as late as 99 of 100 is not normal.
const TIMES_USUAL: i64 = 3;

/// What is asked for.
#[derive(Clone, Copy)]
pub struct Handover {
    /// How the server goes.
    pub how: How,
    /// Tasks a second.
    pub rate: usize,
    /// For how long.
    pub seconds: usize,
}

/// Submits everything ahead, then has a server go while it falls due.
pub async fn run(
    client: &Client,
    options: &Options,
    site: &mut Site,
    Handover { how, rate, seconds }: Handover,
) -> anyhow::Result<Report> {
    let tasks = rate * seconds;
    let mut sink = Sink::start().await?;
    // Time for a preload of 10,000 tasks a second.
    let lead = i64::try_from(tasks).unwrap_or(i64::MAX) / 10 + 2_000;
    let (first, url) = (now().plus_millis(lead), sink.url());
    let make = move |number: usize| {
        let millis = number as u128 * 1_000 / rate as u128;
        let due = first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX));
        let mut task = task(number, &format!("handover-{}", number % QUEUES), Some(due), Some(&url));
        // A run that is lost with its server is repeated at once.
        task["retry_policy"] = json!({"max_retries": 10, "backoff": "fixed", "backoff_seconds": 0.1, "jitter": "none"});
        task.to_string()
    };
    submit_all(client, options.few_connections(), options.batch.max(2), tasks, "preloading", make).await?;
    anyhow::ensure!(now() < first, "the preload took longer than its lead of {lead} ms");
    let (arrivals, gone) = tokio::join!(sink.wait(tasks), async {
        let third = i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000) / 3;
        tokio::time::sleep(first.plus_millis(third).duration_from(now())).await;
        go(site, how).await
    });
    let (arrivals, event) = (arrivals?, gone?);
    let wake = Wake::of(&arrivals.first, event);
    let (_, early) = lateness(&arrivals.first);
    let (usual, _) = lateness(wake.before(&arrivals.first));
    let (affected, _) = lateness(wake.within(&arrivals.first));
    let mut report = Report::new(match how {
        How::Graceful => "handover_graceful",
        How::Kill => "handover_kill",
    });
    report.count("tasks", tasks);
    report.count("queues", QUEUES);
    report.count("rate_per_s", rate);
    report.count("seconds", seconds);
    report.number("usual_p99_ms", usual.value_at_quantile(0.99) as f64 / 1_000.0);
    report.count("affected", usize::try_from(affected.len())?);
    report.lateness(&affected, early);
    report.number_if_known("normal_after_s", wake.normal_after().map(|after| after.as_secs_f64()));
    report.count("repeated", arrivals.repeated);
    Ok(report)
}

/// What was done to the server, and from when until when things may have changed hands for it.
#[derive(Clone, Copy, Debug)]
struct Event {
    began: Timestamp,
    ended: Timestamp,
}

async fn go(site: &mut Site, how: How) -> anyhow::Result<Event> {
    let began = now();
    match how {
        How::Kill => site.kill(GOING).await?,
        How::Graceful => {
            site.stop(GOING).await?;
            site.start_again(GOING).await?;
        }
    }
    Ok(Event { began, ended: now().plus_millis(LEASE) })
}

/// The time after the event in which not all was normal.
struct Wake {
    event: Event,
    /// From when on nothing that was due came late; none if it never was so.
    until: Option<Timestamp>,
}

impl Wake {
    fn of(arrivals: &[Arrival], event: Event) -> Self {
        let (usual, _) = lateness(arrivals.iter().filter(|arrival| arrival.at < event.began.into()));
        let usual = i64::try_from(usual.value_at_quantile(0.99)).unwrap_or(i64::MAX);
        let normal = NOTICEABLE.max(usual.saturating_mul(TIMES_USUAL));
        let late = arrivals.iter().filter(|arrival| arrival.at >= event.began.into() && arrival.late_micros() > normal);
        let until = late.map(|arrival| arrival.due.plus_millis(1)).fold(event.ended, Ord::max);
        // Something has to have been due and on time afterwards.
        let was_normal = arrivals.iter().any(|arrival| arrival.due >= until);
        Self { event, until: was_normal.then_some(until) }
    }

    /// What came before it.
    fn before<'a>(&self, arrivals: &'a [Arrival]) -> impl Iterator<Item = &'a Arrival> {
        let began = self.event.began;
        arrivals.iter().filter(move |arrival| arrival.at < began.into())
    }

    /// What came from the event on and was due before all was normal.
    fn within<'a>(&self, arrivals: &'a [Arrival]) -> impl Iterator<Item = &'a Arrival> {
        let (began, until) = (self.event.began, self.until);
        arrivals
            .iter()
            .filter(move |arrival| arrival.at >= began.into() && until.is_none_or(|until| arrival.due < until))
    }

    fn normal_after(&self) -> Option<Duration> {
        self.until.map(|until| until.duration_from(self.event.began))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// A task every ten milliseconds for twenty seconds, each as late as told.
    fn arrivals(late: impl Fn(i64) -> i64) -> Vec<Arrival> {
        (0..2_000)
            .map(|number| number * 10)
            .map(|due| Arrival { due: at(due), at: at(due + late(due)).into() })
            .collect()
    }

    const EVENT: Event = Event { began: Timestamp::from_millis(5_000), ended: Timestamp::from_millis(8_000) };

    #[test]
    fn the_wake_lasts_until_nothing_is_late_any_more() {
        let dip = |due| if (5_000..9_000).contains(&due) { 9_000 - due } else { 2 };
        let arrivals = arrivals(dip);
        let wake = Wake::of(&arrivals, EVENT);
        // The last that is noticeably late is due 110 ms before nine seconds.
        assert_eq!(wake.until, Some(at(8_891)));
        assert_eq!(wake.normal_after(), Some(Duration::from_millis(3_891)));
        let (affected, early) = lateness(wake.within(&arrivals));
        assert_eq!((affected.len(), early), (390, 0));
        assert_eq!(affected.max() / 1_000_000, 4);
        assert_eq!(lateness(wake.before(&arrivals)).0.max() / 1_000, 2);
    }

    #[test]
    fn what_was_due_before_and_came_after_it_counts() {
        let arrivals = arrivals(|due| if due == 4_990 { 3_000 } else { 2 });
        let wake = Wake::of(&arrivals, EVENT);
        assert_eq!(lateness(wake.within(&arrivals)).0.max() / 1_000_000, 3);
        assert_eq!(wake.until, Some(at(8_000)), "nothing after it was late");
    }

    #[test]
    fn what_is_usual_is_normal() {
        let arrivals = arrivals(|due| if due < 5_000 { 200 } else { 500 });
        assert_eq!(Wake::of(&arrivals, EVENT).until, Some(at(8_000)));
    }

    #[test]
    fn a_wake_that_does_not_end_is_told() {
        let arrivals = arrivals(|due| if due < 5_000 { 2 } else { 500 });
        let wake = Wake::of(&arrivals, EVENT);
        assert_eq!((wake.until, wake.normal_after()), (None, None));
        assert_eq!(lateness(wake.within(&arrivals)).0.len(), 1_500);
    }
}
