//! The state that the test processes of one user share: a directory, kept between runs, and the
//! ports in use.
//!
//! Every test is its own process, and many run at once. File locks guard the shared state; a lock
//! ends with its process.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;

use rand::RngExt;

/// Below the ports that the system gives to outgoing connections. So no other process takes a port
/// while its server is down, and a client that retries meanwhile never connects to itself.
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
    assert_eq!(owner, user(), "{} belongs to another user", path.display());
    path
}

/// Opens a file of the shared directory in order to lock it.
pub(crate) fn lockable(name: &str) -> File {
    let path = directory().join(name);
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    opened.unwrap_or_else(|error| panic!("{} cannot be opened: {error}", path.display()))
}

/// A loopback port that no other test takes while this is alive, with or without a listener.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _lock: File,
}

impl Port {
    /// Reserves a port without a listener.
    pub fn reserve() -> Self {
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
    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Whether the port has no listener. It tries to connect instead of to bind: a child process that
/// is just starting could hold a copy of our listener for a moment, and block the real server.
fn is_free(port: u16) -> bool {
    let connected = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    connected.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_port_is_free_and_exclusive() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve()).collect();
        let mut numbers: Vec<u16> = ports.iter().map(Port::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), ports.len());
        std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, ports[0].number())).expect("the port has no listener");
    }
}
