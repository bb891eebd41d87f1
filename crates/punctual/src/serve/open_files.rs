//! Refuses to start with so few open files that the store could not work: it would fail later,
//! after the node has said that it listens.

use anyhow::ensure;
use punctual_api::server::open_files;

/// The files that a node opens for itself: the store's files or connections, its log and its
/// sockets. Those of clients and webhooks come on top.
const OWN_FILES: usize = 64;

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
