//! The standby that lists and counts are read from, if there is one.
//!
//! `ports` reads `list` and `counts` from it, and nothing else. It has connections and a lane cache
//! of its own, so that no decision depends on a standby. A check every second measures its lag
//! (`lag`) and whether it shows a write of this node: a copy of the store that was promoted has the
//! same identity. A standby that does not answer, is too far behind or was promoted is not asked;
//! the primary answers instead.

pub(crate) mod lag;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::ids::NodeId;
use punctual_core::store::StoreError;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tracing::{debug, info, warn};

use super::Options;
use super::connection::Address;
use super::connection::ConnectError;
use super::connection::SharedConnections;
use super::connection::{Parameters, Session};
use super::fault::Fault;
use super::lanes::LaneDirectory;
use super::statements::Sql;
use crate::columns::node_column;
use lag::Positions;

/// How often the standby is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// In its first checks the standby may not show the writes of a new node yet. That is not logged.
const NEW_NODE_CHECKS: usize = 10;

/// How long to wait for the standby before the primary is asked.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// A standby to read lists and counts from.
#[derive(Clone)]
pub struct ReadStore {
    /// Its address.
    pub url: String,
    /// The maximum lag.
    pub max_lag: Duration,
}

/// Without its URL, which may have a password in it.
impl fmt::Debug for ReadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadStore").field("max_lag", &self.max_lag).finish_non_exhaustive()
    }
}

/// The standby (see the module).
pub(crate) struct Standby {
    connections: SharedConnections,
    lanes: LaneDirectory,
    max_lag: Duration,
    node: NodeId,
    may_be_asked: AtomicBool,
    lag: Mutex<Option<Duration>>,
}

impl Standby {
    /// Checks that it is a standby of `store`. One that does not answer yet is accepted.
    pub(crate) async fn open(
        wanted: &ReadStore,
        store: &SharedConnections,
        node: NodeId,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let address = Address::parse(&wanted.url).map_err(of_read_store)?;
        let connections = SharedConnections::new(&address, options.readers, options.queue_jobs);
        let standby = Self {
            connections,
            lanes: LaneDirectory::new(options.cached_lanes),
            max_lag: wanted.max_lag,
            node,
            may_be_asked: AtomicBool::new(false),
            lag: Mutex::default(),
        };
        let session = match Session::open(&address, &[]).await {
            Ok(session) => session,
            Err(fault) => {
                return match ConnectError::of(&address, fault) {
                    ConnectError::Unreachable { .. } => Ok(standby),
                    lasting => Err(of_read_store(lasting)),
                };
            }
        };
        let fault = |fault: StoreError| ConnectError::database(&address, fault.to_string());
        let own = store.call(identity).await.map_err(fault)?;
        let other = identity(&session).await.map_err(|reason| fault(reason.to_store_error()))?;
        match own.differs_from(other) {
            Some(reason) => Err(ConnectError::NotAStandby { server: address.to_string(), reason }),
            None => Ok(standby),
        }
    }

    /// Runs `work` on the standby. None: the primary has to be asked.
    pub(crate) async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&Session, &LaneDirectory) -> Result<T, Fault>,
    ) -> Option<T> {
        if !self.may_be_asked.load(Ordering::Relaxed) {
            return None;
        }
        let reading = self.connections.call(async |session| work(session, &self.lanes).await);
        match timeout(ANSWER_TIMEOUT, reading).await {
            Ok(Ok(read)) => Some(read),
            Ok(Err(fault)) => {
                debug!(error = %fault, "the read store failed; reading from the store itself");
                None
            }
            Err(_) => {
                debug!("the read store timed out; reading from the store itself");
                None
            }
        }
    }

    /// How far it is behind, if that is known.
    pub(crate) fn lag(&self) -> Option<Duration> {
        *self.lag.lock()
    }

    /// Checks it until it is aborted. `store` is the primary.
    pub(crate) async fn watch(self: Arc<Self>, store: Arc<SharedConnections>) {
        let mut positions = Positions::default();
        let (mut logged, mut checks) = (None, 0);
        loop {
            let seen = self.check(&store, &mut positions).await;
            let may_be_asked = seen.is_ok();
            self.may_be_asked.store(may_be_asked, Ordering::Relaxed);
            checks += 1;
            let is_news = checks > NEW_NODE_CHECKS || !matches!(seen, Err(StandbyProblem::Strange));
            if is_news && logged.replace(may_be_asked) != Some(may_be_asked) {
                match seen {
                    Ok(()) => info!("lists are read from the read store"),
                    Err(why) => warn!("the read store {why}; lists are read from the store itself"),
                }
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Checks once. Fails with the reason if the standby must not be asked.
    pub(crate) async fn check(
        &self,
        store: &SharedConnections,
        positions: &mut Positions,
    ) -> Result<(), StandbyProblem> {
        let asked_at = Instant::now();
        let written = timeout(ANSWER_TIMEOUT, store.call(written)).await;
        let replayed =
            match timeout(ANSWER_TIMEOUT, self.connections.call(async |session| replayed(session, self.node).await))
                .await
            {
                Ok(Ok(replayed)) => replayed.map_err(|why| self.lost(why))?,
                Ok(Err(fault)) => return Err(self.lost(StandbyProblem::Away(fault.to_string()))),
                Err(_) => return Err(self.lost(StandbyProblem::Away("it does not answer".to_owned()))),
            };
        if !replayed.is_standby {
            return Err(self.lost(StandbyProblem::NoStandby));
        }
        if !replayed.knows_this_node {
            return Err(self.lost(StandbyProblem::Strange));
        }
        // If the primary does not answer, its position is unknown. The last lag counts, and the
        // standby can answer what the primary cannot.
        let Ok(Ok(written)) = written else {
            let known = self.lag();
            return known.map_or(Err(StandbyProblem::Unknown), |lag| self.check_lag(lag));
        };
        positions.take_in(asked_at, written.position);
        let since_commit = replayed.committed_at.map(|at| millis(written.now.saturating_sub(at)));
        let lag = positions.lag(Instant::now(), replayed.position).or(since_commit);
        *self.lag.lock() = lag;
        lag.map_or(Err(StandbyProblem::Unknown), |lag| self.check_lag(lag))
    }

    fn check_lag(&self, lag: Duration) -> Result<(), StandbyProblem> {
        if lag > self.max_lag { Err(StandbyProblem::Behind { lag, most: self.max_lag }) } else { Ok(()) }
    }

    fn lost(&self, why: StandbyProblem) -> StandbyProblem {
        *self.lag.lock() = None;
        why
    }

    /// Drops the connections.
    pub(crate) async fn close(&self) {
        self.connections.close().await;
    }
}

/// Why the standby must not be asked.
#[derive(Debug)]
pub(crate) enum StandbyProblem {
    Away(String),
    Forbidden(String),
    Behind { lag: Duration, most: Duration },
    Unknown,
    NoStandby,
    Strange,
}

impl fmt::Display for StandbyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandbyProblem::Away(reason) => write!(f, "is away ({reason})"),
            StandbyProblem::Forbidden(reason) => write!(
                f,
                "cannot be read ({reason}); unless the schema has yet to arrive there, its user lacks rights; on the store, \
                 run GRANT USAGE ON SCHEMA punctual, GRANT SELECT ON ALL TABLES IN SCHEMA punctual"
            ),
            StandbyProblem::Behind { lag, most } => {
                write!(f, "is {:.1} seconds behind, more than {}", lag.as_secs_f64(), most.as_secs_f64())
            }
            StandbyProblem::Unknown => f.write_str("does not report how far it is behind"),
            StandbyProblem::NoStandby => f.write_str("is not a standby"),
            StandbyProblem::Strange => f.write_str("does not show what this node has written"),
        }
    }
}

/// What identifies a database: the system identifier of its server, and its oid there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    system: i64,
    database: u32,
}

impl Identity {
    fn differs_from(self, other: Self) -> Option<String> {
        if self.system != other.system {
            let (own, other) = (self.system, other.system);
            return Some(format!("it is another server (its system identifier is {other}, the store's is {own})"));
        }
        (self.database != other.database)
            .then(|| "it is another database of the same server; name the database of the store".to_owned())
    }
}

async fn identity(session: &Session) -> Result<Identity, Fault> {
    let row = one(session, Sql::Identity, &[]).await?;
    Ok(Identity { system: row.get(0), database: row.get(1) })
}

/// How far the primary has written its log, and its time.
struct PrimaryPosition {
    position: i64,
    now: i64,
}

async fn written(session: &Session) -> Result<PrimaryPosition, Fault> {
    let row = one(session, Sql::LogWritten, &[]).await?;
    Ok(PrimaryPosition { position: row.get(0), now: row.get(1) })
}

/// How far the standby has replayed the log of the primary.
struct StandbyPosition {
    is_standby: bool,
    knows_this_node: bool,
    position: i64,
    committed_at: Option<i64>,
}

async fn replayed(session: &Session, node: NodeId) -> Result<Result<StandbyPosition, StandbyProblem>, Fault> {
    let row = match one(session, Sql::LogReplayed, &[&node_column(node)]).await {
        Ok(row) => row,
        Err(fault) if is_of_rights(&fault) => {
            return Ok(Err(StandbyProblem::Forbidden(fault.to_store_error().to_string())));
        }
        Err(fault) => return Err(fault),
    };
    let (is_standby, knows_this_node) = (row.get(0), row.get(1));
    Ok(Ok(StandbyPosition { is_standby, knows_this_node, position: row.get(2), committed_at: row.get(3) }))
}

/// Whether a right is missing. Without the right to use a schema PostgreSQL reports its tables as
/// undefined.
fn is_of_rights(fault: &Fault) -> bool {
    let code = fault.code();
    code == Some(&SqlState::INSUFFICIENT_PRIVILEGE) || code == Some(&SqlState::UNDEFINED_TABLE)
}

async fn one(session: &Session, sql: Sql, parameters: Parameters<'_>) -> Result<tokio_postgres::Row, Fault> {
    let row = session.query(sql, parameters).await?.into_iter().next();
    row.ok_or_else(|| Fault::Corrupt("a server did not report its identity".to_owned()))
}

fn of_read_store(fault: ConnectError) -> ConnectError {
    ConnectError::ReadStore(Box::new(fault))
}

fn millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or_default())
}
