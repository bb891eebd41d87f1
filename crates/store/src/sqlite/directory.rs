//! The directory that a store lives in, and the lock that keeps other processes out of it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::OpenError;

/// The file that holds the tasks, inside the directory.
const DATABASE: &str = "punctual.db";

/// The file whose lock says that a process works here.
const LOCK: &str = "punctual.lock";

/// A file that is written to see whether there is room, and its size: more than SQLite needs to
/// open a database.
const TRIAL: &str = "punctual.trial";
const TRIAL_BYTES: usize = 256 << 10;

/// A locked directory. The operating system releases the lock with the process.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory if it is missing, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let fault = |error: io::Error| OpenError::Directory { path: path.to_owned(), reason: error.to_string() };
        if !path.is_dir() {
            // Payloads and callback headers are in it: only the server may read them.
            fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fault)?;
            // The entry of a new directory is in its parent.
            if let Some(parent) = path.canonicalize().map_err(fault)?.parent() {
                sync(parent).map_err(fault)?;
            }
        }
        let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK)).map_err(fault)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OpenError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        let directory = Self { path: path.to_owned(), _lock: lock };
        directory.sync().map_err(fault)?;
        Ok(directory)
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
    let written = File::create(&trial).and_then(|mut file| file.write_all(&vec![0; TRIAL_BYTES]).and(file.sync_all()));
    drop(fs::remove_file(&trial));
    let kind = written.err().map(|error| error.kind());
    matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded))
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
