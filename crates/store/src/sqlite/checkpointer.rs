//! The thread that moves the write-ahead log into the database while the writer goes on.
//!
//! The writer requests it ([`super::checkpoint`]) and reads the result at its next check. Writes in
//! the meantime stay in the log. The thread has a connection of its own, which is closed together
//! with the writer's: after a disk fault neither is trusted.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::checkpoint::{CheckpointMode, checkpoint};
use super::fault::Fault;

/// The thread (see the module).
pub(crate) struct Checkpointer {
    requests: Option<SyncSender<()>>,
    result: Arc<Mutex<Option<Result<(), Fault>>>>,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread with a connection of its own.
    pub(crate) fn start(connection: Connection) -> io::Result<Self> {
        let (requests, received) = sync_channel(1);
        let result = Arc::new(Mutex::new(None));
        let results = Arc::clone(&result);
        let work = move || run(&connection, &received, &results);
        let thread = thread::Builder::new().name("punctual-move".to_owned()).spawn(work)?;
        Ok(Self { requests: Some(requests), result, is_busy: false, thread: Some(thread) })
    }

    /// Requests a checkpoint, unless one is under way.
    pub(crate) fn request(&mut self) {
        if !self.is_busy && self.requests.as_ref().is_some_and(|requests| requests.try_send(()).is_ok()) {
            self.is_busy = true;
        }
    }

    /// Whether a checkpoint is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Takes the result of the last checkpoint.
    pub(crate) fn take_result(&mut self) -> Option<Result<(), Fault>> {
        let result = self.result.lock().take()?;
        self.is_busy = false;
        Some(result)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread's own hook; there is nothing to undo.
            drop(thread.join());
        }
    }
}

fn run(connection: &Connection, requests: &Receiver<()>, result: &Mutex<Option<Result<(), Fault>>>) {
    while requests.recv().is_ok() {
        let moved = checkpoint(connection, CheckpointMode::Passive).map(drop);
        *result.lock() = Some(moved);
    }
}
