//! A server on a real socket, with or without TLS, and peers that send it any bytes.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use http_body_util::BodyExt;
use punctual_api::metrics::ConnectionMetrics;
use punctual_api::server::tls::{ClientAuth, TlsFiles, TlsIdentity};
use punctual_api::server::{ClientCertificate, ServerLimits, ServerSetup, serve};
use punctual_testkit::certificates::{Authority, Certificate};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

/// No step of a test takes this long; one that does hangs.
pub const HANGS: Duration = Duration::from_secs(20);

/// The answer at `/large`: more than the kernel's buffers take.
pub const LARGE_BYTES: usize = 64 * 1024 * 1024;

pub const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// What a test that must hold with and without TLS goes through.
pub const WIRES: [Wire; 2] = [Wire::Plain, Wire::Tls];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Plain,
    Tls,
}

pub struct Server {
    pub address: SocketAddr,
    pub shutdown: CancellationToken,
    pub serving: JoinHandle<std::io::Result<()>>,
    /// Lets every request at `/wait` go on.
    pub release: Arc<Notify>,
    /// Hears of every request at `/wait`.
    pub arrived: mpsc::UnboundedReceiver<()>,
    pub tls: Option<ServerTls>,
}

/// The TLS of a server: whose certificate it shows, and where that is.
pub struct ServerTls {
    pub authority: Authority,
    pub identity: Arc<TlsIdentity>,
    pub files: TlsFiles,
    home: TempDir,
}

impl ServerTls {
    /// A certificate for 127.0.0.1 of an authority of its own. Clients' certificates are those of
    /// `clients`.
    pub fn new(client_auth: ClientAuth, clients: Option<&Authority>) -> Self {
        let (authority, home) = (Authority::new("a root"), tempfile::tempdir().unwrap());
        let (cert, key) = authority.issue(&["127.0.0.1"]).write(home.path(), "node");
        let client_ca = clients.map(|authority| {
            let file = home.path().join("clients.crt");
            authority.write_root(&file);
            file
        });
        let files = TlsFiles { cert, key, client_ca, client_auth };
        let identity = TlsIdentity::load(files.clone()).unwrap();
        Self { authority, identity, files, home }
    }

    pub fn folder(&self) -> &Path {
        self.home.path()
    }
}

impl Server {
    pub async fn start(limits: ServerLimits) -> Self {
        Self::start_with(limits, None).await
    }

    pub async fn on(wire: Wire, limits: ServerLimits) -> Self {
        let tls = (wire == Wire::Tls).then(|| ServerTls::new(ClientAuth::Off, None));
        Self::start_with(limits, tls).await
    }

    pub async fn start_with(limits: ServerLimits, tls: Option<ServerTls>) -> Self {
        let (release, (arrive, arrived)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let identity = tls.as_ref().map(|tls| Arc::clone(&tls.identity));
        let setup = ServerSetup { limits, tls: identity, metrics: ConnectionMetrics::default() };
        let routes = routes(arrive, Arc::clone(&release));
        let serving = tokio::spawn(serve(listener, routes, setup, shutdown.clone()));
        Self { address, shutdown, serving, release, arrived, tls }
    }

    pub async fn connect(&self) -> Peer {
        let stream = self.dial().await;
        match &self.tls {
            None => Peer(Box::new(stream)),
            Some(tls) => Peer(Box::new(secure(stream, &client(&tls.authority.root(), None, &[])).await.unwrap())),
        }
    }

    /// A TCP connection, on which nothing was said yet.
    pub async fn dial(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// A connection that has served a request.
    pub async fn connect_and_get(&self) -> Peer {
        let mut peer = self.connect().await;
        peer.get().await;
        peer
    }

    /// A connection whose request the handler has begun to answer.
    pub async fn connect_and_wait(&mut self) -> Peer {
        let mut peer = self.connect().await;
        peer.send(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await;
        self.arrived.recv().await.unwrap();
        peer
    }

    /// Returns once the server has ended.
    pub async fn ended(self) {
        tokio::time::timeout(HANGS, self.serving).await.unwrap().unwrap().unwrap();
    }

    /// Sends `bytes` on a connection of its own and gives all that comes until the server closes
    /// it.
    pub async fn exchange(&self, bytes: &[u8]) -> String {
        let mut peer = self.connect().await;
        peer.send(bytes).await;
        peer.rest().await
    }
}

fn routes(arrive: mpsc::UnboundedSender<()>, gate: Arc<Notify>) -> Router {
    let wait = async move || {
        arrive.send(()).unwrap();
        gate.notified().await;
        "waited"
    };
    let echo = async |body: Body| match body.collect().await {
        Ok(body) => (StatusCode::OK, body.to_bytes()),
        Err(_) => (StatusCode::BAD_REQUEST, "".into()),
    };
    let who = async |certificate: Option<Extension<ClientCertificate>>| match certificate {
        Some(Extension(certificate)) => format!("{certificate:?}"),
        None => "nobody".to_owned(),
    };
    let (hello, large) = (get(async || "hello"), get(async || vec![b'x'; LARGE_BYTES]));
    let routes = Router::new().route("/", hello).route("/large", large);
    routes.route("/echo", post(echo)).route("/wait", get(wait)).route("/who", get(who))
}

/// A client that trusts `root`, shows `identity`, and offers these protocols.
pub fn client(root: &str, identity: Option<&Certificate>, protocols: &[&str]) -> Arc<ClientConfig> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let mut config = match identity {
        Some(Certificate { certificate, key }) => {
            let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Makes the handshake as a client of 127.0.0.1.
pub async fn secure(
    stream: TcpStream,
    config: &Arc<ClientConfig>,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    TlsConnector::from(Arc::clone(config)).connect(name, stream).await
}

pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub struct Peer(pub Box<dyn Duplex>);

impl Peer {
    pub async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Sends `GET /` and reads the answer.
    pub async fn get(&mut self) -> String {
        self.send(GET).await;
        self.read_until("hello").await
    }

    /// Whether nothing comes for so long.
    pub async fn is_silent_for(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.0.read(&mut [0])).await.is_err()
    }

    /// Reads until `end` has come.
    pub async fn read_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        let reading = async {
            while !String::from_utf8_lossy(&text).contains(end) {
                let read = self.0.read_buf(&mut text).await.unwrap();
                assert_ne!(read, 0, "closed after {:?}", String::from_utf8_lossy(&text));
            }
        };
        tokio::time::timeout(HANGS, reading).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Sends `bytes` in packets of their own.
    pub async fn drip(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.0.write_all(&[*byte]).await.is_err() || self.0.flush().await.is_err() {
                // The server has seen enough.
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads until the server closes the connection.
    pub async fn rest(&mut self) -> String {
        String::from_utf8(self.rest_bytes().await).unwrap()
    }

    /// The same for an answer that is no text. It may be cut off.
    pub async fn rest_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = tokio::time::timeout(HANGS, self.0.read_to_end(&mut bytes)).await.expect("not closed");
        if let Err(error) = read {
            let is_cut =
                [std::io::ErrorKind::UnexpectedEof, std::io::ErrorKind::ConnectionReset].contains(&error.kind());
            assert!(is_cut, "{error:?}");
        }
        bytes
    }
}

/// Limits that a test need not wait for.
pub fn quick() -> ServerLimits {
    ServerLimits {
        header_read: Duration::from_millis(300),
        idle: Duration::from_millis(900),
        ..ServerLimits::default()
    }
}
