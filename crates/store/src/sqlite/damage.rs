//! Whether the database's file is known to be damaged.
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
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// … at the most: each reads the whole file.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// So many looks in a row that found something wrong say that the file is, and not the disk for a
/// moment.
const ENOUGH: u32 = 4;

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
        error!(fault = %fault.to_store_error(), "the database may be damaged; reading all of it to find out");
        let looking = Arc::downgrade(self);
        *known = match thread::Builder::new().name("punctual-look".to_owned()).spawn(move || look(&looking)) {
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

    /// Looks for the `number`th time; whether nothing is wrong.
    fn is_whole(&self, number: u32) -> bool {
        let found = self.first_fault();
        let mut known = self.known.lock();
        match found {
            None => {
                info!("the database is not damaged");
                *known = Known::Nothing;
                return true;
            }
            Some(what) if number >= ENOUGH => {
                if number == ENOUGH {
                    error!(what, "the database is damaged: restore it from a backup, or dump what can be read");
                }
                *known = Known::Found(what);
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
fn look(damage: &Weak<Damage>) {
    let mut pause = FIRST_PAUSE;
    for number in 1.. {
        let Some(damage) = damage.upgrade() else { return };
        if damage.is_whole(number) {
            return;
        }
        drop(damage);
        thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rusqlite::Connection;

    use super::*;

    fn until(damage: &Damage, verdict: &str) {
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
        let damage = Damage::new(path.clone(), Options::default());
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
