//! One connection, from its acceptance to its close.
//!
//! Hyper speaks the protocol over a [`Socket`] that watches the bytes. This adds the time limits,
//! the graceful close, and the last reads that let a refused peer see its answer. Called by the
//! accept loop of [`super::serve`].

use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::activity::{ActivityCheck, ConnectionActivity};
use super::frame_budget::FrameBudget;
use super::framing::Framing;
use super::peer::Peer;
use super::tls::ClientCertificate;
use super::transport::Transport;
use super::{OverTls, ServerSetup, UnreadOnConnection, reading, refusal};

/// For how long, and for how many bytes, we read on after the last answer. Closing a socket with
/// unread bytes resets it, and the reset can overtake the answer.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 8 * 1024 * 1024;

/// Sent to the parser in place of ambiguous bytes: a byte that no request may contain, and the end
/// of a head. The parser answers 400 and closes.
const REFUSAL: &[u8] = b"\0\r\n\r\n";

/// Serves connections; shared by all of them.
pub(super) struct ConnectionServer {
    pub(super) builder: auto::Builder<TokioExecutor>,
    pub(super) app: axum::Router,
    pub(super) setup: ServerSetup,
    pub(super) shutdown: CancellationToken,
}

/// What is known of a connection's peer.
struct Acquaintance {
    peer: Peer,
    is_over_tls: bool,
    certificate: Option<ClientCertificate>,
}

impl ConnectionServer {
    /// Serves one connection to its end.
    pub(super) async fn serve(&self, stream: TcpStream, address: IpAddr) {
        if let Err(error) = configure(&stream) {
            tracing::debug!(%error, "cannot configure a new connection; dropping it");
            return;
        }
        let secured = tokio::select! {
            // No request is under way yet.
            () = self.shutdown.cancelled() => None,
            secured = self.secure(stream) => secured,
        };
        let Some((transport, certificate)) = secured else { return };
        let is_over_tls = transport.is_tls();
        let peer = Peer::of(transport.tcp(), address, is_over_tls);
        let activity = Arc::new(ConnectionActivity::new(Instant::now()));
        let (hand_over, returned) = oneshot::channel();
        let known = Acquaintance { peer: peer.clone(), is_over_tls, certificate };
        let socket = Socket {
            transport: Some(transport),
            hand_over: Some(hand_over),
            framing: Framing::default(),
            frames: FrameBudget::new(Instant::now()),
            refusal: None,
            own: Vec::new(),
            activity: Arc::clone(&activity),
            peer,
        };
        let ended = self.drive(socket, &activity, &known).await;
        match returned.await {
            Ok(transport) if ended == ConnectionEnd::Cut => reset(transport.tcp()),
            Ok(transport) if !self.shutdown.is_cancelled() => linger(transport).await,
            _ => {}
        }
    }

    /// Makes the handshake, if this listener speaks TLS.
    async fn secure(&self, stream: TcpStream) -> Option<(Transport, Option<ClientCertificate>)> {
        let ServerSetup { limits, tls, metrics } = &self.setup;
        let Some(tls) = tls else { return Some((Transport::Plain(stream), None)) };
        let (stream, certificate) = tls.handshake(stream, limits.header_read, metrics).await?;
        Some((Transport::Tls(stream), certificate))
    }

    async fn drive(&self, socket: Socket, activity: &Arc<ConnectionActivity>, known: &Acquaintance) -> ConnectionEnd {
        let limits = &self.setup.limits;
        let service = service_fn(|mut request: Request<Incoming>| {
            let (mut app, activity) = (self.app.clone(), Arc::clone(activity));
            known.introduce(&mut request);
            async move {
                let _under_way = activity.begin_request(request.version() == hyper::Version::HTTP_2);
                request.extensions_mut().insert(UnreadOnConnection(Arc::clone(&activity)));
                let response = app.call(request.map(Body::new)).await;
                response.map(|response| reading::watch(response, &activity))
            }
        });
        let mut connection = pin!(self.builder.serve_connection(TokioIo::new(socket), service));
        let mut timer = pin!(tokio::time::sleep(limits.header_read));
        let mut closing = false;
        loop {
            tokio::select! {
                // In this order: what the peer has read counts before its time is checked.
                biased;
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection failed; closing it");
                    }
                    return ConnectionEnd::Closed;
                }
                () = self.shutdown.cancelled(), if !closing => {
                    closing = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = timer.as_mut() => match activity.check(limits, Instant::now()) {
                    ActivityCheck::Active(next) => timer.as_mut().reset(next),
                    ActivityCheck::Idle if !closing => {
                        closing = true;
                        connection.as_mut().graceful_shutdown();
                        timer.as_mut().reset(Instant::now() + limits.header_read);
                    }
                    ActivityCheck::Idle | ActivityCheck::Slow => return ConnectionEnd::Closed,
                    ActivityCheck::Unread => {
                        tracing::debug!("a peer does not read its answers; closing its connection");
                        return ConnectionEnd::Cut;
                    }
                },
            }
        }
    }
}

/// How many bytes the kernel takes beyond what the peer has room for. Its own bound is megabytes.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

fn configure(stream: &TcpStream) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    stream.set_nodelay(true)
}

/// How a connection ended.
#[derive(PartialEq, Eq)]
enum ConnectionEnd {
    /// All was said, or nothing more will be.
    Closed,
    /// The peer does not read.
    Cut,
}

/// Drops what the kernel still holds for a peer that does not read it.
fn reset(stream: &TcpStream) {
    if let Err(error) = stream.set_zero_linger() {
        tracing::debug!(%error, "cannot reset a connection; the kernel keeps its bytes for a while");
    }
}

impl Acquaintance {
    /// Adds what is known to the extensions of a request.
    fn introduce<B>(&self, request: &mut Request<B>) {
        let extensions = request.extensions_mut();
        extensions.insert(self.peer.clone());
        if self.is_over_tls {
            extensions.insert(OverTls);
        }
        if let Some(certificate) = &self.certificate {
            extensions.insert(certificate.clone());
        }
    }
}

/// Ends our side of the connection, and reads what the peer still sends.
async fn linger(mut transport: Transport) {
    let end = async {
        transport.shutdown().await?;
        drain(transport.into_tcp()).await
    };
    // The connection is over, whether this succeeds or not.
    drop(tokio::time::timeout(LINGER, end).await);
}

/// The same on a stream that has no connection on it.
pub(super) async fn linger_on(stream: TcpStream) {
    linger(Transport::Plain(stream)).await;
}

async fn drain(mut stream: TcpStream) -> io::Result<()> {
    let mut scratch = vec![0; 16 * 1024];
    let mut left = LINGER_BYTES;
    while left > 0 {
        match stream.read(&mut scratch).await? {
            0 => break,
            read => left = left.saturating_sub(read),
        }
    }
    Ok(())
}

/// A socket that reports its bytes to [`ConnectionActivity`], keeps ambiguous framing from the
/// parser, ends a connection with too many frames, and hands its transport over when hyper drops
/// it.
struct Socket {
    transport: Option<Transport>,
    hand_over: Option<oneshot::Sender<Transport>>,
    framing: Framing,
    frames: FrameBudget,
    /// Once the framing is ambiguous: the rest of [`REFUSAL`] for the parser.
    refusal: Option<&'static [u8]>,
    /// The unsent rest of an answer that replaces the parser's own.
    own: Vec<u8>,
    activity: Arc<ConnectionActivity>,
    peer: Peer,
}

impl Socket {
    fn transport(&mut self) -> Pin<&mut Transport> {
        Pin::new(self.transport.as_mut().expect("invariant: the transport is only taken on drop"))
    }

    fn wrote(&self, result: &io::Result<usize>) {
        if matches!(result, Ok(1..)) {
            self.activity.wrote(Instant::now());
        }
    }

    fn is_over_tls(&self) -> bool {
        self.transport.as_ref().is_some_and(Transport::is_tls)
    }

    /// Sends the answer that replaces the parser's own, if there is one.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let own = std::mem::take(&mut self.own);
            let result = self.transport().poll_write(cx, &own);
            self.own = own;
            let sent = ready!(result)?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.wrote(&Ok(sent));
            self.own.drain(..sent);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.peer.is_over();
        if let (Some(transport), Some(hand_over)) = (self.transport.take(), self.hand_over.take()) {
            // While the server aborts there is no receiver; then the transport closes here.
            drop(hand_over.send(transport));
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.refusal.is_none() {
            let before = buf.filled().len();
            ready!(self.transport().poll_read(cx, buf))?;
            if buf.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            let now = Instant::now();
            self.activity.read(now);
            let Self { framing, frames, .. } = &mut *self;
            let Err(valid) = framing.check(&buf.filled()[before..]) else {
                return Poll::Ready(frames.check(framing, &buf.filled()[before..], now));
            };
            buf.set_filled(before + valid);
            self.refusal = Some(REFUSAL);
        }
        // Once the parser has all of it, this reads as the end of the stream.
        let left = self.refusal.unwrap_or_default();
        let (now, later) = left.split_at(left.len().min(buf.remaining()));
        buf.put_slice(now);
        self.refusal = Some(later);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(cx))?;
        if let Some(own) = refusal::documented(buf, self.is_over_tls()) {
            // All of `buf` counts as written; what the socket does not take now goes out with the
            // flush.
            self.own = own;
            return Poll::Ready(Ok(buf.len()));
        }
        let result = ready!(self.transport().poll_write(cx, buf));
        self.wrote(&result);
        Poll::Ready(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let [only] = bufs {
            return self.poll_write(cx, only);
        }
        ready!(self.poll_own(cx))?;
        let result = ready!(self.transport().poll_write_vectored(cx, bufs));
        self.wrote(&result);
        Poll::Ready(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        self.transport().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        self.transport().poll_shutdown(cx)
    }
}
