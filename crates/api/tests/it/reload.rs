//! New certificates while the server runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_api::metrics::ConnectionMetrics;
use punctual_api::server::ServerLimits;
use punctual_api::server::tls::{ClientAuth, ReloadOutcome, TlsReloader};
use punctual_testkit::certificates::Authority;
use tokio::net::TcpStream;

use crate::it::harness::{GET, Peer, Server, ServerTls, client, secure};

/// The certificate that the server shows to a new connection.
async fn shown(server: &Server, root: &str) -> Option<Vec<u8>> {
    let stream = secure(server.dial().await, &client(root, None, &[])).await.ok()?;
    stream.get_ref().1.peer_certificates().map(|chain| chain[0].to_vec())
}

async fn serving() -> (Server, TlsReloader, String) {
    let tls = ServerTls::new(ClientAuth::Off, None);
    let root = tls.authority.root();
    let reloader = TlsReloader::new(Arc::clone(&tls.identity), ConnectionMetrics::default());
    (Server::start_with(ServerLimits::default(), Some(tls)).await, reloader, root)
}

fn renew(server: &Server) {
    let tls = server.tls.as_ref().unwrap();
    tls.authority.issue(&["127.0.0.1"]).write(tls.folder(), "node");
}

#[tokio::test]
async fn new_files_are_taken_when_two_readings_agree() {
    let (server, mut reloader, root) = serving().await;
    let before = shown(&server, &root).await.unwrap();
    let mut old = server.connect_and_get().await;
    assert_eq!(reloader.run_once(false), ReloadOutcome::Unchanged);
    renew(&server);
    assert_eq!(reloader.run_once(false), ReloadOutcome::Changing);
    assert_eq!(shown(&server, &root).await.unwrap(), before);
    assert_eq!(reloader.run_once(false), ReloadOutcome::Taken);
    let after = shown(&server, &root).await.unwrap();
    assert_ne!(after, before);
    old.get().await;
    assert_eq!(reloader.run_once(false), ReloadOutcome::Unchanged);
    renew(&server);
    assert_eq!(reloader.run_once(true), ReloadOutcome::Taken, "at once, if an operator asks");
    assert_ne!(shown(&server, &root).await.unwrap(), after);
}

#[tokio::test]
async fn bad_files_leave_the_old_certificate_in_use() {
    let (server, mut reloader, root) = serving().await;
    let before = shown(&server, &root).await.unwrap();
    let tls = server.tls.as_ref().unwrap();
    let other = Authority::new("another root").issue(&["127.0.0.1"]);
    std::fs::write(&tls.files.cert, &other.certificate).unwrap();
    let outcomes = [false; 4].map(|at_once| reloader.run_once(at_once));
    let unchanged = ReloadOutcome::Unchanged;
    assert_eq!(outcomes, [ReloadOutcome::Changing, ReloadOutcome::Refused, unchanged, unchanged], "refused once");
    assert_eq!(shown(&server, &root).await.unwrap(), before);
    std::fs::remove_file(&tls.files.key).unwrap();
    assert_eq!(reloader.run_once(true), ReloadOutcome::Refused);
    assert_eq!(shown(&server, &root).await.unwrap(), before);
    renew(&server);
    assert_eq!(reloader.run_once(false), ReloadOutcome::Changing);
    assert_eq!(reloader.run_once(false), ReloadOutcome::Taken);
    assert_ne!(shown(&server, &root).await.unwrap(), before);
}

/// Clients connect and call without a pause while the certificate changes fifty times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_dropped_by_a_reload() {
    let (server, mut reloader, root) = serving().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let (config, address) = (client(&root, None, &[]), server.address);
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (config, is_over) = (Arc::clone(&config), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut calls = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let stream = TcpStream::connect(address).await.unwrap();
                    let mut peer = Peer(Box::new(secure(stream, &config).await.unwrap()));
                    for _ in 0..3 {
                        peer.send(GET).await;
                        peer.read_until("hello").await;
                        calls += 1;
                    }
                }
                calls
            })
        })
        .collect();
    let mut long_lived = server.connect_and_get().await;
    for _ in 0..50 {
        renew(&server);
        assert_eq!(reloader.run_once(true), ReloadOutcome::Taken);
        long_lived.get().await;
    }
    is_over.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0);
    }
}
