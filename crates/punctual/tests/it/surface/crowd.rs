//! Crowds of clients that list, and clients that do not read what they asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::http2;
use crate::it::world::{Caller, SOON, World};

const LIST: &str = "/v1/tasks?limit=1000";

/// 200 clients with a connection each, and 8 with a hundred requests on one.
const SLOW_READERS: usize = 200;
const SLOW_CONNECTIONS: usize = 8;
const STREAMS: u32 = 100;

const MEMORY_MAX: u64 = 256 << 20;

/// Submits `count` tasks that are not due, each with a payload of `bytes`.
async fn fill(caller: &Caller, count: usize, bytes: usize) {
    let task = json!({"type": "t", "delay_seconds": 600, "payload": "x".repeat(bytes)});
    let batch = json!({"tasks": vec![task; count]});
    caller.api.post("/v1/tasks/batch?return=ids", &batch).await.expect(200);
}

/// A client that asks and does not read. It takes little into its own buffers.
async fn ask(address: &str, request: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small buffer");
    let mut stream = socket.connect(address.parse().expect("an address")).await.expect("a connection");
    stream.write_all(request).await.expect("the request is sent");
    stream
}

fn list_over_http1() -> Vec<u8> {
    format!("GET {LIST} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into_bytes()
}

fn lists_over_http2() -> Vec<u8> {
    let gets = (0..STREAMS).flat_map(|number| http2::get(2 * number + 1, "localhost", LIST));
    http2::preface_without_window().into_iter().chain(gets).collect()
}

/// Waits until the server has reset the connection.
async fn until_cut(slow: &TcpStream) {
    eventually("the connection is cut", SOON, async || {
        slow.take_error().expect("a socket can be asked").map(drop).ok_or_else(|| "it is open".to_owned())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_leave_memory_and_submissions_alone() {
    let world = World::start_with(|serve| serve.setting("LIMITS__UNREAD_TIMEOUT_SECONDS", "3")).await;
    let caller = world.caller();
    fill(&caller, 40, 200_000).await;
    let submit = async || {
        caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
        let memory = world.server.memory_peak();
        assert!(memory < MEMORY_MAX, "{} MB", memory >> 20);
    };

    let mut slow = Vec::new();
    for number in 0..SLOW_READERS {
        slow.push(ask(world.server.address(), &list_over_http1()).await);
        if number % (SLOW_READERS / SLOW_CONNECTIONS) == 0 {
            slow.push(ask(world.server.address(), &lists_over_http2()).await);
            submit().await;
        }
    }
    for cut in &slow[..2] {
        until_cut(cut).await;
        submit().await;
    }
    eventually("a client that reads gets its list", 3 * SOON, async || {
        submit().await;
        let reply = caller.api.get(LIST).await;
        if reply.status() == 200 { Ok(()) } else { Err(reply.to_string()) }
    })
    .await;
    let metrics = caller.api.get("/metrics").await.text().to_owned();
    assert!(metrics.contains("\npunctual_leader 1\n"), "{metrics}");
    assert!(!world.server.log().contains("leadership was lost"), "{}", world.server.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_ends_by_its_bytes_and_nothing_is_left_out() {
    let world = World::start().await;
    let caller = world.caller();
    fill(&caller, 20, 200_000).await;
    let (mut path, mut seen) = (LIST.to_owned(), 0);
    loop {
        let reply = caller.api.get(&path).await;
        assert!(reply.body().len() < 1_500_000, "{} bytes", reply.body().len());
        let page: Value = reply.expect(200);
        seen += page["items"].as_array().unwrap().len();
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("{LIST}&cursor={cursor}");
    }
    assert_eq!(seen, 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_lists_does_not_hold_up_submissions() {
    const LISTERS: usize = 100;
    let world = World::start().await;
    let caller = world.caller();
    fill(&caller, 1_000, 300).await;
    let answered = Arc::new(AtomicUsize::new(0));
    let mut listers = Vec::new();
    for _ in 0..LISTERS {
        let (address, answered) = (world.server.address().to_owned(), Arc::clone(&answered));
        listers.push(tokio::spawn(async move {
            let mut sink = vec![0; 64 * 1_024];
            loop {
                let mut stream = TcpStream::connect(&address).await.unwrap();
                stream.write_all(&list_over_http1()).await.unwrap();
                while stream.read(&mut sink).await.is_ok_and(|read| read > 0) {}
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    eventually("the lists are answered", SOON, async || {
        if answered.load(Ordering::Relaxed) > 0 { Ok(()) } else { Err("none yet".to_owned()) }
    })
    .await;
    let began = Instant::now();
    for _ in 0..50 {
        caller.submit_id(json!({"type": "t", "delay_seconds": 600})).await;
    }
    // Some milliseconds each beside nothing, and tens beside lists; seconds if they wait for lists.
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    listers.iter().for_each(tokio::task::JoinHandle::abort);
}
