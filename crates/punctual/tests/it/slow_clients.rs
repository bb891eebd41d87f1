//! Clients that are slow on purpose: each costs a connection for a bounded time, and many of them
//! do not slow down the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use punctual_testkit::certificates::Authority;
use punctual_testkit::eventually::eventually;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::it::world::{Caller, SOON, World};

/// How many slow clients there are at once.
const SLOW: usize = 5_000;

/// Files that the test and the server need beside the sockets.
const OTHER_FILES: u64 = 1_000;

/// Submissions of which the 99th percentile is taken.
const SUBMISSIONS: usize = 400;

/// What a submission may take on a machine that is busy with other tests, whatever the clients do.
const BUSY: Duration = Duration::from_millis(25);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_slow_clients_do_not_slow_down_submissions() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a process can ask for its limits");
    assert!(hard >= SLOW as u64 + OTHER_FILES, "this test needs more open files: ulimit -Hn is {hard}");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("a soft limit can be raised to the hard one");
    let world = World::start_with(|serve| {
        let serve = serve.setting("LIMITS__CONNECTIONS_PER_ADDRESS", "6000");
        // They are to stay for the whole test.
        serve.setting("LIMITS__HEADER_READ_TIMEOUT_SECONDS", "600")
    })
    .await;
    let caller = world.caller();
    let mut slow = Vec::new();
    let mut measured = Vec::new();
    // What else runs on the machine may disturb one measurement, or the other.
    for _ in 0..4 {
        drop(std::mem::take(&mut slow));
        until_connected(&world, 0).await;
        let alone = p99(&caller).await;
        for _ in 0..SLOW {
            slow.push(half_a_head(&world).await);
        }
        until_connected(&world, SLOW).await;
        let dripping = drip(slow);
        let beside = p99(&caller).await;
        slow = dripping.stop().await;
        println!("the 99th percentile of submissions: {alone:?} alone, {beside:?} beside {SLOW} slow clients");
        measured.push((alone, beside));
        if beside <= 2 * alone.max(BUSY) {
            return;
        }
    }
    panic!("the 99th percentile alone and beside {SLOW} slow clients: {measured:?}");
}

async fn half_a_head(world: &World) -> TcpStream {
    let mut stream = TcpStream::connect(world.server.address()).await.expect("a connection");
    stream.write_all(b"POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nx: ").await.expect("half a head is sent");
    stream
}

/// Returns once the server has this many connections, but for a few of the test's own.
async fn until_connected(world: &World, wanted: usize) {
    const OWN: usize = 200;
    let files = format!("/proc/{}/fd", world.server.id());
    eventually("the server has accepted them", SOON, async || {
        let open = std::fs::read_dir(&files).map_or(0, Iterator::count);
        if (wanted..wanted + OWN).contains(&open) { Ok(()) } else { Err(format!("{open} files")) }
    })
    .await;
}

/// The 99th percentile of single submissions, one after the other.
async fn p99(caller: &Caller) -> Duration {
    let mut took = Vec::new();
    for _ in 0..SUBMISSIONS {
        let began = Instant::now();
        caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    took[SUBMISSIONS * 99 / 100]
}

/// Slow clients that send a byte now and then.
struct Dripping {
    stop: tokio_util::sync::CancellationToken,
    clients: tokio::task::JoinHandle<Vec<TcpStream>>,
}

fn drip(mut slow: Vec<TcpStream>) -> Dripping {
    let stop = tokio_util::sync::CancellationToken::new();
    let stopped = stop.clone();
    let clients = tokio::spawn(async move {
        for turn in 0.. {
            let sender: &mut TcpStream = &mut slow[turn % SLOW];
            sender.write_all(b"y").await.expect("the server keeps it");
            let pause = tokio::time::sleep(Duration::from_millis(1));
            if turn % 5 == 0 && stopped.run_until_cancelled(pause).await.is_none() {
                break;
            }
        }
        slow
    });
    Dripping { stop, clients }
}

impl Dripping {
    async fn stop(self) -> Vec<TcpStream> {
        self.stop.cancel();
        self.clients.await.expect("they drip until they are stopped")
    }
}

/// A body of which a byte comes now and then, with and without TLS.
#[tokio::test]
async fn a_body_that_drips_is_cut_off() {
    let (authority, folder) = (Authority::new("a root"), tempfile::tempdir().unwrap());
    let (cert, key) = authority.issue(&["127.0.0.1"]).write(folder.path(), "node");
    let plain = World::start().await;
    let secure = World::start_with(|serve| {
        let serve = serve.setting("TLS__CERT_FILE", &cert.display().to_string());
        serve.setting("TLS__KEY_FILE", &key.display().to_string())
    })
    .await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.root().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(secure.server.address()).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let plain = drip_a_body(TcpStream::connect(plain.server.address()).await.unwrap());
    let (plain, secure) = tokio::join!(plain, drip_a_body(stream));
    for answer in [plain, secure] {
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("\"request_timeout\""), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
}

/// What the server answers until it closes the connection.
async fn drip_a_body(stream: impl AsyncRead + AsyncWrite) -> String {
    let (mut read, mut write) = tokio::io::split(stream);
    let head = "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                content-length: 100000\r\n\r\n{";
    let writing = async {
        write.write_all(head.as_bytes()).await?;
        loop {
            write.write_all(b" ").await?;
            write.flush().await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let mut answer = Vec::new();
    let reading = tokio::time::timeout(2 * SOON, read.read_to_end(&mut answer));
    tokio::select! {
        ended = reading => drop(ended.expect("it is cut off")),
        failed = writing => {
            let failed: std::io::Result<()> = failed;
            // The answer is on its way.
            drop(failed);
        }
    }
    drop(read.read_to_end(&mut answer).await);
    String::from_utf8(answer).expect("text")
}
