//! How many files this process may have open.
//!
//! Many systems start a process with a low limit that it may raise by itself, so it does. With so
//! few that the store could not work the node refuses to start: it would fail later, after it has
//! said that it listens.

use anyhow::ensure;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use punctual_api::server::open_files;

/// The files that a node opens for itself: the store's files or connections, its log and its
/// sockets. Those of clients and webhooks come on top.
const OWN_FILES: usize = 64;

/// Raises the limit as far as this process may.
pub fn raise_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) });
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit of open files; it stays as it is");
    }
}

/// Fails if this process cannot open the files that a node needs for itself.
pub fn check() -> anyhow::Result<()> {
    if let Some(limit) = open_files::limit() {
        let needed = open_now() + OWN_FILES;
        ensure!(
            limit >= needed,
            "this process may have {limit} files open, and a node needs {needed} for itself and its store: raise the \
             limit (ulimit -n, LimitNOFILE)"
        );
    }
    Ok(())
}

/// The files that are open already, such as those that the parent process has left open.
fn open_now() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
