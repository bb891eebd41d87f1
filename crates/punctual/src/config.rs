//! The configuration: read once at the start, complete, within its bounds, and never changed.
//!
//! `punctual.default.toml` documents every setting and holds its default; the types here hold its bounds. The command
//! line loads a [`Config`] and hands it to `serve`, which gives each part its own.

mod breakers;
mod choice;
mod fault;
mod reader;
mod secret;
mod settings;
mod show;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use punctual_core::networks::{AllowedNetworks, Network};
use punctual_core::retry::RetryPolicy;
use punctual_core::task::limits;
use punctual_core::time::millis;
use punctual_scheduler::fairness::{self, BandWeights};
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

pub use self::breakers::Breakers;
pub use self::choice::{BrokerChoice, CoordinatorChoice, Role, Roles, StoreChoice};
pub use self::fault::Faults;
use self::reader::Reader;
pub use self::secret::SecretUrl;
pub use self::settings::{DEFAULT_FILE, Origin, Settings};

/// Everything that can be set.
#[derive(Clone, Debug)]
pub struct Config {
    /// What this node is called; none: what its machine is called.
    pub name: Option<String>,
    /// Where the HTTP interface listens.
    pub listen: SocketAddr,
    /// The directory of the embedded store.
    pub data: PathBuf,
    /// Where tasks are kept.
    pub store: StoreChoice,
    /// The standby that lists are read from, if not the store itself.
    pub read_store: Option<SecretUrl>,
    /// How far it may be behind.
    pub read_store_lag: Duration,
    /// What carries dispatched tasks to the webhook workers.
    pub broker: BrokerChoice,
    /// What elects the leader.
    pub coordinator: CoordinatorChoice,
    /// What this process does.
    pub roles: Roles,
    /// The bounds of the HTTP interface.
    pub limits: Limits,
    /// What a task gets that does not say.
    pub tasks: Tasks,
    /// How due tasks are found and claimed.
    pub scheduler: Scheduler,
    /// How tenants and priorities share what is claimed.
    pub fairness: fairness::Config,
    /// How the leadership and the partitions are held.
    pub leader: Leader,
    /// How long what is over is kept.
    pub retention: Retention,
    /// How webhooks are called.
    pub webhooks: Webhooks,
    /// When circuit breakers open.
    pub breakers: Breakers,
    /// The leases of pull workers.
    pub leases: Leases,
    /// Pull workers, and what their silence means.
    pub workers: Workers,
    /// How the process ends.
    pub shutdown: Shutdown,
    /// What is logged.
    pub log: Log,
}

/// The bounds of the HTTP interface.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of one task's payload.
    pub payload_bytes: usize,
    /// Bytes of a request that carries one task.
    pub body_bytes: usize,
    /// Bytes of a request that carries a batch.
    pub batch_bytes: usize,
    /// Tasks in a batch.
    pub batch_tasks: usize,
    /// Open connections.
    pub connections: usize,
    /// Requests that are worked on at a time.
    pub requests_in_flight: usize,
    /// Bytes of request bodies that are held at a time.
    pub bodies_bytes: usize,
    /// Pull workers that wait at a time.
    pub waiting_workers: usize,
    /// How long a client may take to send its headers.
    pub header_read_timeout: Duration,
    /// How long an answer may take.
    pub request_timeout: Duration,
}

/// What a task gets that does not say.
#[derive(Clone, Copy, Debug)]
pub struct Tasks {
    /// How it is retried.
    pub retry_policy: RetryPolicy,
    /// How long one run may take.
    pub timeout: Duration,
}

/// How due tasks are found and claimed.
#[derive(Clone, Copy, Debug)]
pub struct Scheduler {
    /// How far ahead the wheel looks.
    pub prefetch_window: Duration,
    /// How often the store is searched for what no wheel knows of.
    pub sweep_interval: Duration,
    /// Tasks claimed in one write.
    pub claim_batch: usize,
    /// How long a dispatched task may stay unstarted.
    pub visibility: Duration,
    /// Into how many partitions the queues are divided.
    pub partitions: u16,
    /// How many overdue webhooks that a node finds it claims in a second; zero means any number.
    pub backlog_per_second: u32,
}

/// How the leadership and the partitions are held.
#[derive(Clone, Copy, Debug)]
pub struct Leader {
    /// How long a silent node stays leader, owner of partitions, and alive.
    pub lease: Duration,
    /// How often it renews.
    pub renewal: Duration,
}

/// How long what is over is kept; none means for ever.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// A task, after it came to rest.
    pub history: Option<Duration>,
    /// An idempotency key, after it was used.
    pub keys: Option<Duration>,
}

/// How webhooks are called.
#[derive(Clone, Debug)]
pub struct Webhooks {
    /// Webhooks on their way at a time.
    pub concurrency: usize,
    /// The same for one target.
    pub per_target: usize,
    /// The same for one tenant, in percent of the places that nobody else has.
    pub tenant_percent: u8,
    /// The same for one band of priorities.
    pub band_percent: u8,
    /// How long a target has to accept a connection.
    pub connect_timeout: Duration,
    /// Bytes read of an answer.
    pub response_bytes: usize,
    /// Special networks that may be called all the same; loopback is among them while authentication is off.
    pub allow_networks: AllowedNetworks,
}

/// The leases of pull workers.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    /// For a worker that does not ask.
    pub default: Duration,
    /// The longest a worker may ask for.
    pub max: Duration,
}

/// Pull workers, and what their silence means.
#[derive(Clone, Copy, Debug)]
pub struct Workers {
    /// After how long a silent worker is shown as lost.
    pub lost_after: Duration,
    /// Lost workers that make a task poison; zero means never.
    pub poison_after: u32,
}

/// How the process ends.
#[derive(Clone, Copy, Debug)]
pub struct Shutdown {
    /// How long running work may take to end.
    pub drain: Duration,
}

/// What is logged.
#[derive(Clone, Debug)]
pub struct Log {
    /// How a line looks.
    pub format: LogFormat,
    /// Which events are logged, as filter directives.
    pub level: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

const MIB: i64 = 1_024 * 1_024;
const GIB: i64 = 1_024 * MIB;
const DAY: Duration = Duration::from_hours(24);
const HOUR: Duration = Duration::from_hours(1);
const YEAR: Duration = Duration::from_hours(366 * 24);
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

impl Config {
    /// Where tasks are kept, for people.
    pub fn store_name(&self) -> String {
        match &self.store {
            StoreChoice::Sqlite => self.data.display().to_string(),
            StoreChoice::Postgres(url) => url.to_string(),
        }
    }

    /// Interprets settings. `faults` may hold some already, from reading the layers.
    pub fn new(settings: &Settings, mut faults: Faults) -> Result<Self, Faults> {
        let mut read = Reader::new(settings, &mut faults);
        let config = Self {
            name: read.text("name", node_name),
            listen: read.text("listen", listen_address),
            data: read.text("data", data_directory),
            store: read.text("store", StoreChoice::parse),
            read_store: read.text("read_store", read_store),
            read_store_lag: read.seconds("read_store_lag_seconds", SECOND..=DAY),
            broker: read.text("broker", BrokerChoice::parse),
            coordinator: read.text("coordinator", CoordinatorChoice::parse),
            roles: read.list("roles", Role::parse).into_iter().collect(),
            limits: Limits::read(&mut read),
            tasks: Tasks::read(&mut read),
            scheduler: Scheduler::read(&mut read),
            fairness: fairness(&mut read),
            leader: Leader::read(&mut read),
            retention: Retention::read(&mut read),
            webhooks: Webhooks::read(&mut read),
            breakers: Breakers::read(&mut read),
            leases: Leases::read(&mut read),
            workers: Workers::read(&mut read),
            shutdown: Shutdown { drain: read.seconds("shutdown.drain_seconds", Duration::ZERO..=HOUR) },
            log: Log {
                format: read.word("log.format", r#""text" or "json""#),
                level: read.text("log.level", log_level),
            },
        };
        read.require("roles", !config.roles.is_empty(), "must name at least one role");
        let BrokerChoice::Embedded = config.broker;
        let has = |role| config.roles.contains(&role);
        let is_whole = has(Role::Scheduler) == has(Role::Worker);
        read.require("roles", is_whole, "with the embedded broker a node has both scheduler and worker, or neither");
        let has_standbys = matches!(config.store, StoreChoice::Postgres(_)) || config.read_store.is_none();
        read.require("read_store", has_standbys, "needs a store that is a PostgreSQL; leave it out with sqlite");
        faults.or(config)
    }
}

impl Limits {
    fn read(read: &mut Reader<'_>) -> Self {
        let limits = Self {
            payload_bytes: read.number("limits.payload_bytes", 1..=16 * MIB),
            body_bytes: read.number("limits.body_bytes", 1_024..=64 * MIB),
            batch_bytes: read.number("limits.batch_bytes", 1_024..=GIB),
            batch_tasks: read.number("limits.batch_tasks", 1..=i64::try_from(limits::BATCH).unwrap_or(i64::MAX)),
            connections: read.number("limits.connections", 1..=1_000_000),
            requests_in_flight: read.number("limits.requests_in_flight", 1..=1_000_000),
            bodies_bytes: read.number("limits.bodies_bytes", 1_024..=64 * GIB),
            waiting_workers: read.number("limits.waiting_workers", 1..=1_000_000),
            header_read_timeout: read.seconds("limits.header_read_timeout_seconds", MILLISECOND..=HOUR),
            request_timeout: read.seconds("limits.request_timeout_seconds", MILLISECOND..=HOUR),
        };
        let fits = limits.payload_bytes <= limits.body_bytes;
        read.require("limits.body_bytes", fits, "must be at least limits.payload_bytes, so that a task fits");
        let fits = limits.body_bytes <= limits.batch_bytes;
        read.require("limits.batch_bytes", fits, "must be at least limits.body_bytes, so that every task fits a batch");
        limits
    }
}

impl Tasks {
    fn read(read: &mut Reader<'_>) -> Self {
        let retry_policy = RetryPolicy {
            max_retries: read.number("tasks.max_retries", 0..=i64::from(limits::RETRIES)),
            backoff: read.word("tasks.backoff", r#""fixed", "linear" or "exponential""#),
            backoff_millis: millis(read.seconds("tasks.backoff_seconds", Duration::ZERO..=YEAR)),
            max_backoff_millis: millis(read.seconds("tasks.max_backoff_seconds", Duration::ZERO..=YEAR)),
            jitter: read.word("tasks.jitter", r#""none" or "full""#),
        };
        let grows = retry_policy.backoff_millis <= retry_policy.max_backoff_millis;
        read.require("tasks.max_backoff_seconds", grows, "must be at least tasks.backoff_seconds");
        Self { retry_policy, timeout: read.seconds("tasks.timeout_seconds", MILLISECOND..=7 * DAY) }
    }
}

impl Scheduler {
    fn read(read: &mut Reader<'_>) -> Self {
        let scheduler = Self {
            prefetch_window: read.seconds("scheduler.prefetch_window_seconds", SECOND..=HOUR),
            sweep_interval: read.seconds("scheduler.sweep_interval_seconds", 10 * MILLISECOND..=HOUR),
            claim_batch: read.number("scheduler.claim_batch", 1..=10_000),
            visibility: read.seconds("scheduler.visibility_seconds", SECOND..=DAY),
            partitions: read.number("scheduler.partitions", 1..=1_024),
            backlog_per_second: read.number("scheduler.backlog_per_second", 0..=1_000_000),
        };
        let overlaps = scheduler.sweep_interval <= scheduler.prefetch_window;
        let advice = "must be at most scheduler.prefetch_window_seconds, or tasks fall between two looks";
        read.require("scheduler.sweep_interval_seconds", overlaps, advice);
        scheduler
    }
}

/// The most that anything weighs against the others.
const HEAVIEST: i64 = 1_000;

fn fairness(read: &mut Reader<'_>) -> fairness::Config {
    fairness::Config {
        bands: BandWeights::new(
            read.number("fairness.high_weight", 1..=HEAVIEST),
            read.number("fairness.normal_weight", 1..=HEAVIEST),
            read.number("fairness.low_weight", 1..=HEAVIEST),
        ),
        aging: read.seconds("fairness.aging_seconds", Duration::ZERO..=30 * DAY),
        tenants: read.list("fairness.tenant_weights", tenant_weight).into_iter().collect(),
    }
}

fn tenant_weight(text: &str) -> Result<(String, u32), String> {
    let weight = |text: &str| text.parse().ok().filter(|weight| (1..=HEAVIEST).contains(&i64::from(*weight)));
    let parsed = text.split_once('=').and_then(|(tenant, text)| Some((tenant.trim(), weight(text.trim())?)));
    let named = parsed.filter(|(tenant, _)| !tenant.is_empty()).map(|(tenant, weight)| (tenant.to_owned(), weight));
    named.ok_or_else(|| format!("{text:?} must be a tenant and its weight from 1 to {HEAVIEST}, such as \"acme=3\""))
}

impl Leader {
    fn read(read: &mut Reader<'_>) -> Self {
        let leader = Self {
            lease: read.seconds("leader.lease_seconds", SECOND..=HOUR),
            renewal: read.seconds("leader.renewal_seconds", 10 * MILLISECOND..=HOUR),
        };
        let in_time = leader.renewal * 3 <= leader.lease;
        let advice = "must be at most a third of leader.lease_seconds, or one late renewal loses the leadership";
        read.require("leader.renewal_seconds", in_time, advice);
        leader
    }
}

impl Retention {
    fn read(read: &mut Reader<'_>) -> Self {
        let mut days = |key: &str| match read.number(key, 0..=36_500) {
            0_u32 => None,
            days => Some(DAY * days),
        };
        Self { history: days("retention.history_days"), keys: days("retention.idempotency_days") }
    }
}

impl Webhooks {
    fn read(read: &mut Reader<'_>) -> Self {
        // Only a process on loopback runs without authentication, so whoever can submit is on this machine.
        let mut networks = vec!["127.0.0.0/8".to_owned(), "::1/128".to_owned()];
        networks.extend(read.list("webhooks.allow_networks", |text| match text.parse::<Network>() {
            Ok(network) => Ok(network.to_string()),
            Err(fault) => Err(fault.to_string()),
        }));
        let networks = AllowedNetworks::parse(networks.iter().map(String::as_str));
        let webhooks = Self {
            concurrency: read.number("webhooks.concurrency", 1..=100_000),
            per_target: read.number("webhooks.per_target", 1..=100_000),
            tenant_percent: read.number("webhooks.tenant_percent", 1..=100),
            band_percent: read.number("webhooks.band_percent", 1..=100),
            connect_timeout: read.seconds("webhooks.connect_timeout_seconds", MILLISECOND..=HOUR),
            response_bytes: read.number("webhooks.response_bytes", 1_024..=64 * MIB),
            allow_networks: networks.expect("invariant: each is a network"),
        };
        let shared = webhooks.per_target <= webhooks.concurrency;
        read.require("webhooks.per_target", shared, "must be at most webhooks.concurrency");
        webhooks
    }
}

impl Leases {
    fn read(read: &mut Reader<'_>) -> Self {
        let leases = Self {
            default: read.seconds("leases.default_seconds", SECOND..=HOUR),
            max: read.seconds("leases.max_seconds", SECOND..=HOUR),
        };
        read.require("leases.max_seconds", leases.default <= leases.max, "must be at least leases.default_seconds");
        leases
    }
}

impl Workers {
    fn read(read: &mut Reader<'_>) -> Self {
        Self {
            lost_after: read.seconds("workers.lost_after_seconds", 20 * MILLISECOND..=DAY),
            poison_after: read.number("workers.poison_after", 0..=1_000),
        }
    }
}

fn node_name(text: &str) -> Result<Option<String>, String> {
    let is_plain = text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    match text {
        "" => Ok(None),
        _ if is_plain => Ok(Some(text.to_owned())),
        _ => Err("must be up to 64 letters, digits, dots, hyphens and underscores, beginning with a letter or digit"
            .to_owned()),
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let advice = "must be an IP address and a port, such as 127.0.0.1:7400";
    let address: SocketAddr = text.parse().map_err(|_| advice.to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        let advice = "authentication is not configured, so only a loopback address such as 127.0.0.1:7400 is accepted";
        Err(advice.to_owned())
    }
}

fn read_store(text: &str) -> Result<Option<SecretUrl>, String> {
    match secret::split_scheme(text) {
        None if text.is_empty() => Ok(None),
        Some(("postgres" | "postgresql", _)) => Ok(Some(SecretUrl::new(text))),
        _ => Err("must be the address of a standby of the store, such as postgres://punctual@replica.example/punctual"
            .to_owned()),
    }
}

fn data_directory(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() || text.contains('\0') {
        Err("must be the path of a directory".to_owned())
    } else {
        Ok(PathBuf::from(text))
    }
}

fn log_level(text: &str) -> Result<String, String> {
    let advice = "must be error, warn, info, debug or trace, or directives such as info,punctual_store=debug";
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|_| advice.to_owned())
}
