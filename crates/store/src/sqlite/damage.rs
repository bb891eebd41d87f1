//! Whether the database's file is damaged.
//!
//! Jobs report their faults. Once SQLite has called the file malformed, the store reports itself
//! unhealthy until a thread has read the whole file and found no fault. A page that the disk cannot
//! return for a while looks like damage to SQLite, so the thread repeats its check at growing
//! intervals. A few failed checks in a row mean damage. Only a clean check makes the store healthy
//! again. Reads go on meanwhile.

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

/// The pause between the first check and the second; it doubles after each further check …
const FIRST_RECHECK_PAUSE: Duration = Duration::from_millis(250);
/// … up to this: each check reads the whole file.
const RECHECK_PAUSE_MAX: Duration = Duration::from_mins(10);
/// This many failed checks in a row mean that the file is damaged.
const FAILED_CHECKS_MIN: u32 = 4;

/// The health of the file (see the module). One check is under way at a time.
pub(crate) struct DamageMonitor {
    path: PathBuf,
    options: Options,
    health: Mutex<FileHealth>,
}

enum FileHealth {
    Sound,
    /// SQLite called it malformed; a thread reads all of it.
    Suspected,
    /// The first fault that was found.
    Damaged(String),
}

impl DamageMonitor {
    pub(crate) fn new(path: PathBuf, options: Options) -> Arc<Self> {
        Arc::new(Self { path, options, health: Mutex::new(FileHealth::Sound) })
    }

    /// Begins the checks if a job met a malformed file. Other faults are ignored.
    pub(crate) fn report(self: &Arc<Self>, fault: &Fault) {
        let mut health = self.health.lock();
        if !fault.is_damage() || !matches!(*health, FileHealth::Sound) {
            return;
        }
        error!(error = %fault.to_store_error(), "the database may be damaged; reading all of it to find out");
        let monitor = Arc::downgrade(self);
        *health =
            match thread::Builder::new().name("punctual-look".to_owned()).spawn(move || check_until_sound(&monitor)) {
                Ok(_) => FileHealth::Suspected,
                Err(error) => FileHealth::Damaged(format!("no thread could be started to check it: {error}")),
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

    /// Runs the `number`th check. Returns whether the file is sound.
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
                    error!(error = what, "the database is damaged: restore it from a backup, or dump what can be read");
                }
                *health = FileHealth::Damaged(what);
            }
            Some(what) => warn!(error = what, "the database or its disk failed a check; reading it again"),
        }
        false
    }

    /// The first fault of the file.
    fn first_fault(&self) -> Option<String> {
        let check = || -> Result<String, Fault> {
            let connection = open_reader(&self.path, &self.options)?;
            Ok(connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?)
        };
        match check() {
            Ok(first) => (first != "ok").then_some(first),
            Err(fault) => Some(fault.to_store_error().to_string()),
        }
    }
}

/// Checks until the file is sound, or the store is closed.
fn check_until_sound(damage: &Weak<DamageMonitor>) {
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
        let state = || damage.verdict().map_or_else(|error| error.to_string(), |()| "well".to_owned());
        while !state().contains(verdict) {
            assert!(began.elapsed() < Duration::from_secs(30), "{}", state());
            thread::yield_now();
        }
    }

    #[test]
    fn a_file_that_can_be_read_again_is_sound() {
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
