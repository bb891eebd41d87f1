//! The directory that a store lives in, and the lock that keeps other processes out of it.
//!
//! The directory is made for the server's user alone, and so is every file in it (`private_file`).
//! What was there before and is open to others is reported in the log.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tracing::warn;

use super::OpenError;
use super::private_file::{self, Before};

/// The file that holds the tasks, inside the directory.
const DATABASE: &str = "punctual.db";

/// What SQLite makes beside it, and leaves behind if the process dies.
const BESIDE_DATABASE: [&str; 3] = ["punctual.db-wal", "punctual.db-shm", "punctual.db-journal"];

/// The file whose lock says that a process works here.
const LOCK: &str = "punctual.lock";

/// A file that is written to see whether there is room, and its size: more than SQLite needs to
/// open a database.
const TRIAL: &str = "punctual.trial";
const TRIAL_BYTES: usize = 256 << 10;

/// The part of a directory's mode that lets its group or anyone change it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A locked directory. The operating system releases the lock with the process.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory if it is missing, locks it, and makes an empty database file.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let fault = |error: io::Error| OpenError::Directory { path: path.to_owned(), reason: error.to_string() };
        make_directory(path).map_err(fault)?;
        let (lock, lock_before) = private_file::make(&path.join(LOCK)).map_err(fault)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        let directory = Self { path: path.to_owned(), _lock: lock };
        directory.make_private(lock_before).map_err(fault)?;
        directory.sync().map_err(fault)?;
        Ok(directory)
    }

    /// Keeps others from the files, and makes the database before SQLite would with another mode.
    fn make_private(&self, lock: Before) -> io::Result<()> {
        let (_, database) = private_file::make(&self.database())?;
        let mut files = vec![(LOCK, lock), (DATABASE, database)];
        for name in BESIDE_DATABASE {
            files.push((name, private_file::tighten_existing(&self.path.join(name))?));
        }
        let path = self.path.display();
        let named = |wanted| files.iter().filter(|(_, before)| *before == wanted).map(|(name, _)| *name).collect();
        let tightened: Vec<&str> = named(Before::Tightened);
        if !tightened.is_empty() {
            warn!(%path, files = ?tightened, "other users could open files of the store; they no longer can. \
                Change the secrets in your tasks if other users may have read them");
        }
        let open: Vec<&str> = named(Before::Open);
        if !open.is_empty() {
            warn!(%path, files = ?open, "other users can open files of the store, and their mode cannot be changed: \
                make the server's user their owner and run chmod 600 on them");
        }
        Ok(())
    }

    /// The database's file.
    pub(crate) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    /// Makes the entries of the directory durable: a file that is synced but has no name is lost.
    pub(crate) fn sync(&self) -> io::Result<()> {
        sync(&self.path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether the disk of a directory, which may not exist yet, has no room for a small file.
pub(crate) fn is_full(path: &Path) -> bool {
    let Some(existing) = path.ancestors().find(|path| path.is_dir()) else { return false };
    let trial = existing.join(TRIAL);
    let written = private_file::make_empty(&trial)
        .and_then(|mut file| file.write_all(&vec![0; TRIAL_BYTES]).and(file.sync_all()));
    drop(fs::remove_file(&trial));
    let kind = written.err().map(|error| error.kind());
    matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
}

/// Makes the directory, or warns if others than its user may change the one that is there.
fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        if fs::metadata(path)?.permissions().mode() & WRITABLE_BY_OTHERS != 0 {
            warn!(path = %path.display(), "other users can put files into the data directory or remove the store's: \
                run chmod go-w on it");
        }
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The entry of a new directory is in its parent.
    path.canonicalize()?.parent().map_or(Ok(()), sync)
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_made_and_locked_once() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = Directory::lock(&path).unwrap();
        let refused = Directory::lock(&path).unwrap_err();
        assert!(matches!(&refused, OpenError::InUse { path: named } if *named == path));
        assert!(refused.to_string().contains(path.to_str().unwrap()), "{refused}");
        drop(first);
        Directory::lock(&path).unwrap();
    }

    #[test]
    fn a_file_in_the_way_is_reported() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("file");
        File::create(&path).unwrap();
        assert!(matches!(Directory::lock(&path), Err(OpenError::Directory { .. })));
    }
}
