//! Whether the database's file is known to be damaged.
//!
//! Jobs report the faults they meet. Once SQLite has called the file malformed, the store says
//! of itself that it does not work, until a thread has read the whole file and found nothing
//! wrong: a page that the disk refused to give once looks the same to SQLite. What was found
//! damaged stays so until the process ends; what can be read is served all the same.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use punctual_core::store::StoreError;
use tracing::{error, info};

use super::Options;
use super::connection::open_reader;
use super::fault::Fault;

/// What is known of the file (see the module). One look is under way at a time.
pub(crate) struct Damage {
    path: PathBuf,
    options: Options,
    known: Mutex<Known>,
}

enum Known {
    Nothing,
    /// SQLite called it malformed; somebody is reading through it.
    Suspected,
    /// What is wrong with it.
    Found(String),
}

impl Damage {
    pub(crate) fn new(path: PathBuf, options: Options) -> Arc<Self> {
        Arc::new(Self { path, options, known: Mutex::new(Known::Nothing) })
    }

    /// Takes in what a job met; faults of other kinds are none of its business.
    pub(crate) fn report(self: &Arc<Self>, fault: &Fault) {
        let mut known = self.known.lock();
        if !fault.is_damage() || !matches!(*known, Known::Nothing) {
            return;
        }
        error!(fault = %fault.tell(), "the database may be damaged: all of it is read");
        let looking = Arc::clone(self);
        *known = match thread::Builder::new().name("punctual-look".to_owned()).spawn(move || looking.look()) {
            Ok(_) => Known::Suspected,
            Err(error) => Known::Found(format!("it could not be read through: {error}")),
        };
    }

    /// Fails when the file is damaged, or may be.
    pub(crate) fn verdict(&self) -> Result<(), StoreError> {
        match &*self.known.lock() {
            Known::Nothing => Ok(()),
            Known::Suspected => Err(StoreError::Corrupt("the database may be damaged".to_owned())),
            Known::Found(what) => Err(StoreError::Corrupt(format!("the database is damaged: {what}"))),
        }
    }

    fn look(&self) {
        // What is damaged is so twice; a page that the disk refuses once is not.
        let found = self.first_fault().and_then(|_| self.first_fault());
        *self.known.lock() = match found {
            None => {
                info!("nothing damaged was found in the database");
                Known::Nothing
            }
            Some(what) => {
                error!(what, "the database is damaged: restore it from a backup, or dump what can be read");
                Known::Found(what)
            }
        };
    }

    /// The first thing that is wrong with the file, if there is one.
    fn first_fault(&self) -> Option<String> {
        let look = || -> Result<String, Fault> {
            let connection = open_reader(&self.path, &self.options)?;
            Ok(connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?)
        };
        match look() {
            Ok(first) => (first != "ok").then_some(first),
            Err(fault) => Some(fault.tell().to_string()),
        }
    }
}
