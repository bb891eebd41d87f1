//! The store that many nodes share: one PostgreSQL, in its schema `punctual`.
//!
//! `ports` turns the calls of the ports into calls to three parts. Writes wait in queues for a few
//! writers (`writer`), each with a connection of its own. Reads and leases share connections
//! (`connection`). The partitions and the changes of queues have an exclusive connection each. Each
//! verb of the store is a file of its own, and each SQL statement a file under `src/sql/postgres`.
//! An acknowledged write was committed with `synchronous_commit`. The row decides, never the memory
//! of a process, so any number of nodes may work on one database.

mod apply;
mod breakers;
mod bulk;
mod claim;
mod cluster;
mod connection;
mod extend;
mod fault;
mod forecast;
mod get;
mod gone;
mod health;
mod inbox;
mod insert;
mod insight;
mod lanes;
mod leases;
mod limits;
mod list;
mod migrator;
mod outbox;
mod overdue;
mod partitions;
mod ports;
mod quarantine;
mod queues;
mod reads;
mod reclaim;
mod resolve;
mod retention;
mod row;
mod schedules;
mod standby;
mod start;
mod statements;
mod tenants;
mod tid;
mod upkeep;
mod webhook_secrets;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::clock::Clock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio::task::{AbortHandle, JoinHandle};
use tracing::warn;

pub use cluster::{PostgresClock, Wake, Wakes};
pub use connection::{ConnectError, UrlRisks};
pub(crate) use fault::describe;
pub use inbox::{EnqueuedTask, InboxValidator};
pub use migrator::Migrator;
pub use standby::ReadStore;

use claim::held_places::HeldPlaces;
use claim::scan_cursors::{ScanCursors, audit};
use cluster::{Listener, ListeningSession, NodeLock, Notifier};
use connection::{Address, ExclusiveConnection, Session, SharedConnections, reserve};
use fault::closed;
use inbox::InboxDemands;
use lanes::LaneDirectory;
use limits::LimitsCache;
use outbox::Outbox;
use overdue::LowWatermarks;
use retention::Walks;
use standby::Standby;
pub(crate) use statements::Sql;
use statements::{OF_QUEUES, OF_ROUNDS};
use writer::{TasksInDoubt, WriteQueues, WriterShared};

use crate::connection_counts::ConnectionCounts;
use crate::write_queue::{BatchLimit, QueueBounds, Weight};

/// One writer for small submissions, one for large ones, and one that never inserts.
const WRITERS_MIN: usize = 3;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of connections that write; at least three.
    pub writers: usize,
    /// The number of connections that read.
    pub readers: usize,
    /// The maximum number of calls of one verb that wait; further ones are refused as overloaded.
    pub queue_jobs: usize,
    /// The maximum number of tasks in the waiting calls of one verb.
    pub queue_rows: usize,
    /// The maximum number of bytes in the waiting calls of one verb.
    pub queue_bytes: usize,
    /// A call that no writer has taken within this time fails.
    pub queue_age: Duration,
    /// The maximum number of calls in one transaction.
    pub group_jobs: usize,
    /// About how many tasks one transaction changes at most.
    pub group_rows: usize,
    /// The number of lanes that are cached.
    pub cached_lanes: usize,
    /// The maximum number of lanes of a tenant.
    pub tenant_lanes: u64,
    /// If a full scan for overdue tasks takes longer than this, full scans are rare, and the scans
    /// between them begin at a low watermark.
    pub quick_look: Duration,
    /// The standby that lists and counts are read from.
    pub read_store: Option<ReadStore>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            writers: 4,
            readers: 4,
            queue_jobs: 10_000,
            queue_rows: 1_000_000,
            queue_bytes: 256 << 20,
            queue_age: Duration::from_secs(5),
            group_jobs: 500,
            group_rows: 4_000,
            cached_lanes: 100_000,
            tenant_lanes: 100_000,
            quick_look: Duration::from_millis(25),
            read_store: None,
        }
    }
}

/// The connections of a node besides those that read and write tasks: clock, leases, partitions,
/// queue settings, audit of the cursors, notifications (with the lock of the node), submissions by
/// SQL.
const OTHER_CONNECTIONS: usize = 7;

/// The fewest connections that a node can work with.
pub const CONNECTIONS_MIN: i64 = 11;

impl Options {
    /// Divides `connections` between the parts of a node; at least four read and write tasks.
    #[must_use]
    pub fn with_connections(self, connections: usize) -> Self {
        let tasks = connections.saturating_sub(OTHER_CONNECTIONS).max(4);
        let writers = tasks.div_ceil(2).max(WRITERS_MIN);
        Self { writers, readers: tasks - writers, ..self }
    }

    /// A call that waits too long is withdrawn by its caller, so the queues have no age limit.
    fn bounds(&self) -> QueueBounds {
        QueueBounds { jobs: self.queue_jobs, rows: self.queue_rows, bytes: self.queue_bytes, age: Duration::MAX }
    }

    fn batch_limit(&self) -> BatchLimit {
        BatchLimit { jobs: self.group_jobs.max(1), rows: self.group_rows.max(1) }
    }
}

/// The store on PostgreSQL, behind all ports (see the module). Clones share it.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    writers: Arc<WriterShared>,
    /// For leases and presence, which no load may hold up.
    leases: Arc<SharedConnections>,
    /// For the rounds at the partitions, which no load may hold up.
    rounds: ExclusiveConnection,
    /// For changes of queues, which wait for claims.
    changes: ExclusiveConnection,
    reads: SharedConnections,
    /// For `list` and `counts` only: nothing decides by it.
    standby: Option<Arc<Standby>>,
    walks: Mutex<Walks>,
    listener: Arc<Listener>,
    inbox_demands: InboxDemands,
    tasks: Mutex<Option<Vec<JoinHandle<()>>>>,
    background: Vec<AbortHandle>,
}

impl PostgresStore {
    /// Connects to the database at `url`, whose schema must be the one that this binary knows.
    /// `clock` becomes the store's clock, and `node` is the process that its claims name.
    pub async fn connect(
        url: &str,
        clock: Arc<dyn Clock>,
        node: NodeId,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let address = Address::parse(url)?;
        connection::check(&address).await?;
        let (writers, most) = (options.writers.max(WRITERS_MIN), options.queue_jobs);
        // The clock has its connection.
        let reserved = writers + options.readers.max(1) + OTHER_CONNECTIONS - 1;
        let mut sessions = reserve::open_all(&address, reserved).await?.into_iter();
        let leases = Arc::new(SharedConnections::new(&address, 1, most).with_sessions(sessions.next()));
        let [rounds, changes] = [sessions.next(), sessions.next()].map(|session| session.expect("invariant: reserved"));
        let failed = |fault| ConnectError::of(&address, fault);
        let rounds = ExclusiveConnection::open(&address, OF_ROUNDS, most, rounds).await.map_err(failed)?;
        let changes = ExclusiveConnection::open(&address, OF_QUEUES, most, changes).await.map_err(failed)?;
        let audited = SharedConnections::new(&address, 1, 1).with_sessions(sessions.next());
        let reads = SharedConnections::new(&address, options.readers, most)
            .with_sessions(sessions.by_ref().take(options.readers.max(1)));
        let mut of_writers: Vec<Session> = sessions.by_ref().take(writers).collect();
        // Those of notifications and of submissions by SQL are opened again by their users.
        drop(sessions);
        let standby = match &options.read_store {
            Some(wanted) => Some(Arc::new(Standby::open(wanted, &leases, node, &options).await?)),
            None => None,
        };
        let (bounds, limit) = (options.bounds(), options.batch_limit());
        let write_queues = WriteQueues::new(bounds, limit, options.queue_age, writers);
        let shared = Arc::new(WriterShared {
            address,
            write_queues: Arc::new(write_queues),
            lanes: Arc::new(LaneDirectory::new(options.cached_lanes)),
            tenant_lanes: options.tenant_lanes,
            cursors: Arc::new(ScanCursors::default()),
            held_places: HeldPlaces::default(),
            low_watermarks: LowWatermarks::new(options.quick_look),
            notifier: Notifier::default(),
            in_doubt: TasksInDoubt::default(),
            outbox: Outbox::default(),
            limits: LimitsCache::default(),
            clock,
            node,
            node_lock: NodeLock::new(node),
        });
        let listener = Arc::new(Listener::new());
        let listening =
            ListeningSession::open(&shared).await.map_err(|fault| ConnectError::of(&shared.address, fault))?;
        let mut background = vec![
            tokio::spawn(audit::run(Arc::clone(&shared), audited)).abort_handle(),
            tokio::spawn(shared.notifier.clone().run(Arc::clone(&leases), node)).abort_handle(),
            tokio::spawn(Arc::clone(&listener).run(Arc::clone(&shared), listening, Arc::clone(&leases))).abort_handle(),
            tokio::spawn(TasksInDoubt::run(Arc::clone(&shared))).abort_handle(),
        ];
        if let Some(standby) = &standby {
            background.push(tokio::spawn(Arc::clone(standby).watch(Arc::clone(&leases))).abort_handle());
        }
        let slots = slots(node, writers);
        let run = |slot| tokio::spawn(Arc::clone(&shared).run_writer(slot, of_writers.pop()));
        let tasks = slots.map(run).collect();
        let tasks = Mutex::new(Some(tasks));
        let (walks, inbox_demands) = (Mutex::default(), InboxDemands::default());
        let shared = Shared {
            writers: shared,
            leases,
            rounds,
            changes,
            reads,
            standby,
            walks,
            listener,
            inbox_demands,
            tasks,
            background,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Subscribes to the notifications of other nodes about waiting tasks and free partitions.
    pub fn wakes(&self) -> Wakes {
        self.shared.listener.subscribe()
    }

    /// The connections of this store; those of the read store are not counted.
    pub fn connections(&self) -> Arc<ConnectionCounts> {
        Arc::clone(&self.address().connections)
    }

    /// The lag of the read store; none without a read store, or if it does not answer.
    pub fn read_store_lag(&self) -> Option<Duration> {
        self.standby()?.lag()
    }

    fn write_queues(&self) -> &WriteQueues {
        &self.shared.writers.write_queues
    }

    fn writers(&self) -> &WriterShared {
        &self.shared.writers
    }

    fn lanes(&self) -> &LaneDirectory {
        &self.shared.writers.lanes
    }

    fn now(&self) -> Timestamp {
        self.shared.writers.clock.now()
    }

    fn node(&self) -> NodeId {
        self.shared.writers.node
    }

    fn rounds(&self) -> &ExclusiveConnection {
        &self.shared.rounds
    }

    fn leases(&self) -> &SharedConnections {
        &self.shared.leases
    }

    fn reads(&self) -> &SharedConnections {
        &self.shared.reads
    }

    fn address(&self) -> &Address {
        &self.shared.writers.address
    }

    fn walks(&self) -> &Mutex<Walks> {
        &self.shared.walks
    }

    fn standby(&self) -> Option<&Standby> {
        self.shared.standby.as_deref()
    }

    /// Makes a writer read these live rows again and quarantine the unreadable ones.
    async fn quarantine_unreadable(&self, rows: Vec<TaskId>) {
        let weight = Weight { bytes: 0, rows: rows.len() };
        if let Err(fault) = self.write_queues().call(|verbs| &mut verbs.quarantine, rows, weight).await {
            warn!(error = %fault, "cannot quarantine unreadable tasks; the next read tries again");
        }
    }

    /// Finishes the waiting calls and closes the connections.
    async fn close(&self) -> Result<(), StoreError> {
        let Some(tasks) = self.shared.tasks.lock().take() else { return Err(closed()) };
        self.write_queues().close();
        for task in tasks {
            task.await.map_err(|_| StoreError::Unavailable("a writer of the store died".to_owned()))?;
        }
        for task in &self.shared.background {
            task.abort();
        }
        self.rounds().close().await;
        self.shared.changes.close().await;
        self.leases().close().await;
        self.reads().close().await;
        if let Some(standby) = self.standby() {
            standby.close().await;
        }
        Ok(())
    }
}

/// A store that is dropped without being closed ends its writers after the waiting calls.
impl Drop for Shared {
    fn drop(&mut self) {
        self.writers.write_queues.close();
        for task in &self.background {
            task.abort();
        }
    }
}

/// The shards of `counts` (its column `slot`) that the writers of a node add to. Most other nodes
/// use other shards, so writers rarely wait for each other. The upkeep merges all into shard zero.
fn slots(node: NodeId, writers: usize) -> impl Iterator<Item = i32> {
    const NODES: u64 = 256;
    let first = i32::try_from(node.number() % NODES).unwrap_or_default() * 64 + 1;
    (first..).take(writers.min(64))
}
