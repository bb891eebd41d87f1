//! The thread that moves the write-ahead log into the database while the writer goes on.
//!
//! The writer asks for it ([`super::checkpoint`]) and reads the outcome at its next look. Writes
//! in the meantime stay in the log. The thread has a connection of its own, which is closed
//! together with the writer's: after a disk fault neither is trusted.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::checkpoint::{CheckpointMode, checkpoint};
use super::fault::Fault;

/// See the module.
pub(crate) struct Checkpointer {
    ask: Option<SyncSender<()>>,
    told: Arc<Mutex<Option<Result<(), Fault>>>>,
    is_busy: bool,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread with a connection of its own.
    pub(crate) fn start(connection: Connection) -> io::Result<Self> {
        let (ask, asked) = sync_channel(1);
        let told = Arc::new(Mutex::new(None));
        let tell = Arc::clone(&told);
        let work = move || run(&connection, &asked, &tell);
        let thread = thread::Builder::new().name("punctual-move".to_owned()).spawn(work)?;
        Ok(Self { ask: Some(ask), told, is_busy: false, thread: Some(thread) })
    }

    /// Has the log moved. Nothing happens while that is being done.
    pub(crate) fn request(&mut self) {
        if !self.is_busy && self.ask.as_ref().is_some_and(|ask| ask.try_send(()).is_ok()) {
            self.is_busy = true;
        }
    }

    /// Whether it is being moved.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// What came of the last time, once.
    pub(crate) fn take_result(&mut self) -> Option<Result<(), Fault>> {
        let told = self.told.lock().take()?;
        self.is_busy = false;
        Some(told)
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread's own hook; there is nothing to undo.
            drop(thread.join());
        }
    }
}

fn run(connection: &Connection, asked: &Receiver<()>, tell: &Mutex<Option<Result<(), Fault>>>) {
    while asked.recv().is_ok() {
        let moved = checkpoint(connection, CheckpointMode::Passive).map(drop);
        *tell.lock() = Some(moved);
    }
}
