//! The metrics of a process, for Prometheus.
//!
//! There is one [`Metrics`] per process, cloned into every role that counts.
//!
//! Invariant: labels take values from fixed sets only (routes, methods, outcomes, states). Nothing
//! that a caller sends becomes a series.

mod connections;
mod counts;
mod measured_store;
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
use prometheus_client::registry::{Metric, Registry, Unit};
use punctual_core::cron::database_release;
use punctual_core::schedules::OccurrenceOutcome;
use punctual_core::time::Timestamp;

pub use connections::ConnectionMetrics;
pub use counts::TaskCounts;
pub use measured_store::{MeasuredStore, StoreMetrics};

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
    /// Clients that wait for a task to finish.
    pub waiting_clients: Gauge,
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
    /// Of the store.
    pub store: StoreMetrics,
    /// Of the connections to this node.
    pub connections: ConnectionMetrics,
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
        let mut registry = Registry::default();
        let mut register = Registrar(&mut registry);
        let metrics = Self {
            registry: Arc::default(),
            tasks_submitted: register.metric("punctual_tasks_submitted", "Tasks accepted"),
            settled: register.metric("punctual_tasks_settled", "Runs settled, by outcome"),
            enqueued: register.metric(
                "punctual_enqueued",
                "Submissions by SQL, by outcome; a submission that is checked again counts again",
            ),
            occurrences: register
                .metric("punctual_occurrences", "Instants of schedules that this node decided, by outcome"),
            leases: register.metric("punctual_leases", "Tasks handed to pull workers"),
            requests: register.metric("punctual_http_requests", "Requests answered"),
            request_seconds: register.seconds(
                "punctual_http_request",
                "Time from a request's head to its answer, the wait of a long poll included",
                Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            ),
            tasks: register.metric("punctual_tasks", "Live tasks, by state"),
            quarantined: register.metric(
                "punctual_tasks_quarantined",
                "Tasks that were set aside because their rows cannot be read; more than 0 needs an operator",
            ),
            lateness: register.seconds(
                "punctual_lateness",
                "From the instant a task was due to the instant a worker got it",
                Histogram::new(LATENESS_BUCKETS),
            ),
            webhooks_in_flight: register.metric("punctual_webhooks_in_flight", "Webhook calls under way"),
            waiting_workers: register.metric("punctual_waiting_workers", "Pull workers that wait in a long poll"),
            waiting_clients: register.metric("punctual_waiting_clients", "Clients that wait for a task to finish"),
            partitions_owned: register
                .metric("punctual_partitions_owned", "Partitions whose webhooks this node dispatches"),
            leader: register.metric("punctual_leader", "1 while this node leads, else 0"),
            queues_paused: register.metric("punctual_queues_paused", "Queues that are paused, of all tenants"),
            queues_limited: register.metric(
                "punctual_queues_limited",
                "Queues with a max_concurrency, a max_per_key or a rate_limit, of all tenants",
            ),
            breakers_open: register.metric("punctual_breakers_open", "Circuit breakers that are open, of all tenants"),
            breaker_opened: register.metric("punctual_breaker_opened", "Circuit breakers that this node has opened"),
            clock_skew: register.seconds(
                "punctual_clock_skew",
                "How far the wall clock of this machine is ahead of the store's; negative when it is behind",
                Gauge::default(),
            ),
            store: StoreMetrics {
                up: register.metric("punctual_store_up", "1 if the store answered the last call, else 0"),
                errors: register.metric("punctual_store_errors", "Calls of the store that failed, by error"),
                call_seconds: register.seconds(
                    "punctual_store_call",
                    "Time that the store took for a call, the wait for a connection or the writer included",
                    Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
                ),
                connections: register.metric("punctual_store_connections", "Connections to the store that are open"),
                connections_in_use: register
                    .metric("punctual_store_connections_in_use", "Connections to the store that are at work"),
            },
            connections: ConnectionMetrics::register(&mut register),
            longest_wait: register.seconds(
                "punctual_longest_wait",
                "How long the first due task that could be claimed has waited, by band of priorities",
                Family::default(),
            ),
            read_store_lag: register.seconds(
                "punctual_read_store_lag",
                "How far the read store is behind the store; absent if there is none, or it cannot be reached",
                Family::default(),
            ),
        };
        register_process(&mut registry, started_at);
        Self { registry: Arc::new(registry), ..metrics }
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

/// Makes metrics and registers them, in the order in which they are shown.
struct Registrar<'a>(&'a mut Registry);

impl Registrar<'_> {
    fn metric<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        let metric = M::default();
        self.0.register(name, help, metric.clone());
        metric
    }

    fn seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
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
    fn a_metric_is_shown_under_its_name() {
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
