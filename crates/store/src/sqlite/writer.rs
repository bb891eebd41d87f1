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
use super::limits;
use super::outbox;
use super::session::Session;
use super::statements::Sql;
use crate::limit_watch::LimitWatch;
use crate::write_queue::Weight;

/// The callers' end of the writer's queue.
pub(crate) struct WriterHandle {
    queue: Arc<JobQueue<Box<dyn Job>>>,
    damage: Arc<DamageMonitor>,
}

impl WriterHandle {
    /// Starts the thread. It has the directory's lock, and gives it up when the database is closed.
    pub(crate) fn start(
        connection: Connection,
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
        };
        let handle = thread::Builder::new().name("punctual-write".to_owned()).spawn(move || thread.run(connection))?;
        Ok((writer, handle))
    }

    /// Has `work` done inside a transaction; the answer comes after the commit. Nothing is written
    /// to a file that may be damaged: whoever restores a backup would lose what was acknowledged
    /// meanwhile.
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

    /// Has the parts of one call done, in order, each inside a transaction and maybe not in the
    /// same one: others can pass between them. Each answers for itself; all are refused, or none.
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
        let mut told = Vec::with_capacity(answers.len());
        for answer in answers {
            told.push(answer.wait().await);
        }
        Ok(told)
    }

    /// How many calls wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Refuses further calls; the thread ends when it has done what waits.
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
}

/// Whatever ends the thread, nobody waits for it for ever.
struct AbandonOnDrop(Arc<JobQueue<Box<dyn Job>>>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl WriterThread {
    /// Serves until the queue is closed. When the disk fails, what the kernel holds of the files
    /// and what is on the disk may differ, and a later fsync that succeeds proves nothing about it:
    /// the connection is closed and opened again, everything in the log is written anew into the
    /// database and synced, and only then the next caller is served.
    fn run(self, connection: Connection) {
        let _abandon = AbandonOnDrop(Arc::clone(&self.queue));
        let mut trusted = Some(connection);
        loop {
            let (connection, checkpoints) = match self.trust(trusted.take()) {
                Ok(opened) => opened,
                Err(fault) => {
                    warn!(fault = %fault.to_store_error(), "cannot reopen the database; refusing writes until it opens");
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
                    error!(fault = %fault.to_store_error(), "the disk failed; reopening the database before the next write");
                }
            }
        }
    }

    /// A connection that can be trusted, and another one for whoever moves its log.
    fn trust(&self, connection: Option<Connection>) -> Result<(Connection, Checkpoints), Fault> {
        let connection = connection.map_or_else(|| self.reopen(), Ok)?;
        let beside = open_writer(&self.directory.database(), &self.options)?;
        let checkpoints = Checkpoints::new(self.options.checkpoint_pages, beside).map_err(Fault::Thread)?;
        Ok((connection, checkpoints))
    }

    /// Serves until the queue is closed, or until the disk fails.
    fn serve(&self, connection: &Connection, mut checkpoints: Checkpoints) -> Result<(), Fault> {
        let clock = Arc::clone(&self.clock);
        let mut session = Session::new(connection, &self.damage, clock, self.node, self.options.cached_lanes);
        session.limit_watch = Some(Arc::clone(&self.limit_watch));
        session.resolver = Some(Arc::clone(&self.resolver));
        while let Some(batch) = self.queue.begin() {
            commit(&mut session, &self.queue, batch)?;
            if std::mem::take(&mut session.found_no_room) {
                self.fullness.report();
            }
            match checkpoints.tend(connection) {
                Err(fault) if fault.is_suspect() => return Err(fault),
                Err(fault) => {
                    warn!(fault = %fault.to_store_error(), "cannot checkpoint the write-ahead log; it grows until the next try");
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

    /// Leaves one file that holds everything.
    fn finish(&self, connection: Connection) {
        if let Err(fault) = truncate(&connection) {
            warn!(fault = %fault.to_store_error(), "cannot checkpoint the write-ahead log at the end; the next open does it");
        }
        drop(connection);
        if let Err(error) = self.directory.sync() {
            warn!(%error, "cannot sync the data directory; a crash now may undo the last file changes");
        }
    }
}

/// Transactions whose jobs are guarded from each other after one has failed. A savepoint makes
/// SQLite copy every page before its first change, an eighth of all the writer does, and jobs fail
/// next to never: when something is wrong with the disk or with us. So it is the first failure that
/// costs its companions their transaction, and not the next.
const GUARDED_TRANSACTIONS: u32 = 1_000;

/// So long after the last failure a transaction that was committed means that all is well again.
const CALM_DURATION: Duration = Duration::from_secs(5);

/// A transaction ends early for the sake of small calls no more often than this. A commit takes up
/// to a millisecond: this is what a flood of large calls pays for it at the most.
const EARLY_END_INTERVAL: Duration = Duration::from_millis(8);

/// Does jobs in one transaction and answers them. Fails only if the connection cannot be trusted
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

/// Runs one job. If it fails, what it did is undone; nothing else if it is guarded by a savepoint,
/// and everything since the beginning if it is not.
fn run(session: &mut Session<'_>, job: &mut dyn Job, guarded: bool) -> JobOutcome {
    if guarded && let Err(fault) = session.statements.run(Sql::Savepoint) {
        return JobOutcome::Lost(fault);
    }
    if let Err(fault) = job.run(session) {
        session.found_no_room |= fault.is_full();
        session.lanes.forget();
        session.tally.forget();
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
    JobOutcome::Done
}

/// Commits, and answers those who were waiting for it. `before` is how many rows had been changed
/// when it began.
fn finish(session: &mut Session<'_>, done: Vec<Box<dyn Job>>, before: u64) -> Result<(), Fault> {
    if done.is_empty() {
        return undo(session);
    }
    let written = write_counts(session).and_then(|changed| session.statements.run(Sql::Commit).map(|()| changed));
    let changed = match written {
        Ok(changed) => changed,
        Err(fault) => {
            session.found_no_room |= fault.is_full();
            // A disk stays full for a while, and every caller is told.
            if session.failed_at.replace(Instant::now()).is_none() {
                error!(fault = %fault.to_store_error(), jobs = done.len(), "cannot commit a transaction; its calls fail");
            }
            return roll_back(session, done, fault);
        }
    };
    // A transaction that had little or nothing to write proves nothing.
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

/// Writes how the numbers of live tasks changed, and of those that will be due; gives the former.
fn write_counts(session: &mut Session<'_>) -> Result<Vec<(i64, u8, i64)>, Fault> {
    let changed = session.tally.take();
    if !changed.is_empty() {
        let add = session.statements.get(Sql::CountsAdd)?;
        for change in &changed {
            add.execute(*change)?;
        }
    }
    forecast::write(session)?;
    Ok(changed)
}

/// Undoes the transaction and tells its jobs. Fails if the connection cannot be trusted any more.
fn roll_back(session: &mut Session<'_>, jobs: Vec<Box<dyn Job>>, fault: Fault) -> Result<(), Fault> {
    let undone = undo(session);
    answer_all(jobs, &fault);
    if fault.is_suspect() { Err(fault) } else { undone }
}

/// Undoes the transaction that a job was lost in, and tells those who stood in it as well.
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
    session.limits.forget();
    if session.connection.is_autocommit() { Ok(()) } else { session.statements.run(Sql::Rollback) }
}

fn answer_all(jobs: Vec<Box<dyn Job>>, fault: &Fault) {
    for job in jobs {
        job.answer(Err(fault.to_store_error()));
    }
}
