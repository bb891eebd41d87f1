//! The sections of the settings: their types, their bounds, and what must hold between them.
//!
//! Called by [`super::Config::new`]. A field has the name of its setting, and
//! `punctual.default.toml` documents what each setting does.

use std::time::Duration;

use punctual_api::auth::CertificateRule;
use punctual_core::breakers::window::{BreakerRules, INTERVALS};
use punctual_core::networks::{AllowedNetworks, Network};
use punctual_core::retry::RetryPolicy;
use punctual_core::task::limits;
use punctual_core::time::{millis, signed_millis};
use punctual_scheduler::fairness::{self, BandWeights};

use super::reader::SettingReader;

const MIB: i64 = 1_024 * 1_024;
const GIB: i64 = 1_024 * MIB;
const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_hours(1);
pub(super) const DAY: Duration = Duration::from_hours(24);

/// Who may call.
#[derive(Clone, Debug)]
pub struct AuthSettings {
    pub enabled: bool,
    pub signed_requests: bool,
    pub public_metrics: bool,
    /// Which certificates act as which tenant and role.
    pub certificates: Vec<CertificateRule>,
}

impl AuthSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        Self {
            enabled: read.flag("auth.enabled"),
            signed_requests: read.flag("auth.signed_requests"),
            public_metrics: read.flag("auth.public_metrics"),
            certificates: read.list("auth.certificates", CertificateRule::parse),
        }
    }
}

/// The bounds of the HTTP interface.
#[derive(Clone, Copy, Debug)]
pub struct LimitSettings {
    pub payload_bytes: usize,
    pub body_bytes: usize,
    pub batch_bytes: usize,
    pub batch_tasks: usize,
    pub connections: usize,
    pub connections_per_address: usize,
    pub requests_in_flight: usize,
    pub bodies_bytes: usize,
    pub answers_bytes: usize,
    pub waiting_workers: usize,
    pub waiting_clients: usize,
    pub tenant_lanes: u64,
    pub header_read_timeout: Duration,
    pub unread_timeout: Duration,
    pub request_timeout: Duration,
}

impl LimitSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        let limits = Self {
            payload_bytes: read.number("limits.payload_bytes", 1..=16 * MIB),
            body_bytes: read.number("limits.body_bytes", 1_024..=64 * MIB),
            batch_bytes: read.number("limits.batch_bytes", 1_024..=GIB),
            batch_tasks: read.number("limits.batch_tasks", 1..=i64::try_from(limits::BATCH).unwrap_or(i64::MAX)),
            connections: read.number("limits.connections", 1..=1_000_000),
            connections_per_address: read.number("limits.connections_per_address", 1..=1_000_000),
            requests_in_flight: read.number("limits.requests_in_flight", 1..=1_000_000),
            bodies_bytes: read.number("limits.bodies_bytes", 1_024..=64 * GIB),
            answers_bytes: read.number("limits.answers_bytes", 1_024..=64 * GIB),
            waiting_workers: read.number("limits.waiting_workers", 1..=1_000_000),
            waiting_clients: read.number("limits.waiting_clients", 1..=1_000_000),
            tenant_lanes: read.number("limits.tenant_lanes", 1..=1_000_000_000),
            header_read_timeout: read.seconds("limits.header_read_timeout_seconds", MILLISECOND..=HOUR),
            unread_timeout: read.seconds("limits.unread_timeout_seconds", MILLISECOND..=HOUR),
            request_timeout: read.seconds("limits.request_timeout_seconds", MILLISECOND..=HOUR),
        };
        let fits = limits.payload_bytes <= limits.body_bytes;
        read.require("limits.body_bytes", fits, "must be at least limits.payload_bytes, so that a task fits");
        let fits = limits.body_bytes <= limits.batch_bytes;
        read.require("limits.batch_bytes", fits, "must be at least limits.body_bytes, so that every task fits a batch");
        limits
    }
}

/// The defaults of a task.
#[derive(Clone, Debug)]
pub struct TaskSettings {
    pub retry_policy: RetryPolicy,
    /// How long one run may take.
    pub timeout: Duration,
}

impl TaskSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        let longest = Duration::from_millis(limits::RETRY_DELAY_MILLIS);
        let retry_policy = RetryPolicy {
            max_retries: read.number("tasks.max_retries", 0..=i64::from(limits::RETRIES)),
            backoff: read.word("tasks.backoff", r#""fixed", "linear" or "exponential""#),
            backoff_millis: millis(read.seconds("tasks.backoff_seconds", Duration::ZERO..=longest)),
            max_backoff_millis: millis(read.seconds("tasks.max_backoff_seconds", Duration::ZERO..=longest)),
            jitter: read.word("tasks.jitter", r#""none" or "full""#),
            delays_millis: Vec::new(),
            retry_on: None,
        };
        let grows = retry_policy.backoff_millis <= retry_policy.max_backoff_millis;
        read.require("tasks.max_backoff_seconds", grows, "must be at least tasks.backoff_seconds");
        Self { retry_policy, timeout: read.seconds("tasks.timeout_seconds", MILLISECOND..=7 * DAY) }
    }
}

/// How due tasks are found and claimed.
#[derive(Clone, Copy, Debug)]
pub struct SchedulerSettings {
    pub prefetch_window: Duration,
    pub sweep_interval: Duration,
    pub claim_batch: usize,
    pub visibility: Duration,
    pub partitions: u16,
    /// Zero means no limit.
    pub backlog_per_second: u32,
}

impl SchedulerSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        let scheduler = Self {
            prefetch_window: read.seconds("scheduler.prefetch_window_seconds", SECOND..=HOUR),
            sweep_interval: read.seconds("scheduler.sweep_interval_seconds", 10 * MILLISECOND..=HOUR),
            claim_batch: read.number("scheduler.claim_batch", 1..=10_000),
            visibility: read.seconds("scheduler.visibility_seconds", SECOND..=DAY),
            partitions: read.number("scheduler.partitions", 1..=1_024),
            backlog_per_second: read.number("scheduler.backlog_per_second", 0..=1_000_000),
        };
        let overlaps = scheduler.sweep_interval <= scheduler.prefetch_window;
        let advice = "must be at most scheduler.prefetch_window_seconds, or tasks fall between two sweeps";
        read.require("scheduler.sweep_interval_seconds", overlaps, advice);
        scheduler
    }
}

const WEIGHT_MAX: i64 = 1_000;

/// Reads how tenants and priorities share the claims.
pub(super) fn fairness(read: &mut SettingReader<'_>) -> fairness::Config {
    fairness::Config {
        bands: BandWeights::new(
            read.number("fairness.high_weight", 1..=WEIGHT_MAX),
            read.number("fairness.normal_weight", 1..=WEIGHT_MAX),
            read.number("fairness.low_weight", 1..=WEIGHT_MAX),
        ),
        aging: read.seconds("fairness.aging_seconds", Duration::ZERO..=30 * DAY),
        tenants: read.list("fairness.tenant_weights", tenant_weight).into_iter().collect(),
    }
}

fn tenant_weight(text: &str) -> Result<(String, u32), String> {
    let weight = |text: &str| text.parse().ok().filter(|weight| (1..=WEIGHT_MAX).contains(&i64::from(*weight)));
    let parsed = text.split_once('=').and_then(|(tenant, text)| Some((tenant.trim(), weight(text.trim())?)));
    let named = parsed.filter(|(tenant, _)| !tenant.is_empty()).map(|(tenant, weight)| (tenant.to_owned(), weight));
    named.ok_or_else(|| format!("{text:?} must be a tenant and its weight from 1 to {WEIGHT_MAX}, such as \"acme=3\""))
}

/// How leadership and partitions are held.
#[derive(Clone, Copy, Debug)]
pub struct LeaderSettings {
    /// How long a silent node stays the leader, the owner of its partitions, and alive.
    pub lease: Duration,
    /// How often a node renews.
    pub renewal: Duration,
}

impl LeaderSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
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

/// How long finished tasks and idempotency keys are kept; none means forever.
#[derive(Clone, Copy, Debug)]
pub struct RetentionSettings {
    pub history: Option<Duration>,
    pub keys: Option<Duration>,
}

impl RetentionSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        let mut days = |key: &str| match read.number(key, 0..=36_500) {
            0_u32 => None,
            days => Some(DAY * days),
        };
        Self { history: days("retention.history_days"), keys: days("retention.idempotency_days") }
    }
}

/// How webhooks are called.
#[derive(Clone, Debug)]
pub struct WebhookSettings {
    pub concurrency: usize,
    pub per_target: usize,
    pub tenant_percent: u8,
    pub band_percent: u8,
    pub connect_timeout: Duration,
    pub response_bytes: usize,
    /// Those of `allow_networks` without those of `deny_networks`.
    pub networks: AllowedNetworks,
}

impl WebhookSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        let network = |text: &str| text.parse::<Network>().map_err(|fault| fault.to_string());
        let networks = AllowedNetworks::none()
            .allowing(read.list("webhooks.allow_networks", network))
            .denying(read.list("webhooks.deny_networks", network));
        let webhooks = Self {
            concurrency: read.number("webhooks.concurrency", 1..=100_000),
            per_target: read.number("webhooks.per_target", 1..=100_000),
            tenant_percent: read.number("webhooks.tenant_percent", 1..=100),
            band_percent: read.number("webhooks.band_percent", 1..=100),
            connect_timeout: read.seconds("webhooks.connect_timeout_seconds", MILLISECOND..=HOUR),
            response_bytes: read.number("webhooks.response_bytes", 1_024..=64 * MIB),
            networks,
        };
        let shared = webhooks.per_target <= webhooks.concurrency;
        read.require("webhooks.per_target", shared, "must be at most webhooks.concurrency");
        webhooks
    }
}

/// When circuit breakers open, and how they are probed.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    pub enabled: bool,
    pub window: Duration,
    pub minimum: u64,
    pub failure_percent: u64,
    pub probe: Duration,
}

impl BreakerSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        // An interval of the window is at least as long as the nodes take to exchange their counts.
        let shortest = Duration::from_secs(INTERVALS.unsigned_abs());
        Self {
            enabled: read.flag("breakers.enabled"),
            window: read.seconds("breakers.window_seconds", shortest..=DAY),
            minimum: read.number("breakers.minimum", 1..=1_000_000),
            failure_percent: read.number("breakers.failure_percent", 1..=99),
            probe: read.seconds("breakers.probe_seconds", SECOND..=DAY),
        }
    }

    /// The rules by which they open.
    pub fn rules(&self) -> BreakerRules {
        let Self { minimum, failure_percent, .. } = *self;
        BreakerRules { window_millis: signed_millis(self.window), minimum, failure_percent }
    }

    /// The time between probes.
    pub fn probe_millis(&self) -> i64 {
        signed_millis(self.probe)
    }
}

/// The leases of pull workers.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    /// The lease of a worker that asks for none.
    pub default: Duration,
    /// The longest lease that a worker may ask for.
    pub max: Duration,
}

impl LeaseSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        let leases = Self {
            default: read.seconds("leases.default_seconds", SECOND..=HOUR),
            max: read.seconds("leases.max_seconds", SECOND..=HOUR),
        };
        read.require("leases.max_seconds", leases.default <= leases.max, "must be at least leases.default_seconds");
        leases
    }
}

/// Pull workers, and what happens when they are silent.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    pub lost_after: Duration,
    /// Zero means never.
    pub poison_after: u32,
}

impl WorkerSettings {
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        Self {
            lost_after: read.seconds("workers.lost_after_seconds", 20 * MILLISECOND..=DAY),
            poison_after: read.number("workers.poison_after", 0..=1_000),
        }
    }
}
