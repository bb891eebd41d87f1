//! The embedded store: one SQLite database in a directory of its own.
//!
//! One thread writes (`writer`), a few read beside it (`reader`), and `ports` turns calls into jobs
//! for them. Each verb of the store is a file of its own, and each SQL statement a file under
//! `src/sql/sqlite`. An acknowledged write is on the disk: the log is synced at every commit,
//! before the answer.

mod apply;
mod breakers;
mod bulk;
mod checkpoint;
mod checkpointer;
mod claim;
mod connection;
mod counts;
mod damage;
mod dependents;
mod directory;
mod extend;
mod fault;
mod forecast;
mod fullness;
mod get;
mod heads;
mod insert;
mod insight;
mod job;
mod job_queue;
mod lanes;
mod leases;
mod limits;
mod list;
mod list_gather;
mod list_source;
mod outbox;
mod overdue;
mod partitions;
mod parts;
mod portable;
mod ports;
mod private_file;
mod quarantine;
mod queue_tally;
mod queues;
mod reader;
mod reclaim;
mod registry;
mod resolve;
mod retention;
mod row;
mod schedules;
mod session;
mod start;
mod statements;
mod tenants;
mod upcoming;
mod webhook_secrets;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::Notify;
use tracing::warn;

use crate::migrations::{MigrationError, SchemaStatus, sqlite as migrations};
use connection::{OLDEST_SQLITE, open_writer};
use damage::DamageMonitor;
use directory::Directory;
use fault::{Fault, closed};
use fullness::Fullness;
use job_queue::WriteClass;
use lanes::LaneDirectory;
use reader::Readers;
use resolve::ReviewCursor;
use retention::Walks;
use session::Session;
pub(crate) use statements::Sql;
use writer::WriterHandle;

use crate::connection_counts::ConnectionCounts;
use crate::limit_watch::LimitWatch;
use crate::write_queue::{BatchLimit, QueueBounds, Weight};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of threads that read beside the writer.
    pub readers: usize,
    /// The maximum number of calls of one class that wait; further ones are refused as overloaded.
    pub queue_jobs: usize,
    /// The maximum number of tasks in the waiting calls of one class.
    pub queue_rows: usize,
    /// The maximum number of bytes in the waiting calls of one class.
    pub queue_bytes: usize,
    /// Further calls are also refused once the oldest waiting call has waited this long.
    pub queue_age: Duration,
    /// The maximum number of calls in one transaction.
    pub group_jobs: usize,
    /// About how many tasks one transaction changes at most.
    pub group_rows: usize,
    /// The number of pages in the log at which a checkpoint begins.
    pub checkpoint_pages: u32,
    /// The size to which the log's file is cut when it has grown beyond it.
    pub log_limit_bytes: i64,
    /// The size of the writer's page cache.
    pub writer_cache_bytes: usize,
    /// The size of each reader's page cache.
    pub reader_cache_bytes: usize,
    /// The number of lanes that the writer caches.
    pub cached_lanes: usize,
    /// The maximum number of lanes of a tenant.
    pub tenant_lanes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            readers: 3,
            queue_jobs: 10_000,
            queue_rows: 1_000_000,
            queue_bytes: 256 << 20,
            queue_age: Duration::from_secs(5),
            group_jobs: 1_000,
            group_rows: 10_000,
            checkpoint_pages: 4_000,
            log_limit_bytes: 64 << 20,
            writer_cache_bytes: 32 << 20,
            reader_cache_bytes: 8 << 20,
            cached_lanes: 100_000,
            tenant_lanes: 100_000,
        }
    }
}

impl Options {
    fn writer_bounds(&self) -> QueueBounds {
        QueueBounds { jobs: self.queue_jobs, rows: self.queue_rows, bytes: self.queue_bytes, age: self.queue_age }
    }

    fn batch_limit(&self) -> BatchLimit {
        BatchLimit { jobs: self.group_jobs, rows: self.group_rows }
    }

    /// Reads weigh nothing while they wait.
    fn reader_bounds(&self) -> QueueBounds {
        QueueBounds { rows: usize::MAX, bytes: usize::MAX, ..self.writer_bounds() }
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made, read or locked.
    #[error("the data directory {} cannot be used: {reason}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        reason: String,
    },
    /// There is no room on its disk.
    #[error("the disk of the data directory {} is full: free some space", path.display())]
    Full {
        /// The directory.
        path: PathBuf,
    },
    /// Another process has it open.
    #[error("the data directory {} is in use by another punctual process", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// This binary contains a SQLite that can corrupt data.
    #[error("this binary contains SQLite {found}, which can corrupt a database under load: 3.51.3 or newer is needed")]
    OldSqlite {
        /// The version that it contains.
        found: &'static str,
    },
    /// The schema is not one that this binary can work with.
    #[error("the database in {} cannot be used: {reason}", path.display())]
    Schema {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        reason: MigrationError,
    },
    /// The database cannot be opened.
    #[error("the database in {} cannot be opened: {reason}", path.display())]
    Database {
        /// The directory.
        path: PathBuf,
        /// The error of SQLite or the operating system.
        reason: String,
    },
}

impl OpenError {
    /// The same, or that the disk is full if it is: SQLite reports that as an I/O error in places.
    fn or_full(self, path: &Path) -> Self {
        let may_be = matches!(self, Self::Directory { .. } | Self::Schema { .. } | Self::Database { .. });
        if may_be && directory::is_full(path) { Self::Full { path: path.to_owned() } } else { self }
    }
}

/// The embedded store, behind all ports (see the module). Clones share it.
#[derive(Clone)]
pub struct SqliteStore {
    shared: Arc<Shared>,
}

struct Shared {
    writer: WriterHandle,
    readers: Readers,
    damage: Arc<DamageMonitor>,
    fullness: Arc<Fullness>,
    limit_watch: Arc<LimitWatch>,
    /// Notified when a commit leaves notes for the resolver.
    left: Arc<Notify>,
    /// Where the next review begins.
    reviewed: Mutex<ReviewCursor>,
    walks: Mutex<Walks>,
    connections: Arc<ConnectionCounts>,
    threads: Mutex<Option<Threads>>,
}

struct Threads {
    writer: JoinHandle<()>,
    readers: Vec<JoinHandle<()>>,
}

impl SqliteStore {
    /// Opens the store in `directory` and migrates its schema. A missing directory is made. `clock`
    /// becomes the store's clock, and `node` is the process that its claims name.
    pub fn open(
        directory: impl AsRef<Path>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        options: Options,
    ) -> Result<Self, OpenError> {
        let path = directory.as_ref();
        let store = Self::open_directory(path, clock, node, options).map_err(|error| error.or_full(path))?;
        // Its log may have room left, so that it opens all the same.
        if directory::is_full(path) {
            warn!(path = %path.display(), "the disk of the data directory is full: free some space; until then the \
                server refuses tasks that have no room");
        }
        Ok(store)
    }

    fn open_directory(
        directory: &Path,
        clock: Arc<dyn Clock>,
        node: NodeId,
        options: Options,
    ) -> Result<Self, OpenError> {
        let Migrator { directory, mut connection } = Migrator::open(directory, &options)?;
        let path = directory.path().to_owned();
        migrations::up(&mut connection, clock.now())
            .map_err(|reason| OpenError::Schema { path: path.clone(), reason })?;
        let fault = |reason: String| OpenError::Database { path: path.clone(), reason };
        let damage = DamageMonitor::new(directory.database(), options.clone());
        let lanes = LaneDirectory::new(1);
        registry::forget_the_past(&mut Session::new(&connection, &damage, Arc::clone(&clock), node, lanes))
            .map_err(|reason| fault(reason.to_store_error().to_string()))?;
        directory.sync().map_err(|reason| fault(reason.to_string()))?;

        let connections = Arc::<ConnectionCounts>::default();
        let (readers, reader_threads) =
            Readers::start(&directory.database(), &damage, &clock, node, &options, &connections)
                .map_err(|reason| fault(reason.to_string()))?;
        let fullness = Arc::new(Fullness::default());
        let health = (Arc::clone(&damage), Arc::clone(&fullness));
        let (limit_watch, left) = (Arc::new(LimitWatch::default()), Arc::new(Notify::new()));
        let (writer, writer_thread) = WriterHandle::start(
            (connection, &connections),
            directory,
            health,
            (&limit_watch, &left),
            clock,
            node,
            options,
        )
        .inspect_err(|_| readers.close())
        .map_err(|reason| fault(reason.to_string()))?;
        let threads = Mutex::new(Some(Threads { writer: writer_thread, readers: reader_threads }));
        Ok(Self {
            shared: Arc::new(Shared {
                writer,
                readers,
                damage,
                fullness,
                limit_watch,
                left,
                reviewed: Mutex::default(),
                walks: Mutex::default(),
                connections,
                threads,
            }),
        })
    }

    /// The connections of this store: the writer's and the readers'.
    pub fn connections(&self) -> Arc<ConnectionCounts> {
        Arc::clone(&self.shared.connections)
    }

    fn writer(&self) -> &WriterHandle {
        &self.shared.writer
    }

    fn readers(&self) -> &Readers {
        &self.shared.readers
    }

    fn walks(&self) -> &Mutex<Walks> {
        &self.shared.walks
    }

    /// Writes and reads one row. Fails at once if the file is known to be damaged or the disk full.
    async fn check(&self) -> Result<(), StoreError> {
        self.shared.damage.verdict()?;
        self.shared.fullness.verdict()?;
        let write = |session: &mut Session<'_>| -> Result<(), Fault> {
            let now = session.now().as_millis();
            session.statements.get(Sql::ProbeWrite)?.execute([now])?;
            Ok(())
        };
        self.writer().call(WriteClass::Urgent, Weight::SMALL, write).await?;
        let read = |session: &mut Session<'_>| -> Result<i64, Fault> {
            Ok(session.statements.get(Sql::ProbeRead)?.query_row([], |row| row.get(0))?)
        };
        match self.readers().call(read).await? {
            1 => Ok(()),
            _ => Err(StoreError::Corrupt("the row that was written is missing".to_owned())),
        }
    }

    /// Makes the writer read these live rows again and quarantine the unreadable ones.
    async fn quarantine_unreadable(&self, rows: Vec<i64>) {
        if rows.is_empty() {
            return;
        }
        let weight = Weight { bytes: Weight::SMALL.bytes, rows: rows.len() };
        let work = move |session: &mut Session<'_>| quarantine::put_away_unreadable(session, &rows);
        if let Err(fault) = self.writer().call(WriteClass::Progress, weight, work).await {
            warn!(error = %fault, "cannot quarantine unreadable tasks; the next read tries again");
        }
    }

    /// Finishes the waiting calls, moves everything into one file, and closes it. The readers end
    /// first: they would keep the writer from emptying the log.
    async fn close(&self) -> Result<(), StoreError> {
        let Some(threads) = self.shared.threads.lock().take() else { return Err(closed()) };
        let shared = Arc::clone(&self.shared);
        let ended = tokio::task::spawn_blocking(move || {
            shared.readers.close();
            let readers: Vec<_> = threads.readers.into_iter().map(JoinHandle::join).collect();
            shared.writer.close();
            threads.writer.join().is_ok() && readers.iter().all(Result::is_ok)
        });
        match ended.await {
            Ok(true) => Ok(()),
            _ => Err(StoreError::Unavailable("a thread of the store died".to_owned())),
        }
    }
}

/// A store that is dropped without being closed ends its threads after the waiting calls.
impl Drop for Shared {
    fn drop(&mut self) {
        self.readers.close();
        self.writer.close();
    }
}

/// Runs migrations on a database whose directory it has locked.
pub struct Migrator {
    directory: Directory,
    connection: Connection,
}

impl Migrator {
    /// Opens the database in `directory` without checking its schema. Both are made if missing.
    pub fn open(directory: &Path, options: &Options) -> Result<Self, OpenError> {
        if rusqlite::version_number() < OLDEST_SQLITE {
            return Err(OpenError::OldSqlite { found: rusqlite::version() });
        }
        Self::open_directory(directory, options).map_err(|error| error.or_full(directory))
    }

    fn open_directory(directory: &Path, options: &Options) -> Result<Self, OpenError> {
        let directory = Directory::lock(directory)?;
        let connection = open_writer(&directory.database(), options)
            .map_err(|reason| OpenError::Database { path: directory.path().to_owned(), reason: reason.to_string() })?;
        Ok(Self { directory, connection })
    }

    /// Applies every missing migration; returns their numbers.
    pub fn up(&mut self, now: Timestamp) -> Result<Vec<u32>, MigrationError> {
        migrations::up(&mut self.connection, now)
    }

    /// Reverts every migration above `to`; returns their numbers.
    pub fn down(&mut self, to: u32) -> Result<Vec<u32>, MigrationError> {
        migrations::down(&mut self.connection, to)
    }

    /// Whether it holds tasks, live or finished. A database without our tables holds none.
    pub fn has_tasks(&self) -> bool {
        let last = self.connection.query_row(Sql::BodyLast.text(), [], |row| row.get::<_, i64>(0));
        last.is_ok_and(|seq| seq > 0)
    }

    /// Every migration, and when it was applied.
    pub fn status(&self) -> Result<SchemaStatus, MigrationError> {
        migrations::status(&self.connection)
    }
}
