//! The configuration: read once at the start, complete, within its bounds, and never changed.
//!
//! `punctual.default.toml` documents every setting and holds its default; the types here hold its
//! bounds. The command line loads a [`Config`] and passes it to `serve`, which gives each part its
//! section.

mod choice;
mod fault;
mod reader;
mod risks;
mod secret;
mod sections;
mod settings;
mod show;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use punctual_api::server::tls::TlsFiles;
use punctual_scheduler::fairness;
use punctual_store::postgres::CONNECTIONS_MIN;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

pub use self::choice::{BrokerChoice, CoordinatorChoice, Role, StoreChoice};
pub use self::fault::SettingFaults;
use self::reader::SettingReader;
pub use self::risks::risks;
pub use self::secret::SecretUrl;
pub use self::sections::{
    AuthSettings, BreakerSettings, LeaderSettings, LeaseSettings, LimitSettings, RetentionSettings, SchedulerSettings,
    TaskSettings, WebhookSettings, WorkerSettings,
};
use self::sections::{DAY, HOUR, SECOND};
pub use self::settings::{DEFAULT_FILE, RawSettings, SettingOrigin};
pub use self::tokens::{TokenKeySource, TokenSettings};

/// All settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// None for the name of the machine.
    pub name: Option<String>,
    pub listen: SocketAddr,
    /// Where operators are served; none for `listen`.
    pub admin_listen: Option<SocketAddr>,
    /// The TLS identity of the listeners; none if they speak without TLS.
    pub tls: Option<TlsFiles>,
    /// Further names under which this node may be called while authentication is off.
    pub allowed_hosts: Vec<String>,
    /// The directory of the embedded store.
    pub data: PathBuf,
    pub store: StoreChoice,
    /// The standby that lists are read from; none for the store itself.
    pub read_store: Option<SecretUrl>,
    /// How far the standby may be behind.
    pub read_store_lag: Duration,
    /// How many connections to PostgreSQL this node may have.
    pub store_connections: usize,
    pub broker: BrokerChoice,
    pub coordinator: CoordinatorChoice,
    pub roles: BTreeSet<Role>,
    pub auth: AuthSettings,
    /// Which tokens of another system are accepted; none: no tokens are.
    pub tokens: Option<TokenSettings>,
    pub limits: LimitSettings,
    pub tasks: TaskSettings,
    pub scheduler: SchedulerSettings,
    pub fairness: fairness::Config,
    pub leader: LeaderSettings,
    pub retention: RetentionSettings,
    pub webhooks: WebhookSettings,
    pub breakers: BreakerSettings,
    pub leases: LeaseSettings,
    pub workers: WorkerSettings,
    pub shutdown: ShutdownSettings,
    pub log: LogSettings,
}

/// How the process ends.
#[derive(Clone, Copy, Debug)]
pub struct ShutdownSettings {
    /// How long running work may take to finish.
    pub drain: Duration,
}

/// What is logged.
#[derive(Clone, Debug)]
pub struct LogSettings {
    pub format: LogFormat,
    /// Filter directives.
    pub level: String,
}

/// How a log line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

impl Config {
    /// The store, for the log.
    pub fn store_name(&self) -> String {
        match &self.store {
            StoreChoice::Sqlite => self.data.display().to_string(),
            StoreChoice::Postgres(url) => url.to_string(),
        }
    }

    /// Checks and types the settings. `faults` may already hold some from reading the layers.
    pub fn new(settings: &RawSettings, mut faults: SettingFaults) -> Result<Self, SettingFaults> {
        let mut read = SettingReader::new(settings, &mut faults);
        let config = Self {
            name: read.text("name", node_name),
            listen: read.text("listen", listen_address),
            admin_listen: read.text("admin.listen", admin_address),
            tls: tls::read(&mut read),
            allowed_hosts: read.list("allowed_hosts", host_name),
            data: read.text("data", data_directory),
            store: read.text("store", StoreChoice::parse),
            read_store: read.text("read_store", read_store),
            read_store_lag: read.seconds("read_store_lag_seconds", SECOND..=DAY),
            store_connections: read.number("store_connections", CONNECTIONS_MIN..=1_000),
            broker: read.text("broker", BrokerChoice::parse),
            coordinator: read.text("coordinator", CoordinatorChoice::parse),
            roles: read.list("roles", Role::parse).into_iter().collect(),
            auth: AuthSettings::read(&mut read),
            tokens: TokenSettings::read(&mut read),
            limits: LimitSettings::read(&mut read),
            tasks: TaskSettings::read(&mut read),
            scheduler: SchedulerSettings::read(&mut read),
            fairness: sections::fairness(&mut read),
            leader: LeaderSettings::read(&mut read),
            retention: RetentionSettings::read(&mut read),
            webhooks: WebhookSettings::read(&mut read),
            breakers: BreakerSettings::read(&mut read),
            leases: LeaseSettings::read(&mut read),
            workers: WorkerSettings::read(&mut read),
            shutdown: ShutdownSettings { drain: read.seconds("shutdown.drain_seconds", Duration::ZERO..=HOUR) },
            log: LogSettings {
                format: read.word("log.format", r#""text" or "json""#),
                level: read.text("log.level", log_level),
            },
        };
        let is_guarded = config.auth.enabled || config.listen.ip().is_loopback();
        read.require("listen", is_guarded, UNGUARDED);
        let is_guarded = config.auth.enabled || config.admin_listen.is_none_or(|admin| admin.ip().is_loopback());
        read.require("admin.listen", is_guarded, UNGUARDED);
        read.require("roles", !config.roles.is_empty(), "must name at least one role");
        let BrokerChoice::Embedded = config.broker;
        let has = |role| config.roles.contains(&role);
        let is_paired = has(Role::Scheduler) == has(Role::Worker);
        read.require("roles", is_paired, "with the embedded broker a node has both scheduler and worker, or neither");
        let can_have_standby = matches!(config.store, StoreChoice::Postgres(_)) || config.read_store.is_none();
        read.require("read_store", can_have_standby, "needs a PostgreSQL store; leave it out with sqlite");
        let is_apart = config.admin_listen.is_none_or(|admin| admin.port() == 0 || admin != config.listen);
        read.require("admin.listen", is_apart, "must be another address than listen");
        faults.or(config)
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
    text.parse().map_err(|_| "must be an IP address and a port, such as 127.0.0.1:7400".to_owned())
}

fn admin_address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text.is_empty() { Ok(None) } else { listen_address(text).map(Some) }
}

/// The refusal of an address that others could call while everyone may do everything.
const UNGUARDED: &str = "authentication is not configured, so only a loopback address such as 127.0.0.1:7400 is accepted; \
                         set auth.enabled = true for others";

fn host_name(text: &str) -> Result<String, String> {
    let is_plain = text.len() <= 253
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if is_plain { Ok(text.to_owned()) } else { Err("must be names of hosts, such as punctual.example".to_owned()) }
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
