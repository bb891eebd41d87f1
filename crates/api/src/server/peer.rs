//! Whether the peer of a connection has hung up, as the operating system knows it now.
//!
//! A handler that gives something away asks right before. Hyper drops the handler of a peer that
//! has hung up, but learns of it only when the reactor has its next turn; on a busy node that can
//! be after the answer. Invariant: the socket is asked only while its connection has it.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use parking_lot::Mutex;
use tokio::net::TcpStream;

/// The peer of a connection; every request has it as an extension. Clones share it.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Mutex<Option<RawFd>>>);

impl Peer {
    pub(crate) fn of(stream: &TcpStream) -> Self {
        Self(Arc::new(Mutex::new(Some(stream.as_raw_fd()))))
    }

    /// Notes that the connection gives up its socket.
    pub(super) fn is_over(&self) {
        *self.0.lock() = None;
    }

    /// Whether the peer has closed the connection, or its sending half: hyper treats both alike.
    /// Bytes that are not read yet hide that.
    pub fn has_hung_up(&self) -> bool {
        // Locked until the socket has answered, so that it cannot be closed meanwhile.
        let socket = self.0.lock();
        let Some(socket) = *socket else { return true };
        match recv(socket, &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error, Errno::EAGAIN | Errno::EINTR),
        }
    }
}
