//! The server on real sockets: what it does with peers that are slow, hostile, many or in the
//! middle of something when it shuts down. The router behind it is as small as can be.

#![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use punctual_api::server::{self, ServerLimits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// No step of a test takes this long; one that does hangs.
const HANGS: Duration = Duration::from_secs(20);

struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
    /// Lets every request at `/wait` go on.
    release: Arc<Notify>,
    /// Hears of every request at `/wait`.
    arrived: mpsc::UnboundedReceiver<()>,
}

impl Server {
    async fn start(limits: ServerLimits) -> Self {
        let (release, (arrive, arrived)) = (Arc::new(Notify::new()), mpsc::unbounded_channel());
        let gate = Arc::clone(&release);
        let wait = async move || {
            arrive.send(()).unwrap();
            gate.notified().await;
            "waited"
        };
        let echo = async |body: Body| match body.collect().await {
            Ok(body) => (StatusCode::OK, body.to_bytes()),
            Err(_) => (StatusCode::BAD_REQUEST, "".into()),
        };
        let router =
            Router::new().route("/", get(async || "hello")).route("/echo", post(echo)).route("/wait", get(wait));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, router, limits, shutdown.clone()));
        Self { address, shutdown, serving, release, arrived }
    }

    async fn connect(&self) -> Peer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Peer(stream)
    }

    /// A connection that has served a request.
    async fn connect_and_get(&self) -> Peer {
        let mut peer = self.connect().await;
        peer.send(GET).await;
        peer.read_until("hello").await;
        peer
    }

    /// A connection whose request the handler has begun to answer.
    async fn connect_and_wait(&mut self) -> Peer {
        let mut peer = self.connect().await;
        peer.send(b"GET /wait HTTP/1.1\r\nhost: a\r\n\r\n").await;
        self.arrived.recv().await.unwrap();
        peer
    }

    /// Returns once the server has ended.
    async fn ended(self) {
        tokio::time::timeout(HANGS, self.serving).await.unwrap().unwrap().unwrap();
    }

    /// Sends `bytes` on a connection of its own and gives all that comes until the server closes
    /// it.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let mut peer = self.connect().await;
        peer.send(bytes).await;
        peer.rest().await
    }
}

struct Peer(TcpStream);

impl Peer {
    async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads until `end` has come.
    async fn read_until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        let reading = async {
            while !String::from_utf8_lossy(&text).contains(end) {
                assert_ne!(
                    self.0.read_buf(&mut text).await.unwrap(),
                    0,
                    "closed after {:?}",
                    String::from_utf8_lossy(&text)
                );
            }
        };
        tokio::time::timeout(HANGS, reading).await.unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Sends `bytes` in packets of their own.
    async fn drip(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.0.write_all(&[*byte]).await.is_err() {
                // The server has seen enough.
                break;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads until the server closes the connection.
    async fn rest(&mut self) -> String {
        let mut text = Vec::new();
        tokio::time::timeout(HANGS, self.0.read_to_end(&mut text)).await.expect("not closed").unwrap();
        String::from_utf8(text).unwrap()
    }
}

/// A request that must not be seen behind ambiguous bytes.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

fn quick() -> ServerLimits {
    ServerLimits {
        header_read: Duration::from_millis(300),
        idle: Duration::from_millis(900),
        ..ServerLimits::default()
    }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let server = Server::start(ServerLimits::default()).await;
    let mut peer = server.connect().await;
    for _ in 0..3 {
        peer.send(GET).await;
        assert!(peer.read_until("hello").await.starts_with("HTTP/1.1 200"));
    }
    peer.send(b"POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n").await;
    peer.read_until("abc").await;
    peer.send(&GET.repeat(2)).await;
    peer.read_until("hello").await;
}

#[tokio::test]
async fn a_head_that_drips_is_closed_in_time() {
    let server = Server::start(quick()).await;
    let beginnings: [&[u8]; 4] = [b"", b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n"];
    for beginning in beginnings {
        let mut peer = server.connect().await;
        let began = Instant::now();
        peer.send(beginning).await;
        assert!(!peer.rest().await.contains("200"));
        let closed = began.elapsed();
        assert!(closed >= Duration::from_millis(290) && closed < HANGS / 2, "{closed:?} after {beginning:?}");
    }
}

#[tokio::test]
async fn dripping_does_not_buy_time() {
    let server = Server::start(quick()).await;
    let mut peer = server.connect_and_get().await;
    let began = Instant::now();
    let mut byte = [0];
    // A byte of the second head whenever the server has been quiet for a while, until it has had
    // enough.
    for sent in b"GET / HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'y')) {
        if peer.0.write_all(&[*sent]).await.is_err() {
            break;
        }
        match tokio::time::timeout(Duration::from_millis(50), peer.0.read(&mut byte)).await {
            Err(_) => assert!(began.elapsed() < HANGS, "never closed"),
            Ok(read) => {
                assert!(matches!(read, Ok(0) | Err(_)));
                break;
            }
        }
    }
    assert!(began.elapsed() >= Duration::from_millis(290));
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_a_while_and_then_closed() {
    let server = Server::start(quick()).await;
    let mut peer = server.connect_and_get().await;
    let began = Instant::now();
    assert_eq!(peer.rest().await, "");
    let closed = began.elapsed();
    assert!(closed >= Duration::from_millis(800), "closed by the limit of heads: {closed:?}");
}

#[tokio::test]
async fn a_long_answer_is_not_idle() {
    let mut server = Server::start(quick()).await;
    let mut peer = server.connect_and_wait().await;
    // Longer than every limit of the connection.
    assert!(tokio::time::timeout(Duration::from_millis(1_500), peer.0.readable()).await.is_err());
    server.release.notify_waiters();
    peer.read_until("waited").await;
}

/// What is ambiguous is decided by the framing check, whose own test has the whole corpus. Here are
/// a few of these, and what only the parser behind it refuses.
#[tokio::test]
async fn ambiguous_bytes_are_refused_and_closed() {
    let server = Server::start(ServerLimits::default()).await;
    let post = |fields: &str| format!("POST /echo HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n");
    let corpus = [
        ("two lengths", post("content-length: 0\r\ncontent-length: 5")),
        ("two framings", post("content-length: 5\r\ntransfer-encoding: chunked") + "0\r\n\r\n"),
        ("HTTP/1.0 chunked", post("transfer-encoding: chunked").replace("1.1", "1.0") + "0\r\n\r\n"),
        ("a folded line", post("x: y\r\n z")),
        ("one bare LF", post("x: y\nz: a")),
        ("a NUL", post("x: \0")),
        ("no version", "GET /\r\n\r\n".to_owned()),
    ];
    for (what, bytes) in corpus {
        let answer = server.exchange(format!("{bytes}{SMUGGLED}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{what}: {answer}");
        assert!(answer.contains("\r\nrequest-id: ") && answer.contains("\"malformed_request\""), "{what}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{what}: {answer}");
    }
    for chunks in ["0\r\ncontent-length: 5\r\n\r\n", "3\r\nabcX0\r\n\r\n", "x\r\n"] {
        let bytes = post("transfer-encoding: chunked") + chunks + SMUGGLED;
        let answer = server.exchange(bytes.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{chunks:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{chunks:?}: {answer}");
    }
    let mut peer = server.connect().await;
    peer.drip(post("content-length: 0\r\ncontent-length: 0").as_bytes()).await;
    assert!(peer.rest().await.starts_with("HTTP/1.1 400"), "byte by byte");
}

#[tokio::test]
async fn heads_are_bounded() {
    let limits = ServerLimits { header_bytes: 8 * 1024, ..ServerLimits::default() };
    let server = Server::start(limits).await;
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(20 * 1024));
    let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(200));
    for head in [long, many] {
        let answer = server.exchange(head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431") && answer.contains("\"headers_too_large\""), "{answer}");
    }
    let server = Server::start(ServerLimits::default()).await;
    let path = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(100 * 1024));
    let answer = server.exchange(path.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 414") || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn beyond_the_cap_a_connection_waits_for_a_place() {
    let server = Server::start(ServerLimits { connections: 2, ..ServerLimits::default() }).await;
    let (first, _second) = (server.connect_and_get().await, server.connect_and_get().await);
    let mut third = server.connect().await;
    third.send(GET).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(200), third.0.readable()).await.is_err(),
        "served beyond the cap"
    );
    drop(first);
    third.read_until("hello").await;
}

#[tokio::test]
async fn a_shutdown_finishes_requests_under_way() {
    let mut server = Server::start(ServerLimits::default()).await;
    let (mut idle, fresh) = (server.connect_and_get().await, server.connect().await);
    let mut busy = server.connect_and_wait().await;

    server.shutdown.cancel();
    assert_eq!(idle.rest().await, "", "an idle connection is closed at once");
    drop(fresh);
    let refused = async {
        while let Ok(mut late) = TcpStream::connect(server.address).await {
            // Connected while the listener was closing: then it is reset or closed, and never
            // served.
            let mut text = Vec::new();
            drop(late.write_all(GET).await);
            drop(late.read_to_end(&mut text).await);
            assert!(text.is_empty());
        }
    };
    tokio::time::timeout(HANGS, refused).await.unwrap();
    assert!(!server.serving.is_finished());
    server.release.notify_waiters();
    let answer = busy.rest().await;
    assert!(answer.contains("waited") && answer.contains("connection: close"), "{answer}");
    server.ended().await;
}

#[tokio::test]
async fn a_shutdown_waits_for_a_bounded_time() {
    let mut server = Server::start(ServerLimits { drain: Duration::from_millis(200), ..ServerLimits::default() }).await;
    let mut stuck = server.connect_and_wait().await;
    server.shutdown.cancel();
    server.ended().await;
    assert!(!stuck.rest().await.contains("200"));
}

type Http2 = hyper::client::conn::http2::SendRequest<Empty<Bytes>>;

/// An HTTP/2 connection, and what comes of it when it ends.
async fn http2(server: &Server) -> (Http2, JoinHandle<hyper::Result<()>>) {
    let io = TokioIo::new(server.connect().await.0);
    let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    (sender, tokio::spawn(connection))
}

async fn http2_get(sender: &mut Http2, path: &str) -> hyper::Result<Bytes> {
    let request = axum::http::Request::get(format!("http://a{path}")).body(Empty::new()).unwrap();
    Ok(sender.send_request(request).await?.into_body().collect().await?.to_bytes())
}

#[tokio::test]
async fn http_2_serves_many_requests_on_one_connection() {
    let mut server = Server::start(ServerLimits::default()).await;
    let (mut sender, _connection) = http2(&server).await;
    let mut other = sender.clone();
    let waiting = tokio::spawn(async move { http2_get(&mut other, "/wait").await });
    server.arrived.recv().await.unwrap();
    assert_eq!(http2_get(&mut sender, "/").await.unwrap(), "hello");

    server.shutdown.cancel();
    server.release.notify_waiters();
    assert_eq!(waiting.await.unwrap().unwrap(), "waited", "what is under way is finished");
    server.ended().await;
}

#[tokio::test]
async fn an_idle_http_2_connection_is_closed() {
    let server = Server::start(quick()).await;
    let (mut sender, connection) = http2(&server).await;
    assert_eq!(http2_get(&mut sender, "/").await.unwrap(), "hello");
    let began = Instant::now();
    // Frames that begin no request do not keep it open, and neither do they count as a slow head.
    drop(tokio::time::timeout(HANGS, connection).await.expect("never closed").unwrap());
    assert!(began.elapsed() >= Duration::from_millis(800), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_peer_that_goes_away_stops_its_request() {
    let limits = ServerLimits { drain: HANGS, ..ServerLimits::default() };
    let mut server = Server::start(limits).await;
    drop(server.connect_and_wait().await);
    server.shutdown.cancel();
    // The handler is never released: only its being dropped lets the server end before the drain
    // deadline.
    let began = Instant::now();
    server.ended().await;
    assert!(began.elapsed() < HANGS / 2);
}

/// The handler keeps the only thread, so the reactor has no turn: only the socket itself knows.
#[tokio::test]
async fn a_handler_learns_at_once_that_its_peer_hung_up() {
    let (arrive, arrived) = std::sync::mpsc::channel();
    let (report, mut reported) = mpsc::unbounded_channel();
    let handler = async move |Extension(peer): Extension<server::Peer>| {
        assert!(!peer.has_hung_up(), "it waits for its answer");
        arrive.send(()).unwrap();
        let until = Instant::now() + HANGS;
        while !peer.has_hung_up() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        report.send(peer).unwrap();
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(handler));
    let serving = tokio::spawn(serve(listener, router, ServerLimits::default(), CancellationToken::new()));
    let client = std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut stream, GET).unwrap();
        arrived.recv().unwrap();
    });
    let peer = tokio::time::timeout(HANGS * 2, reported.recv()).await.unwrap().unwrap();
    assert!(peer.has_hung_up(), "the handler was not told");
    client.join().unwrap();
    serving.abort();
}
