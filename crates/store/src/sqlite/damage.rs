//! Whether the database's file is health to be damaged.
//!
//! Jobs report the faults they meet. Once SQLite has called the file malformed, the store says
//! of itself that it does not work, until a thread has read the whole file and found nothing
//! wrong: a page that the disk refuses to give for a while looks the same to SQLite, also to the
//! thread that reads. So it looks again and again, at longer and longer intervals; what it has
//! found wrong a few times is told as damage, and only a look that finds nothing ends it. What can
//! be read is served all the same.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::store::StoreError;
use tracing::{error, info, warn};

use super::Options;
use super::connection::open_reader;
use super::fault::Fault;

/// How long after the first look the second comes; each further one after twice as long, …
const FIRST_RECHECK_PAUSE: Duration = Duration::from_millis(250);
/// … at the most: each reads the whole file.
const RECHECK_PAUSE_MAX: Duration = Duration::from_mins(10);
/// So many looks in a row that found something wrong say that the file is, and not the disk for a
/// moment.
const FAILED_CHECKS_MIN: u32 = 4;

/// What is health of the file (see the module). One look is under way at a time.
pub(crate) struct DamageMonitor {
    path: PathBuf,
    options: Options,
    health: Mutex<FileHealth>,
}

enum FileHealth {
    Sound,
    /// SQLite called it malformed; somebody is reading through it.
    Suspected,
    /// What is wrong with it.
    Damaged(String),
}

impl DamageMonitor {
    pub(crate) fn new(path: PathBuf, options: Options) -> Arc<Self> {
        Arc::new(Self { path, options, health: Mutex::new(FileHealth::Sound) })
    }

    /// Takes in what a job met; faults of other kinds are none of its business.
    pub(crate) fn report(self: &Arc<Self>, fault: &Fault) {
        let mut health = self.health.lock();
        if !fault.is_damage() || !matches!(*health, FileHealth::Sound) {
            return;
        }
        error!(fault = %fault.to_store_error(), "the database may be damaged; reading all of it to find out");
        let looking = Arc::downgrade(self);
        *health = match thread::Builder::new().name("punctual-look".to_owned()).spawn(move || look(&looking)) {
            Ok(_) => FileHealth::Suspected,
            Err(error) => FileHealth::Damaged(format!("it could not be read through: {error}")),
        };
    }

    /// Fails when the file is damaged, or may be.
    pub(crate) fn verdict(&self) -> Result<(), StoreError> {
        match &*self.health.lock() {
            FileHealth::Sound => Ok(()),
            FileHealth::Suspected => Err(StoreError::Corrupt("the database may be damaged".to_owned())),
            FileHealth::Damaged(what) => Err(StoreError::Corrupt(format!("the database is damaged: {what}"))),
        }
    }

    /// Looks for the `number`th time; whether nothing is wrong.
    fn is_whole(&self, number: u32) -> bool {
        let found = self.first_fault();
        let mut health = self.health.lock();
        match found {
            None => {
                info!("the database is not damaged");
                *health = FileHealth::Sound;
                return true;
            }
            Some(what) if number >= FAILED_CHECKS_MIN => {
                if number == FAILED_CHECKS_MIN {
                    error!(what, "the database is damaged: restore it from a backup, or dump what can be read");
                }
                *health = FileHealth::Damaged(what);
            }
            Some(what) => warn!(what, "the database or its disk failed a check; reading it again"),
        }
        false
    }

    /// The first thing that is wrong with the file, if there is one.
    fn first_fault(&self) -> Option<String> {
        let look = || -> Result<String, Fault> {
            let connection = open_reader(&self.path, &self.options)?;
            Ok(connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?)
        };
        match look() {
            Ok(first) => (first != "ok").then_some(first),
            Err(fault) => Some(fault.to_store_error().to_string()),
        }
    }
}

/// Looks until nothing is wrong, or nobody wants to know any more.
fn look(damage: &Weak<DamageMonitor>) {
    let mut pause = FIRST_RECHECK_PAUSE;
    for number in 1.. {
        let Some(damage) = damage.upgrade() else { return };
        if damage.is_whole(number) {
            return;
        }
        drop(damage);
        thread::sleep(pause);
        pause = (pause * 2).min(RECHECK_PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rusqlite::Connection;

    use super::*;

    fn until(damage: &DamageMonitor, verdict: &str) {
        let began = Instant::now();
        let told = || damage.verdict().map_or_else(|error| error.to_string(), |()| "well".to_owned());
        while !told().contains(verdict) {
            assert!(began.elapsed() < Duration::from_secs(30), "{}", told());
            thread::yield_now();
        }
    }

    #[test]
    fn what_can_be_read_again_is_not_damaged_after_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("punctual.db");
        let damage = DamageMonitor::new(path.clone(), Options::default());
        std::fs::write(&path, [b'x'; 8_192]).unwrap();
        let fault = Connection::open(&path).unwrap().query_row("PRAGMA quick_check", [], |_| Ok(())).unwrap_err();
        damage.report(&fault.into());
        until(&damage, "may be damaged");
        until(&damage, "is damaged");
        std::fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
        until(&damage, "well");
    }
}
