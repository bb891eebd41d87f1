//! The one thread that writes, and its group commit.
//!
//! `ports` calls it through a [`WriterHandle`]. The thread takes a batch of jobs, runs them in one
//! transaction and answers the callers after the commit. The commit returns when everything is on
//! the disk, so many calls share one fsync. A job that fails is undone by itself. If the commit
//! fails, every caller of the batch gets an error. A caller that stops waiting does not undo its
//! job. After an I/O error the connection is not trusted any more (see [`WriterThread::run`]).

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::store::StoreError;
use rusqlite::Connection;
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::Options;
use super::checkpoint::{Checkpoints, truncate};
use super::connection::open_writer;
use super::damage::DamageMonitor;
use super::directory::Directory;
use super::fault::Fault;
use super::forecast;
use super::fullness::Fullness;
use super::job::{Job, job};
use super::job_queue::{JobQueue, OpenBatch, WriteClass};
use super::lanes::LaneDirectory;
use super::limits;
use super::outbox;
use super::session::Session;
use super::statements::Sql;
use crate::connection_counts::{ConnectionCounts, CountedConnection};
use crate::limit_watch::LimitWatch;
use crate::write_queue::Weight;

/// The callers' end of the writer's queue.
pub(crate) struct WriterHandle {
    queue: Arc<JobQueue<Box<dyn Job>>>,
    damage: Arc<DamageMonitor>,
}

impl WriterHandle {
    /// Starts the thread. It holds the directory's lock until the database is closed.
    pub(crate) fn start(
        (connection, connections): (Connection, &Arc<ConnectionCounts>),
        directory: Directory,
        (damage, fullness): (Arc<DamageMonitor>, Arc<Fullness>),
        (limit_watch, resolver): (&Arc<LimitWatch>, &Arc<Notify>),
        clock: Arc<dyn Clock>,
        node: NodeId,
        options: Options,
    ) -> io::Result<(Self, JoinHandle<()>)> {
        let queue = Arc::new(JobQueue::new(options.writer_bounds(), options.batch_limit(), EARLY_END_INTERVAL));
        let writer = Self { queue: Arc::clone(&queue), damage: Arc::clone(&damage) };
        let thread = WriterThread {
            queue,
            directory,
            damage,
            fullness,
            limit_watch: Arc::clone(limit_watch),
            resolver: Arc::clone(resolver),
            clock,
            node,
            options,
            connections: Arc::clone(connections),
        };
        let handle = thread::Builder::new().name("punctual-write".to_owned()).spawn(move || thread.run(connection))?;
        Ok((writer, handle))
    }

    /// Runs `work` inside a transaction and returns after the commit. A file that may be damaged
    /// takes no writes: restoring a backup would lose them.
    pub(crate) async fn call<T, F>(&self, class: WriteClass, weight: Weight, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.damage.verdict().map_err(|damage| StoreError::Unavailable(damage.to_string()))?;
        let (job, answer) = job(work);
        self.queue.put(class, weight, job)?;
        answer.wait().await
    }

    /// Runs the parts of one call in order, not always in the same transaction: small calls can
    /// pass between them. Each part has its own answer. The queue takes all parts or none.
    pub(crate) async fn call_in_parts<T, F>(
        &self,
        class: WriteClass,
        parts: Vec<(Weight, F)>,
    ) -> Result<Vec<Result<T, StoreError>>, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
    {
        self.damage.verdict().map_err(|damage| StoreError::Unavailable(damage.to_string()))?;
        let (mut jobs, mut answers) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
        for (weight, work) in parts {
            let (job, answer) = job(work);
            jobs.push((weight, job));
            answers.push(answer);
        }
        self.queue.put_parts(class, jobs)?;
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(answer.wait().await);
        }
        Ok(results)
    }

    /// How many calls wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Refuses further calls; the thread ends after the waiting ones.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

struct WriterThread {
    queue: Arc<JobQueue<Box<dyn Job>>>,
    directory: Directory,
    damage: Arc<DamageMonitor>,
    fullness: Arc<Fullness>,
    limit_watch: Arc<LimitWatch>,
    resolver: Arc<Notify>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    options: Options,
    connections: Arc<ConnectionCounts>,
}

/// Drops the waiting jobs when the thread ends, also by a panic, so that no caller waits forever.
struct AbandonOnDrop(Arc<JobQueue<Box<dyn Job>>>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl WriterThread {
    /// Serves until the queue is closed. After a disk failure the kernel's cache and the disk may
    /// differ, and a later fsync that succeeds proves nothing. So the connection is reopened, and
    /// the whole log is moved into the database and synced, before the next call is served.
    fn run(self, connection: Connection) {
        let _abandon = AbandonOnDrop(Arc::clone(&self.queue));
        let mut trusted = Some(connection);
        loop {
            let (connection, checkpoints) = match self.trust(trusted.take()) {
                Ok(opened) => opened,
                Err(fault) => {
                    warn!(error = %fault.to_store_error(), "cannot reopen the database; refusing writes until it opens");
                    let Some(batch) = self.queue.take() else { return };
                    answer_all(batch, &fault);
                    continue;
                }
            };
            match self.serve(&connection, checkpoints) {
                Ok(()) => {
                    self.finish(connection);
                    return;
                }
                Err(fault) => {
                    error!(error = %fault.to_store_error(), "the disk failed; reopening the database before the next write");
                }
            }
        }
    }

    /// A connection that can be trusted, and the checkpoints with a connection of their own.
    fn trust(&self, connection: Option<Connection>) -> Result<(Connection, Checkpoints), Fault> {
        let connection = connection.map_or_else(|| self.reopen(), Ok)?;
        let beside = open_writer(&self.directory.database(), &self.options)?;
        let checkpoints = Checkpoints::new(self.options.checkpoint_pages, beside).map_err(Fault::Thread)?;
        Ok((connection, checkpoints))
    }

    /// Serves until the queue is closed, or until the disk fails.
    fn serve(&self, connection: &Connection, mut checkpoints: Checkpoints) -> Result<(), Fault> {
        let clock = Arc::clone(&self.clock);
        let lanes = LaneDirectory::new(self.options.cached_lanes).with_tenant_max(self.options.tenant_lanes);
        let mut session = Session::new(connection, &self.damage, clock, self.node, lanes);
        session.limit_watch = Some(Arc::clone(&self.limit_watch));
        session.resolver = Some(Arc::clone(&self.resolver));
        let counted = CountedConnection::open(&self.connections);
        while let Some(batch) = self.queue.begin() {
            let _call = counted.call();
            commit(&mut session, &self.queue, batch)?;
            if std::mem::take(&mut session.found_no_room) {
                self.fullness.report();
            }
            match checkpoints.tend(connection) {
                Err(fault) if fault.is_suspect() => return Err(fault),
                Err(fault) => {
                    warn!(error = %fault.to_store_error(), "cannot checkpoint the write-ahead log; it grows until the next try");
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn reopen(&self) -> Result<Connection, Fault> {
        let connection = open_writer(&self.directory.database(), &self.options)?;
        truncate(&connection)?;
        let now = self.clock.now().as_millis();
        connection.execute(Sql::ProbeWrite.text(), [now])?;
        info!("reopened the database; writes go on");
        Ok(connection)
    }

    /// Moves the log into the database, so that one file holds everything.
    fn finish(&self, connection: Connection) {
        if let Err(fault) = truncate(&connection) {
            warn!(error = %fault.to_store_error(), "cannot checkpoint the write-ahead log at the end; the next open does it");
        }
        drop(connection);
        if let Err(error) = self.directory.sync() {
            warn!(%error, "cannot sync the data directory; a crash now may undo the last file changes");
        }
    }
}

/// After a job has failed, this many transactions guard their jobs by savepoints. A savepoint makes
/// SQLite copy every page before its first change, an eighth of the writer's work, and jobs almost
/// never fail. So only the first failure rolls back the other jobs of its transaction.
const GUARDED_TRANSACTIONS: u32 = 1_000;

/// A commit that comes this long after the last failure ends the alarm.
const CALM_DURATION: Duration = Duration::from_secs(5);

/// A transaction ends early for small calls at most once in this time. A commit takes up to a
/// millisecond, which bounds what a flood of large calls pays.
const EARLY_END_INTERVAL: Duration = Duration::from_millis(8);

/// Runs jobs in one transaction and answers them. Fails only if the connection cannot be trusted
/// any more.
fn commit(session: &mut Session<'_>, queue: &JobQueue<Box<dyn Job>>, mut batch: OpenBatch) -> Result<(), Fault> {
    let guarded = session.guarded_left > 0 && batch.is_of_many();
    session.guarded_left = session.guarded_left.saturating_sub(1);
    let before = session.connection.total_changes();
    if let Err(fault) = session.statements.run(Sql::BeginImmediate) {
        let waiting = std::iter::from_fn(|| queue.next(&mut batch)).collect();
        return roll_back(session, waiting, fault);
    }
    let mut done: Vec<Box<dyn Job>> = Vec::new();
    while let Some(mut job) = queue.next(&mut batch) {
        match run(session, job.as_mut(), guarded) {
            JobOutcome::Done => done.push(job),
            JobOutcome::Undone(fault) => job.answer(Err(fault.to_store_error())),
            JobOutcome::Lost(fault) => {
                job.answer(Err(fault.to_store_error()));
                if fault.is_suspect() {
                    return roll_back(session, done, fault);
                }
                session.guarded_left = GUARDED_TRANSACTIONS;
                return roll_back_companions(session, done);
            }
        }
    }
    finish(session, done, before)
}

/// What became of a job.
enum JobOutcome {
    /// It is part of the transaction.
    Done,
    /// It failed and left nothing behind; the transaction goes on.
    Undone(Fault),
    /// The transaction is lost with it.
    Lost(Fault),
}

/// Runs one job. If it fails and is guarded by a savepoint, only its own writes are rolled back;
/// otherwise the whole transaction is lost.
fn run(session: &mut Session<'_>, job: &mut dyn Job, guarded: bool) -> JobOutcome {
    if guarded && let Err(fault) = session.statements.run(Sql::Savepoint) {
        return JobOutcome::Lost(fault);
    }
    if let Err(fault) = job.run(session) {
        session.found_no_room |= fault.is_full();
        session.lanes.forget();
        session.tally.forget();
        session.queue_tally.forget();
        session.limits.forget();
        // After some faults SQLite itself has rolled back everything.
        if !guarded || fault.is_suspect() || session.connection.is_autocommit() {
            return JobOutcome::Lost(fault);
        }
        let undone =
            session.statements.run(Sql::RollbackToSavepoint).and_then(|()| session.statements.run(Sql::Release));
        return if undone.is_ok() { JobOutcome::Undone(fault) } else { JobOutcome::Lost(fault) };
    }
    if guarded && let Err(fault) = session.statements.run(Sql::Release) {
        return JobOutcome::Lost(fault);
    }
    session.tally.keep();
    session.queue_tally.keep();
    JobOutcome::Done
}

/// Commits and answers the jobs. `before` is the connection's count of changed rows when the
/// transaction began.
fn finish(session: &mut Session<'_>, done: Vec<Box<dyn Job>>, before: u64) -> Result<(), Fault> {
    if done.is_empty() {
        return undo(session);
    }
    let written = write_counts(session).and_then(|changed| session.statements.run(Sql::Commit).map(|()| changed));
    let changed = match written {
        Ok(changed) => changed,
        Err(fault) => {
            session.found_no_room |= fault.is_full();
            // A disk stays full for a while, and every caller gets the error: one line is enough.
            if session.failed_at.replace(Instant::now()).is_none() {
                error!(error = %fault.to_store_error(), jobs = done.len(), "cannot commit a transaction; its calls fail");
            }
            return roll_back(session, done, fault);
        }
    };
    // A transaction that wrote nothing proves nothing.
    if session.failed_at.is_some_and(|at| at.elapsed() >= CALM_DURATION) && session.connection.total_changes() != before
    {
        session.failed_at = None;
        info!("transactions are committed again");
    }
    session.lanes.keep();
    limits::report_freed(session, &changed);
    outbox::wake_resolver(session);
    for job in done {
        job.answer(Ok(()));
    }
    Ok(())
}

/// Writes the changes of the counts and of the forecast; returns those of the counts.
fn write_counts(session: &mut Session<'_>) -> Result<Vec<(i64, u8, i64)>, Fault> {
    let changed = session.tally.take();
    if !changed.is_empty() {
        let add = session.statements.get(Sql::CountsAdd)?;
        for change in &changed {
            add.execute(*change)?;
        }
    }
    for change in session.queue_tally.take() {
        session.statements.get(Sql::QueueCountsAdd)?.execute(change)?;
    }
    forecast::write(session)?;
    Ok(changed)
}

/// Rolls back and fails the jobs. Fails itself if the connection cannot be trusted any more.
fn roll_back(session: &mut Session<'_>, jobs: Vec<Box<dyn Job>>, fault: Fault) -> Result<(), Fault> {
    let undone = undo(session);
    answer_all(jobs, &fault);
    if fault.is_suspect() { Err(fault) } else { undone }
}

/// Rolls back the transaction in which a job was lost, and fails its other jobs.
fn roll_back_companions(session: &mut Session<'_>, companions: Vec<Box<dyn Job>>) -> Result<(), Fault> {
    let undone = undo(session);
    for job in companions {
        let reason = "another call that was written together with it failed; nothing was changed";
        job.answer(Err(StoreError::Unavailable(reason.to_owned())));
    }
    undone
}

fn undo(session: &mut Session<'_>) -> Result<(), Fault> {
    session.lanes.forget();
    session.tally.clear();
    session.queue_tally.clear();
    session.limits.forget();
    if session.connection.is_autocommit() { Ok(()) } else { session.statements.run(Sql::Rollback) }
}

fn answer_all(jobs: Vec<Box<dyn Job>>, fault: &Fault) {
    for job in jobs {
        job.answer(Err(fault.to_store_error()));
    }
}
