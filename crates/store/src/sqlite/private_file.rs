//! The files of a store are for its own user, whatever the directory and the umask are: payloads
//! and callback headers are in them.
//!
//! `directory` opens its files here. Invariant: a file has its mode from the moment it exists.
//! SQLite gives its log and the log's index the mode of the database, so they follow.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Its user may read and write it.
const PRIVATE: u32 = 0o600;

/// What others may do to a file.
const OTHERS: u32 = 0o077;

/// Who could open a file before it was opened here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// Its user alone, or nobody since it is new.
    Private,
    /// Others, and now no more.
    Tightened,
    /// Others, and still: the operating system refused the change.
    Open,
}

/// Opens a file to write, and makes it if it is missing.
pub(crate) fn make(path: &Path) -> io::Result<(File, Before)> {
    let file = options().create(true).truncate(false).open(path)?;
    let before = tighten(&file)?;
    Ok((file, before))
}

/// Creates an empty file, or empties the one that is there.
pub(crate) fn make_empty(path: &Path) -> io::Result<File> {
    options().create(true).truncate(true).open(path)
}

/// Keeps others from a file that may be missing.
pub(crate) fn tighten_existing(path: &Path) -> io::Result<Before> {
    match options().open(path) {
        Ok(file) => tighten(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Before::Private),
        Err(error) => Err(error),
    }
}

fn options() -> OpenOptions {
    let mut options = File::options();
    options.write(true).mode(PRIVATE);
    options
}

fn tighten(file: &File) -> io::Result<Before> {
    let mode = file.metadata()?.permissions().mode() & 0o777;
    if mode == PRIVATE {
        return Ok(Before::Private);
    }
    let is_set = file.set_permissions(Permissions::from_mode(PRIVATE)).is_ok();
    // A file system without modes accepts the change and keeps its own.
    let is_private = is_set && file.metadata()?.permissions().mode() & OTHERS == 0;
    Ok(match (mode & OTHERS, is_private) {
        (0, _) => Before::Private,
        (_, true) => Before::Tightened,
        (_, false) => Before::Open,
    })
}
