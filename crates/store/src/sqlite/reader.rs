//! The threads that read, each with a connection of its own, beside the writer.
//!
//! `ports` calls them through [`Readers`]. Every job reads one snapshot of the database, in one
//! transaction. So a task that moves to the history meanwhile is found in exactly one of the two.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::store::StoreError;
use rusqlite::Connection;
use tracing::warn;

use super::Options;
use super::connection::open_reader;
use super::damage::DamageMonitor;
use super::fault::Fault;
use super::job::{Job, job};
use super::job_queue::{JobQueue, WriteClass};
use super::lanes::LaneDirectory;
use super::session::Session;
use super::statements::Sql;
use crate::connection_counts::{ConnectionCounts, CountedConnection};
use crate::write_queue::{BatchLimit, Weight};

/// The number of lanes that each reader caches; the writer's cache is the one that matters.
const LANES: usize = 20_000;

/// The callers' end of the readers' queue.
pub(crate) struct Readers {
    queue: Arc<JobQueue<Box<dyn Job>>>,
}

impl Readers {
    /// Starts the threads.
    pub(crate) fn start(
        path: &Path,
        damage: &Arc<DamageMonitor>,
        clock: &Arc<dyn Clock>,
        node: NodeId,
        options: &Options,
        connections: &Arc<ConnectionCounts>,
    ) -> io::Result<(Self, Vec<JoinHandle<()>>)> {
        let queue = Arc::new(JobQueue::new(options.reader_bounds(), ONE, Duration::MAX));
        let readers = Self { queue };
        let mut threads = Vec::new();
        for _ in 0..options.readers.max(1) {
            let thread = ReaderThread {
                queue: Arc::clone(&readers.queue),
                path: path.to_owned(),
                damage: Arc::clone(damage),
                clock: Arc::clone(clock),
                node,
                options: options.clone(),
                connections: Arc::clone(connections),
            };
            let spawned = thread::Builder::new().name("punctual-read".to_owned()).spawn(move || thread.run());
            match spawned {
                Ok(handle) => threads.push(handle),
                Err(error) => {
                    readers.close();
                    return Err(error);
                }
            }
        }
        Ok((readers, threads))
    }

    /// Runs `work` on one snapshot of the database.
    pub(crate) async fn call<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
    {
        let (job, answer) = job(work);
        self.queue.put(WriteClass::Progress, Weight { bytes: 0, rows: 1 }, job)?;
        answer.wait().await
    }

    /// Refuses further calls; the threads end after the waiting ones.
    pub(crate) fn close(&self) {
        self.queue.close();
    }
}

struct ReaderThread {
    queue: Arc<JobQueue<Box<dyn Job>>>,
    path: PathBuf,
    damage: Arc<DamageMonitor>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    options: Options,
    connections: Arc<ConnectionCounts>,
}

impl ReaderThread {
    /// Serves until the queue is closed. After an I/O error the connection is opened again.
    fn run(self) {
        loop {
            let ended = match open_reader(&self.path, &self.options) {
                Ok(connection) => self.serve(&connection),
                Err(error) => {
                    let fault = Fault::from(error);
                    let Some(jobs) = self.queue.take() else { return };
                    for job in jobs {
                        job.answer(Err(fault.to_store_error()));
                    }
                    Err(fault)
                }
            };
            match ended {
                Ok(()) => return,
                Err(fault) => warn!(error = %fault.to_store_error(), "a read connection failed; reopening it"),
            }
        }
    }

    fn serve(&self, connection: &Connection) -> Result<(), Fault> {
        let lanes = LaneDirectory::new(LANES);
        let mut session = Session::new(connection, &self.damage, Arc::clone(&self.clock), self.node, lanes);
        let counted = CountedConnection::open(&self.connections);
        while let Some(jobs) = self.queue.take() {
            let _call = counted.call();
            for mut job in jobs {
                let outcome = read(&mut session, job.as_mut());
                job.answer(outcome.as_ref().map_err(Fault::to_store_error).copied());
                match outcome {
                    Err(fault) if fault.is_suspect() => return Err(fault),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// One job at a time: the next is for another thread.
const ONE: BatchLimit = BatchLimit { jobs: 1, rows: usize::MAX };

fn read(session: &mut Session<'_>, job: &mut dyn Job) -> Result<(), Fault> {
    session.statements.run(Sql::Begin)?;
    let outcome = job.run(session);
    // A reader sees only committed lanes.
    session.lanes.keep();
    if !session.connection.is_autocommit() {
        session.statements.run(Sql::Commit)?;
    }
    outcome
}
