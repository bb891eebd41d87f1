//! Whether the peer of a connection has hung up, as the operating system knows it now.
//!
//! A handler that gives something away asks right before. Hyper drops the handler of a peer that
//! has hung up, but learns of it only when the reactor has its next turn; on a busy node that can
//! be after the answer. Invariant: the socket is asked only while its connection has it.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use parking_lot::Mutex;
use tokio::net::TcpStream;

/// The peer of a connection; every request has it as an extension. Clones share it.
#[derive(Clone, Debug)]
pub struct Peer {
    socket: Arc<Mutex<Option<RawFd>>>,
    address: Option<IpAddr>,
}

impl Peer {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self {
            socket: Arc::new(Mutex::new(Some(stream.as_raw_fd()))),
            address: stream.peer_addr().ok().map(|address| address.ip()),
        }
    }

    /// Its address; none if the connection was over at once.
    pub fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Notes that the connection gives up its socket.
    pub(super) fn is_over(&self) {
        *self.socket.lock() = None;
    }

    /// Whether the peer has closed the connection, or its sending half: hyper treats both alike.
    /// Bytes that are not read yet hide that.
    pub fn has_hung_up(&self) -> bool {
        // Locked until the socket has answered, so that it cannot be closed meanwhile.
        let socket = self.socket.lock();
        let Some(socket) = *socket else { return true };
        match recv(socket, &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error, Errno::EAGAIN | Errno::EINTR),
        }
    }
}
