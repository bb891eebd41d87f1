//! The store that many nodes share: one PostgreSQL, in its schema `punctual`.
//!
//! A few hands write (`hand`), each with a connection of its own, in groups that wait for
//! them in `lines`; reads and leases go through `link`s beside them. `ports` makes calls to
//! these out of those of the ports. Each verb of the store is a file of its own, and each SQL
//! statement one under `src/sql/postgres`. What is acknowledged was committed with
//! `synchronous_commit`; what the row says decides, so that any number of nodes may work on
//! one database.

mod apply;
mod change;
mod claim;
mod clock;
mod connect;
mod database;
mod extend;
mod fault;
mod get;
mod hand;
mod insert;
mod lanes;
mod leases;
mod lines;
mod link;
mod list;
mod listener;
mod marks;
mod notifier;
mod pick;
mod ports;
mod quarantine;
mod reads;
mod registry;
mod row;
mod session;
mod start;
mod statements;
mod take;
mod tid;
mod upkeep;

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

pub use clock::PostgresClock;
pub use connect::ConnectError;
pub use database::Database;
pub(crate) use fault::spoken;
pub use listener::{Wake, Wakes};

use connect::config;
use fault::closed;
use hand::Desk;
use lanes::Lanes;
use lines::{Bounds, Lines, Weight};
use link::Links;
use listener::Listener;
use marks::Marks;
use notifier::Notifier;
use statements::Sql;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections that write.
    pub hands: usize,
    /// Connections that read beside them.
    pub readers: usize,
    /// Calls of one verb that may wait before further ones are refused as overloaded.
    pub queue_jobs: usize,
    /// Tasks that waiting calls of one verb may be about, likewise.
    pub queue_rows: usize,
    /// Bytes that waiting calls of one verb may hold, likewise.
    pub queue_bytes: usize,
    /// A call that no hand has taken by then has failed.
    pub queue_age: Duration,
    /// Calls that are committed together at the most.
    pub group_jobs: usize,
    /// Tasks that are committed together, about.
    pub group_rows: usize,
    /// Lanes that are remembered.
    pub cached_lanes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            hands: 4,
            readers: 4,
            queue_jobs: 10_000,
            queue_rows: 1_000_000,
            queue_bytes: 256 << 20,
            queue_age: Duration::from_secs(5),
            group_jobs: 500,
            group_rows: 4_000,
            cached_lanes: 100_000,
        }
    }
}

impl Options {
    fn bounds(&self) -> Bounds {
        Bounds {
            jobs: self.queue_jobs,
            rows: self.queue_rows,
            bytes: self.queue_bytes,
            age: self.queue_age,
            group_jobs: self.group_jobs.max(1),
            group_rows: self.group_rows.max(1),
        }
    }
}

/// The store on PostgreSQL: tasks, leases and the registry (see the module). Clones share it.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    desk: Arc<Desk>,
    /// For leases and signs of life, which no load may hold up.
    leases: Arc<Links>,
    reads: Links,
    listener: Arc<Listener>,
    hands: Mutex<Option<Vec<JoinHandle<()>>>>,
    background: Vec<AbortHandle>,
}

impl PostgresStore {
    /// Connects to the database that `url` names, whose schema must be the one that this binary knows. `clock` is the
    /// store's clock from now on, and `node` the process in whose name it takes tasks.
    pub async fn connect(
        url: &str,
        clock: Arc<dyn Clock>,
        node: NodeId,
        options: Options,
    ) -> Result<Self, ConnectError> {
        let config = config(url)?;
        connect::check(&config).await?;
        let leases = Arc::new(Links::new(&config, 1, options.queue_jobs));
        let reads = Links::new(&config, options.readers, options.queue_jobs);
        let hands = options.hands.max(2);
        let desk = Arc::new(Desk {
            config,
            lines: Arc::new(Lines::new(options.bounds(), hands)),
            lanes: Arc::new(Lanes::new(options.cached_lanes)),
            marks: Arc::new(Marks::default()),
            notifier: Notifier::default(),
            clock,
            node,
        });
        let listener = Arc::new(Listener::new());
        let background = vec![
            tokio::spawn(desk.notifier.clone().run(Arc::clone(&leases), node)).abort_handle(),
            tokio::spawn(Arc::clone(&listener).run(Arc::clone(&desk))).abort_handle(),
        ];
        let slots = slots(node, hands);
        let hands = slots.map(|slot| tokio::spawn(Arc::clone(&desk).employ(slot))).collect();
        let shared = Shared { desk, leases, reads, listener, hands: Mutex::new(Some(hands)), background };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What other nodes tell of tasks that wait, from now on.
    pub fn wakes(&self) -> Wakes {
        self.shared.listener.subscribe()
    }

    /// Makes the partitions of the history for the months to come and tidies the counts; for one node at a time. Gives
    /// how many partitions were made.
    pub async fn upkeep(&self, now: Timestamp) -> Result<u32, StoreError> {
        self.reads().call(async |session| upkeep::upkeep(session, now).await).await
    }

    /// Removes the months of history in which everything came to rest before `before`; gives their names.
    pub async fn remove_history(&self, before: Timestamp) -> Result<Vec<String>, StoreError> {
        self.reads().call(async |session| upkeep::remove_history(session, before).await).await
    }

    fn lines(&self) -> &Lines {
        &self.shared.desk.lines
    }

    fn lanes(&self) -> &Lanes {
        &self.shared.desk.lanes
    }

    fn now(&self) -> Timestamp {
        self.shared.desk.clock.now()
    }

    fn leases(&self) -> &Links {
        &self.shared.leases
    }

    fn reads(&self) -> &Links {
        &self.shared.reads
    }

    /// Writes a trifle and reads it.
    async fn check(&self) -> Result<(), StoreError> {
        let now = self.now().as_millis();
        let rows = self.leases().call(async |session| session.query(Sql::Probe, &[&now]).await).await?;
        match rows.len() {
            1 => Ok(()),
            _ => Err(StoreError::Corrupt("what was written is not there".to_owned())),
        }
    }

    /// Hands live rows that could not be read to a hand, which looks again and takes them out of the way.
    async fn review(&self, rows: Vec<TaskId>) {
        let weight = Weight { bytes: 0, rows: rows.len() };
        if let Err(fault) = self.lines().call(|all| &mut all.review, rows, weight).await {
            warn!(%fault, "tasks that cannot be read could not be put in quarantine");
        }
    }

    /// Does what waits and closes the connections.
    async fn close(&self) -> Result<(), StoreError> {
        let Some(hands) = self.shared.hands.lock().take() else { return Err(closed()) };
        self.lines().close();
        for hand in hands {
            hand.await.map_err(|_| StoreError::Unavailable("a hand of the store died".to_owned()))?;
        }
        for task in &self.shared.background {
            task.abort();
        }
        self.leases().close().await;
        self.reads().close().await;
        Ok(())
    }
}

/// A store that is dropped without being closed ends its hands when they have done what waits.
impl Drop for Shared {
    fn drop(&mut self) {
        self.desk.lines.close();
        for task in &self.background {
            task.abort();
        }
    }
}

/// Under which the hands of a node count: other numbers than those of most other nodes, so that they seldom wait for
/// each other. Zero is what they are gathered under.
fn slots(node: NodeId, hands: usize) -> impl Iterator<Item = i32> {
    const NODES: u64 = 256;
    let first = i32::try_from(node.number() % NODES).unwrap_or_default() * 64 + 1;
    (first..).take(hands.min(64))
}
