//! TLS on a listener: the identity that this node shows, and the handshake with a peer.
//!
//! [`super::connection`] makes the handshake before HTTP begins. [`files`] reads the identity,
//! [`reload`] reads it again when its files change. A connection keeps the identity with which it
//! began.
//!
//! Invariant: a peer without a whole handshake costs a connection, one of [`HANDSHAKES_MAX`] places
//! and [`super::ServerLimits::header_read`], and never holds up another peer's acceptance.

mod certificate;
mod files;
mod reload;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::ServerConfig;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

pub use self::certificate::ClientCertificate;
use self::files::TlsMaterial;
pub use self::files::{ClientAuth, TlsFault, TlsFiles};
pub use self::reload::{ReloadOutcome, TlsReloader};
use super::refusal;
use crate::metrics::ConnectionMetrics;
use crate::problem::{Code, Problem};

/// Handshakes at once on a listener. Each takes some kilobytes and, once its bytes are there, a
/// signature; more of them wait within the time that they have.
const HANDSHAKES_MAX: usize = 1_024;

/// The first byte of a TLS handshake; every HTTP request begins with a letter instead.
const HANDSHAKE: u8 = 22;

/// The certificate and key that this node shows, and whose certificates it accepts. Listeners
/// share it.
pub struct TlsIdentity {
    files: TlsFiles,
    current: RwLock<Arc<TlsMaterial>>,
    handshakes: Semaphore,
}

/// A stream whose handshake is done, and who is at its other end, if they have shown that.
pub(super) type SecuredStream = (Box<TlsStream<TcpStream>>, Option<ClientCertificate>);

impl TlsIdentity {
    /// The identity in `files`. The fault is one sentence for the operator.
    pub fn load(files: TlsFiles) -> Result<Arc<Self>, TlsFault> {
        let current = RwLock::new(Arc::new(files.read()?.material(files.client_auth)?));
        Ok(Arc::new(Self { files, current, handshakes: Semaphore::new(HANDSHAKES_MAX) }))
    }

    /// When the certificate expires, in seconds since 1970.
    pub fn expires_at(&self) -> u64 {
        self.current.read().expires_at
    }

    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().config)
    }

    /// Makes the handshake within `limit`; none if that fails, and then the stream is closed.
    pub(super) async fn handshake(
        &self,
        stream: TcpStream,
        limit: Duration,
        metrics: &ConnectionMetrics,
    ) -> Option<SecuredStream> {
        let handshake = async {
            // Silent peers wait outside.
            if speaks_plain_http(&stream).await? {
                answer_in_plain(stream).await?;
                return Err(io::Error::other("the peer speaks HTTP without TLS"));
            }
            let _place = self.handshakes.acquire().await.expect("invariant: the semaphore is never closed");
            let stream = TlsAcceptor::from(self.config()).accept(stream).await?;
            let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
            let client = shown.map(|certificate| ClientCertificate::read(certificate)).transpose()?;
            Ok((Box::new(stream), client))
        };
        match timeout(limit, handshake).await {
            Ok(Ok(secured)) => {
                metrics.handshake("completed");
                Some(secured)
            }
            Ok(Err(error)) => {
                metrics.handshake("refused");
                tracing::debug!(%error, "a TLS handshake failed; closing the connection");
                None
            }
            Err(_) => {
                metrics.handshake("timed_out");
                None
            }
        }
    }
}

/// Waits for the first byte.
async fn speaks_plain_http(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match stream.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(first[0] != HANDSHAKE && first[0].is_ascii_alphabetic()),
    }
}

/// Tells a peer that forgot the `s` of `https` what is wrong.
async fn answer_in_plain(mut stream: TcpStream) -> io::Result<()> {
    let detail = "this address speaks TLS; write https:// instead of http://";
    let problem = Problem::new(Code::MalformedRequest, detail);
    let head = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n";
    stream.write_all(&refusal::document(head, &problem, false)).await?;
    super::connection::linger_on(stream).await;
    Ok(())
}
