//! HTTP/2, with a client that does all right.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use punctual_api::server::ServerLimits;
use tokio::task::JoinHandle;

use crate::it::harness::{HANGS, Server, quick};

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
