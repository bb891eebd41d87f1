//! The metrics of a process, for Prometheus.
//!
//! There is one [`Metrics`] per process, cloned into every role that counts.
//!
//! Invariant: labels take values from fixed sets only (routes, methods, outcomes, states). Nothing
//! that a caller sends becomes a series.

mod counts;
mod text;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, text as openmetrics};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use punctual_core::cron::database_release;
use punctual_core::schedules::OccurrenceOutcome;
use punctual_core::time::Timestamp;

pub use counts::TaskCounts;

/// In seconds: from a quick handler to a long poll.
const REQUEST_BUCKETS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0];
/// In seconds: from a task on time to an outage.
const LATENESS_BUCKETS: [f64; 17] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0];

/// The metrics of a process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Registry>,
    /// Tasks accepted; replays by idempotency key are not counted again.
    pub tasks_submitted: Counter,
    /// Tasks handed to pull workers.
    pub leases: Counter,
    /// Webhook calls under way.
    pub webhooks_in_flight: Gauge,
    /// Pull workers that wait in a long poll.
    pub waiting_workers: Gauge,
    /// Partitions whose webhooks this node dispatches.
    pub partitions_owned: Gauge,
    /// One while this node leads.
    pub leader: Gauge,
    /// Queues that are paused.
    pub queues_paused: Gauge,
    /// Queues with a limit on what runs.
    pub queues_limited: Gauge,
    /// Circuit breakers that are open.
    pub breakers_open: Gauge,
    /// Circuit breakers that this node has opened.
    pub breaker_opened: Counter,
    clock_skew: Gauge<f64, AtomicU64>,
    /// A family, so that an unknown value can be absent.
    read_store_lag: Family<[(&'static str, &'static str); 0], Gauge<f64, AtomicU64>>,
    longest_wait: Family<BandLabel, Gauge<f64, AtomicU64>>,
    settled: Family<OutcomeLabel, Counter>,
    enqueued: Family<OutcomeLabel, Counter>,
    occurrences: Family<OutcomeLabel, Counter>,
    lateness: Histogram,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    tasks: Family<StateLabel, Gauge>,
    /// A family, so that an unknown value can be absent.
    quarantined: Family<[(&'static str, &'static str); 0], Gauge>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BandLabel {
    band: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    route: String,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    route: String,
}

impl Metrics {
    /// Nothing counted yet, in a process that began at `started_at`.
    pub fn new(started_at: Timestamp) -> Self {
        let metrics = Self {
            registry: Arc::default(),
            tasks_submitted: Counter::default(),
            leases: Counter::default(),
            webhooks_in_flight: Gauge::default(),
            waiting_workers: Gauge::default(),
            partitions_owned: Gauge::default(),
            leader: Gauge::default(),
            queues_paused: Gauge::default(),
            queues_limited: Gauge::default(),
            breakers_open: Gauge::default(),
            breaker_opened: Counter::default(),
            clock_skew: Gauge::default(),
            read_store_lag: Family::default(),
            longest_wait: Family::default(),
            settled: Family::default(),
            enqueued: Family::default(),
            occurrences: Family::default(),
            lateness: Histogram::new(LATENESS_BUCKETS),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            tasks: Family::default(),
            quarantined: Family::default(),
        };
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        register_process(&mut registry, started_at);
        Self { registry: Arc::new(registry), ..metrics }
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("punctual_tasks_submitted", "Tasks accepted", self.tasks_submitted.clone());
        registry.register("punctual_tasks_settled", "Runs settled, by outcome", self.settled.clone());
        let help = "Submissions by SQL that were judged, by outcome: one that is judged again counts again";
        registry.register("punctual_enqueued", help, self.enqueued.clone());
        registry.register(
            "punctual_occurrences",
            "Instants of schedules that this node decided, by outcome",
            self.occurrences.clone(),
        );
        registry.register("punctual_leases", "Tasks handed to pull workers", self.leases.clone());
        registry.register("punctual_http_requests", "Requests answered", self.requests.clone());
        registry.register_with_unit(
            "punctual_http_request",
            "Time from a request's head to its answer, the wait of a long poll included",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        registry.register("punctual_tasks", "Live tasks, by state", self.tasks.clone());
        let help = "Tasks that were put away because their rows cannot be read; more than 0 needs somebody to look";
        registry.register("punctual_tasks_quarantined", help, self.quarantined.clone());
        registry.register_with_unit(
            "punctual_lateness",
            "From the instant a task was due to the instant a worker got it",
            Unit::Seconds,
            self.lateness.clone(),
        );
        registry.register("punctual_webhooks_in_flight", "Webhook calls under way", self.webhooks_in_flight.clone());
        let help = "Pull workers that wait in a long poll";
        registry.register("punctual_waiting_workers", help, self.waiting_workers.clone());
        let help = "Partitions whose webhooks this node dispatches";
        registry.register("punctual_partitions_owned", help, self.partitions_owned.clone());
        registry.register("punctual_leader", "1 while this node leads, else 0", self.leader.clone());
        let help = "Queues that are paused, of all tenants";
        registry.register("punctual_queues_paused", help, self.queues_paused.clone());
        let help = "Queues with a max_concurrency or a rate_limit, of all tenants";
        registry.register("punctual_queues_limited", help, self.queues_limited.clone());
        let help = "Circuit breakers that are open, of all tenants";
        registry.register("punctual_breakers_open", help, self.breakers_open.clone());
        let help = "Circuit breakers that this node has opened";
        registry.register("punctual_breaker_opened", help, self.breaker_opened.clone());
        let help = "How far the wall clock of this machine is ahead of the store's; negative when it is behind";
        registry.register_with_unit("punctual_clock_skew", help, Unit::Seconds, self.clock_skew.clone());
        let help = "For how long the first task has waited that is due and could be claimed, by band of priorities";
        registry.register_with_unit("punctual_longest_wait", help, Unit::Seconds, self.longest_wait.clone());
        let help = "How far the read store is behind the store; absent when there is none, or it is away";
        registry.register_with_unit("punctual_read_store_lag", help, Unit::Seconds, self.read_store_lag.clone());
    }

    /// Sets how far this machine's clock is ahead of the store's.
    pub fn clock_skew(&self, millis: i64) {
        #[allow(clippy::cast_precision_loss, reason = "a skew of thousands of years may be inexact")]
        self.clock_skew.set(millis as f64 / 1_000.0);
    }

    /// Sets how long the first due task of a band, one of a fixed set of words, has waited.
    pub fn longest_wait(&self, band: &'static str, wait: Duration) {
        self.longest_wait.get_or_create(&BandLabel { band }).set(wait.as_secs_f64());
    }

    /// Sets how far the read store is behind; none if there is none or it cannot be reached.
    pub fn read_store_lag(&self, lag: Option<Duration>) {
        match lag {
            Some(lag) => drop(self.read_store_lag.get_or_create(&[]).set(lag.as_secs_f64())),
            None => self.read_store_lag.clear(),
        }
    }

    /// Counts `runs` runs with `outcome`, one of a fixed set of words.
    pub fn settled(&self, outcome: &'static str, runs: u64) {
        if runs > 0 {
            self.settled.get_or_create(&OutcomeLabel { outcome }).inc_by(runs);
        }
    }

    /// Counts a submission by SQL that was accepted or refused.
    pub fn enqueued(&self, is_taken: bool) {
        let outcome = if is_taken { "taken" } else { "refused" };
        self.enqueued.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// Counts instants of schedules that this node decided.
    pub fn occurrences(&self, outcome: OccurrenceOutcome, instants: u64) {
        self.occurrences.get_or_create(&OutcomeLabel { outcome: outcome.as_str() }).inc_by(instants);
    }

    /// Counts the start of a task at `now` that was due at `due_at`.
    pub fn started(&self, due_at: Timestamp, now: Timestamp) {
        self.lateness.observe(now.duration_from(due_at).as_secs_f64());
    }

    /// Counts a webhook that started this late.
    pub fn started_late(&self, late_millis: u64) {
        self.lateness.observe(Duration::from_millis(late_millis).as_secs_f64());
    }

    /// Counts an answered request. `route` is the pattern it matched, never its path.
    pub fn answered(&self, method: &'static str, route: &str, status: StatusCode, elapsed: Duration) {
        let status = match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.requests.get_or_create(&RequestLabels { method, route: route.to_owned(), status }).inc();
        let labels = RouteLabels { method, route: route.to_owned() };
        self.request_seconds.get_or_create(&labels).observe(elapsed.as_secs_f64());
    }

    /// All metrics in the OpenMetrics text format.
    pub fn openmetrics(&self) -> String {
        let mut text = String::new();
        openmetrics::encode(&mut text, &self.registry).expect("invariant: writing to a string cannot fail");
        text
    }

    /// All metrics in the older Prometheus text format.
    pub fn prometheus(&self) -> String {
        text::prometheus(&self.openmetrics())
    }
}

/// Metrics of the process itself, under the names that all Prometheus clients use.
fn register_process(registry: &mut Registry, started_at: Timestamp) {
    #[allow(clippy::cast_precision_loss, reason = "milliseconds since 1970 stay below 2^53")]
    let seconds = started_at.as_millis() as f64 / 1_000.0;
    let help = "When the process began, in seconds since 1970";
    registry.register_with_unit("process_start_time", help, Unit::Seconds, ConstGauge::new(seconds));
    let version = Info::new([("version", env!("CARGO_PKG_VERSION")), ("tz_database", database_release())]);
    let help = "The version of the server, and the release of the time zone database in it";
    registry.register("punctual_build", help, version);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_shown_under_its_name() {
        let metrics = Metrics::new(Timestamp::from_millis(1_779_472_800_500));
        metrics.tasks_submitted.inc_by(3);
        metrics.settled("completed", 2);
        metrics.settled("failed", 0);
        metrics.started(Timestamp::from_millis(1_000), Timestamp::from_millis(1_020));
        metrics.answered("POST", "/v1/tasks/{id}", StatusCode::CREATED, Duration::from_millis(2));
        metrics.partitions_owned.set(21);
        metrics.leader.set(1);
        metrics.clock_skew(-1_500);
        metrics.longest_wait("low", Duration::from_millis(61_500));
        metrics.read_store_lag(Some(Duration::from_millis(250)));
        metrics.enqueued(false);
        let text = metrics.prometheus();
        for line in [
            "punctual_partitions_owned 21",
            "punctual_leader 1",
            "punctual_clock_skew_seconds -1.5",
            "punctual_longest_wait_seconds{band=\"low\"} 61.5",
            "punctual_read_store_lag_seconds{} 0.25",
            "# TYPE punctual_tasks_submitted_total counter",
            "punctual_tasks_submitted_total 3",
            "punctual_enqueued_total{outcome=\"refused\"} 1",
            "punctual_tasks_settled_total{outcome=\"completed\"} 2",
            "punctual_lateness_seconds_bucket{le=\"0.025\"} 1",
            "punctual_lateness_seconds_sum 0.02",
            "punctual_http_requests_total{method=\"POST\",route=\"/v1/tasks/{id}\",status=\"2xx\"} 1",
            "punctual_http_request_seconds_count{method=\"POST\",route=\"/v1/tasks/{id}\"} 1",
            "# TYPE punctual_webhooks_in_flight gauge",
            "process_start_time_seconds 1779472800.5",
            &format!(
                "punctual_build_info{{version=\"{}\",tz_database=\"{}\"}} 1",
                env!("CARGO_PKG_VERSION"),
                database_release()
            ),
        ] {
            assert!(text.lines().any(|other| other == line), "{line}\n{text}");
        }
        assert!(!text.contains("outcome=\"failed\""));
        metrics.read_store_lag(None);
        assert!(!metrics.prometheus().contains("\npunctual_read_store_lag_seconds{"));
    }
}
