//! What the test processes of one user share: a directory, kept between runs, and the ports in use.
//!
//! Every test is a process of its own, and many run at once; whatever they share is guarded by
//! file locks, which end with the process that holds them.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use rand::RngExt;

/// Below the ports that the system gives to outgoing connections, so that nobody takes one while
/// its server is down, and no client that tries again and again to connect to a server that is down
/// connects to itself.
const PORTS: std::ops::Range<u16> = 16_000..32_000;

/// The user that this process runs as.
pub(crate) fn user() -> u32 {
    std::fs::metadata("/proc/self").expect("there is a /proc").uid()
}

/// The directory that only the test processes of this user share.
pub(crate) fn directory() -> PathBuf {
    let path = std::env::temp_dir().join(format!("punctual-tests-{}", user()));
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
    let owner = std::fs::metadata(&path).expect("a directory that was made is there").uid();
    assert_eq!(owner, user(), "{} belongs to somebody else", path.display());
    path
}

/// Opens a file of the shared directory in order to lock it.
pub(crate) fn lockable(name: &str) -> File {
    let path = directory().join(name);
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    opened.unwrap_or_else(|error| panic!("{} cannot be opened: {error}", path.display()))
}

/// A loopback port that no other test takes while this is alive, whether anybody listens there or
/// not.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port without a listener.
    pub(crate) fn reserve() -> Self {
        for _ in 0..1_000 {
            let number = rand::rng().random_range(PORTS);
            let lock = lockable(&format!("port-{number}"));
            match lock.try_lock() {
                Ok(()) if is_free(number) => return Self { number, _lock: lock },
                Ok(()) | Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => panic!("port {number} cannot be locked: {error}"),
            }
        }
        panic!("no port of {PORTS:?} is free");
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Whether nobody listens there. Asked by connecting: a listener of ours could live on for a moment
/// in a child that is just being started, and be in the way of the one that the port is for.
fn is_free(port: u16) -> bool {
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_free_and_nobody_elses() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0].number())).expect("nobody listens there");
    }
}
