//! The server: accepts connections and speaks HTTP/1.1 and HTTP/2 on them, within bounds.
//!
//! Called by the binary with a bound listener. `axum::serve` has no timeouts, so this drives hyper
//! itself.
//!
//! Invariant: a peer costs at most one of the [`ServerLimits::connections`], a bounded buffer and a
//! bounded time, whatever it does.

mod activity;
mod addresses;
mod connection;
mod frame_budget;
mod framing;
pub mod open_files;
mod peer;
mod reading;
mod refusal;
pub mod tls;
mod transport;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use punctual_core::backoff::ExponentialBackoff;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::activity::ConnectionActivity;
use self::addresses::AddressCaps;
use self::connection::ConnectionServer;
pub use self::peer::Peer;
pub use self::reading::AnswerMemory;
pub use self::tls::ClientCertificate;
use self::tls::TlsIdentity;
use crate::metrics::ConnectionMetrics;

/// What hyper takes of an answer ahead of the peer's window, for each request of an HTTP/2
/// connection.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// What an HTTP/2 peer may send ahead of its being read: on HTTP/1 the kernel takes about as much.
const RECEIVE_WINDOW_BYTES: u32 = 256 * 1024;

/// Whether the connection of a request has unread answers, among the request's extensions.
#[derive(Clone)]
pub struct UnreadOnConnection(Arc<ConnectionActivity>);

impl UnreadOnConnection {
    #[cfg(test)]
    pub(crate) fn one() -> Self {
        let activity = ConnectionActivity::new(tokio::time::Instant::now());
        activity.begin_answer(tokio::time::Instant::now());
        Self(Arc::new(activity))
    }

    /// Whether there are any on the connection of `request`.
    pub fn beside<B>(request: &axum::http::Request<B>) -> bool {
        request.extensions().get().is_some_and(Self::any)
    }

    fn any(&self) -> bool {
        self.0.has_unread()
    }
}

/// Stands among the extensions of a request that came over TLS.
#[derive(Clone, Copy, Debug)]
pub struct OverTls;

/// What a server needs beside its listener and its routes.
#[derive(Clone, Default)]
pub struct ServerSetup {
    /// Its bounds.
    pub limits: ServerLimits,
    /// Its TLS identity; none if it speaks without TLS.
    pub tls: Option<Arc<TlsIdentity>>,
    /// What it counts.
    pub metrics: ConnectionMetrics,
}

impl From<ServerLimits> for ServerSetup {
    fn from(limits: ServerLimits) -> Self {
        Self { limits, ..Self::default() }
    }
}

/// The bounds of the server.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Connections at once; beyond it accepting pauses, and the operating system's queue fills.
    pub connections: usize,
    /// Connections at once of one peer address; beyond it they are closed at once.
    pub connections_per_address: usize,
    /// The time from the first byte of a request's head to its last, and from a connection to its
    /// first request.
    pub header_read: Duration,
    /// How long a connection may stay open without a request under way and without progress.
    pub idle: Duration,
    /// How long a peer may leave its answers unread; beyond it, it must read 16 KiB a second.
    pub unread: Duration,
    /// Bytes of a request's head, its first line included; at least 8 KiB.
    pub header_bytes: usize,
    /// Header lines of a request.
    pub headers: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// How often an HTTP/2 peer is pinged, and how long it has to answer.
    pub ping: Duration,
    /// How long requests under way may take to finish when the server shuts down.
    pub drain: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            connections_per_address: 1_000,
            header_read: Duration::from_secs(10),
            idle: Duration::from_secs(75),
            unread: Duration::from_secs(10),
            header_bytes: 16 * 1024,
            headers: 100,
            streams: 100,
            ping: Duration::from_secs(20),
            drain: Duration::from_secs(15),
        }
    }
}

impl ServerLimits {
    /// These limits, with no more connections than fit the open files that the process may have.
    #[must_use]
    pub fn within_open_files(mut self) -> Self {
        if let Some(room) = open_files::room_for_connections()
            && room < self.connections
        {
            tracing::warn!(
                asked = self.connections,
                connections = room,
                "the limit of open files is too low for limits.connections; serving fewer connections"
            );
            self.connections = room;
        }
        self
    }
}

/// Serves `app` on `listener` until `shutdown`. Then it stops accepting, lets requests under way
/// finish within [`ServerLimits::drain`], and closes what is left.
pub async fn serve(
    listener: TcpListener,
    app: axum::Router,
    setup: impl Into<ServerSetup>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let setup = setup.into();
    let ServerSetup { limits, metrics, .. } = setup.clone();
    let slots = Arc::new(Semaphore::new(limits.connections));
    let addresses = AddressCaps::new(limits.connections_per_address);
    let (connections, abort) = (TaskTracker::new(), CancellationToken::new());
    let server = Arc::new(ConnectionServer { builder: builder(&limits), app, setup, shutdown: shutdown.clone() });
    let mut acceptor = Acceptor { listener, failures: 0 };
    loop {
        let slot = tokio::select! {
            () = shutdown.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.expect("invariant: the semaphore is never closed"),
        };
        let (stream, peer) = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = acceptor.accept() => accepted,
        };
        let Some(place) = addresses.admit(peer.ip()) else {
            metrics.refused("address");
            tracing::debug!(address = %peer.ip(), "an address has too many connections; closing this one");
            continue;
        };
        let (server, abort) = (Arc::clone(&server), abort.clone());
        connections.spawn(async move {
            tokio::select! {
                () = abort.cancelled() => {}
                () = server.serve(stream, peer.ip()) => {}
            }
            drop((place, slot));
        });
    }
    // Stop listening before the wait, so that new peers are refused at once and try another node.
    drop(acceptor);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        tracing::warn!(
            connections = connections.len(),
            "requests still run at the drain deadline; closing their connections"
        );
        abort.cancel();
        connections.wait().await;
    }
    Ok(())
}

fn builder(limits: &ServerLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // Hyper counts from the end of the previous answer, so this is the idle limit; `activity`
        // keeps the tighter limit that counts from the first byte of a head.
        .header_read_timeout(limits.idle)
        // A head must fit into the read buffer, and hyper takes no buffer below 8 KiB.
        .max_buf_size(limits.header_bytes.max(8 * 1024))
        .max_headers(limits.headers);
    let header_list = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .initial_connection_window_size(RECEIVE_WINDOW_BYTES)
        .initial_stream_window_size(RECEIVE_WINDOW_BYTES)
        .max_header_list_size(header_list)
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(Some(1_024))
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    builder
}

/// Accepts connections, and retries with a growing delay while the operating system refuses.
struct Acceptor {
    listener: TcpListener,
    /// How often in a row it failed.
    failures: u32,
}

impl Acceptor {
    async fn accept(&mut self) -> (TcpStream, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok(accepted) => {
                    if std::mem::take(&mut self.failures) > 0 {
                        tracing::info!("accepting connections again");
                    }
                    return accepted;
                }
                Err(error) if concerns_one_peer(&error) => {}
                Err(error) => {
                    // Out of file descriptors or memory: an immediate retry would fail the same
                    // way.
                    self.failures = self.failures.saturating_add(1);
                    if self.failures == 1 {
                        tracing::error!(error = %error, "cannot accept connections; retrying every second or sooner");
                    }
                    tokio::time::sleep(ACCEPT_PAUSES.longest_pause(self.failures)).await;
                }
            }
        }
    }
}

const ACCEPT_PAUSES: ExponentialBackoff = ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(1));

fn concerns_one_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
