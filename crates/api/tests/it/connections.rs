//! The life of a connection: its requests, its idle time, the caps, and the shutdown.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::get;
use axum::{Extension, Router};
use punctual_api::server::tls::ClientAuth;
use punctual_api::server::{self, ServerLimits, ServerSetup, serve};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::it::harness::{GET, HANGS, Server, ServerTls, WIRES, Wire, client, quick};

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
    assert!(peer.is_silent_for(Duration::from_millis(1_500)).await);
    server.release.notify_waiters();
    peer.read_until("waited").await;
}

#[tokio::test]
async fn beyond_the_cap_a_connection_waits_for_a_place() {
    let server = Server::start(ServerLimits { connections: 2, ..ServerLimits::default() }).await;
    let (first, _second) = (server.connect_and_get().await, server.connect_and_get().await);
    let mut third = server.connect().await;
    third.send(GET).await;
    assert!(third.is_silent_for(Duration::from_millis(200)).await, "served beyond the cap");
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
    for wire in WIRES {
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
        let tls = ServerTls::new(ClientAuth::Off, None);
        let identity = (wire == Wire::Tls).then(|| Arc::clone(&tls.identity));
        let setup = ServerSetup { tls: identity, ..ServerSetup::default() };
        let serving = tokio::spawn(serve(listener, router, setup, CancellationToken::new()));
        let root = tls.authority.root();
        let client = std::thread::spawn(move || {
            let stream = std::net::TcpStream::connect(address).unwrap();
            match wire {
                Wire::Plain => {
                    drop(ask_and_leave(stream, &arrived));
                    None
                }
                Wire::Tls => {
                    let name = ServerName::try_from("127.0.0.1").unwrap();
                    let session = ClientConnection::new(client(&root, None, &[]), name).unwrap();
                    let mut stream = ask_and_leave(StreamOwned::new(session, stream), &arrived);
                    stream.conn.send_close_notify();
                    stream.flush().unwrap();
                    // Closing it would reset the connection: the client has not read all.
                    stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
                    Some(stream.sock)
                }
            }
        });
        let peer = tokio::time::timeout(HANGS * 2, reported.recv()).await.unwrap().unwrap();
        assert!(peer.has_hung_up(), "the handler was not told, {wire:?}");
        drop(client.join().unwrap());
        serving.abort();
    }
}

/// Sends a request, and waits until the handler has it.
fn ask_and_leave<S: std::io::Write>(mut stream: S, arrived: &std::sync::mpsc::Receiver<()>) -> S {
    stream.write_all(GET).unwrap();
    stream.flush().unwrap();
    arrived.recv().unwrap();
    stream
}

#[tokio::test]
async fn beyond_the_cap_of_its_address_a_connection_is_closed_at_once() {
    // Nothing else closes a silent connection in time.
    let limits = ServerLimits { connections_per_address: 2, header_read: 2 * HANGS, ..ServerLimits::default() };
    let server = Server::start(limits).await;
    let (first, mut second) = (server.connect_and_get().await, server.connect_and_get().await);
    assert_eq!(server.connect().await.rest().await, "");
    second.get().await;
    let elsewhere = tokio::net::TcpSocket::new_v4().unwrap();
    elsewhere.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let stream = elsewhere.connect(server.address).await.unwrap();
    crate::it::harness::Peer(Box::new(stream)).get().await;
    drop(first);
    // The server sees the end of the first one a moment later.
    let served = async {
        loop {
            let mut peer = server.connect().await;
            let mut byte = [0];
            if peer.0.write_all(GET).await.is_ok() && peer.0.read(&mut byte).await.is_ok_and(|read| read == 1) {
                break;
            }
        }
    };
    tokio::time::timeout(HANGS, served).await.unwrap();
}
