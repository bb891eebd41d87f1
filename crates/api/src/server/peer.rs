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
    address: IpAddr,
    is_over_tls: bool,
}

/// The bytes of a TLS record before its content: its type, its version and its length.
const RECORD_HEAD: usize = 5;

impl Peer {
    pub(crate) fn of(stream: &TcpStream, address: IpAddr, is_over_tls: bool) -> Self {
        Self { socket: Arc::new(Mutex::new(Some(stream.as_raw_fd()))), address: address.to_canonical(), is_over_tls }
    }

    /// Where the connection comes from; a proxy in front has its own address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Notes that the connection gives up its socket.
    pub(super) fn is_over(&self) {
        *self.socket.lock() = None;
    }

    /// Whether the peer has closed the connection, or its sending half: hyper treats both alike.
    /// Bytes that are not read yet hide that, but for the goodbye of TLS.
    pub fn has_hung_up(&self) -> bool {
        // Locked until the socket has answered, so that it cannot be closed meanwhile.
        let socket = self.socket.lock();
        let Some(socket) = *socket else { return true };
        let mut unread = [0; RECORD_HEAD];
        match recv(socket, &mut unread, MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT) {
            Ok(0) => true,
            Ok(_) => self.is_over_tls && is_alert(unread),
            Err(error) => !matches!(error, Errno::EAGAIN | Errno::EINTR),
        }
    }
}

/// Whether a record is an alert, with which a peer ends TLS before it closes. In TLS 1.3 it is
/// encrypted, and only its length shows it: two bytes and their type, sealed by 16 more. No client
/// sends two bytes of HTTP by themselves.
fn is_alert([kind, _, _, length @ ..]: [u8; RECORD_HEAD]) -> bool {
    const ALERT: u8 = 21;
    const DATA: u8 = 23;
    const SEALED_ALERT_BYTES: u16 = 2 + 1 + 16;
    kind == ALERT || (kind == DATA && u16::from_be_bytes(length) == SEALED_ALERT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goodbye_of_tls_is_told_from_data() {
        for (head, expected) in [
            ([21, 3, 3, 0, 26], true),
            ([23, 3, 3, 0, 19], true),
            ([23, 3, 3, 0, 18], false),
            ([23, 3, 3, 1, 19], false),
            ([22, 3, 3, 0, 19], false),
            ([0; RECORD_HEAD], false),
        ] {
            assert_eq!(is_alert(head), expected, "{head:?}");
        }
    }
}
