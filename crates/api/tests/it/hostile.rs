//! Peers that send ambiguous, endless or no bytes, with and without TLS.

use std::time::{Duration, Instant};

use punctual_api::server::ServerLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::it::harness::{HANGS, LARGE_BYTES, Server, WIRES, Wire, quick};

/// A request that must not be seen behind ambiguous bytes.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

fn post(fields: &str) -> String {
    format!("POST /echo HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n")
}

/// What is ambiguous is decided by the framing check, whose own test has the whole corpus. Here are
/// a few of each kind, and what only the parser behind it refuses.
#[tokio::test]
async fn ambiguous_bytes_are_refused_and_closed() {
    let corpus = [
        ("two lengths", post("content-length: 0\r\ncontent-length: 5")),
        ("two equal lengths", post("content-length: 0\r\ncontent-length: 0")),
        ("two framings", post("content-length: 5\r\ntransfer-encoding: chunked") + "0\r\n\r\n"),
        ("two framings, the other way round", post("transfer-encoding: chunked\r\ncontent-length: 5") + "0\r\n\r\n"),
        ("an unknown coding", post("transfer-encoding: xchunked") + "0\r\n\r\n"),
        ("two codings", post("transfer-encoding: chunked, identity") + "0\r\n\r\n"),
        ("a coding in two lines", post("transfer-encoding: chunked\r\ntransfer-encoding: chunked") + "0\r\n\r\n"),
        ("a space before the colon", post("transfer-encoding : chunked") + "0\r\n\r\n"),
        ("a vertical tab before the coding", post("transfer-encoding: \x0bchunked") + "0\r\n\r\n"),
        ("HTTP/1.0 chunked", post("transfer-encoding: chunked").replace("1.1", "1.0") + "0\r\n\r\n"),
        ("a folded line", post("x: y\r\n z")),
        ("one bare LF", post("x: y\nz: a")),
        ("only bare LF", "GET / HTTP/1.1\nhost: a\n\n".to_owned()),
        ("a NUL", post("x: \0")),
        ("no version", "GET /\r\n\r\n".to_owned()),
    ];
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        for (what, bytes) in &corpus {
            let answer = server.exchange(format!("{bytes}{SMUGGLED}").as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{what}, {wire:?}: {answer}");
            assert!(
                answer.contains("\r\nrequest-id: ") && answer.contains("\"malformed_request\""),
                "{what}: {answer}"
            );
            assert_eq!(answer.contains("\r\nstrict-transport-security: "), wire == Wire::Tls, "{what}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{what}, {wire:?}: {answer}");
        }
        let mut peer = server.connect().await;
        peer.drip(post("content-length: 0\r\ncontent-length: 0").as_bytes()).await;
        assert!(peer.rest().await.starts_with("HTTP/1.1 400"), "byte by byte, {wire:?}");
    }
}

#[tokio::test]
async fn ambiguous_chunks_are_refused_and_closed() {
    // Hyper takes 16 KiB of extensions, and the framing check none that is no line.
    let extension = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(20 * 1024));
    let long = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(80 * 1024));
    let many = format!("1;{}\r\na\r\n", "x".repeat(1_000)).repeat(40) + "0\r\n\r\n";
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        for chunks in [
            "0\r\ncontent-length: 5\r\n\r\n",
            "3\r\nabcX0\r\n\r\n",
            "x\r\n",
            "3\nabc\r\n0\r\n\r\n",
            "ffffffffffffffff0\r\n",
            &extension,
            &long,
            &many,
        ] {
            let bytes = post("transfer-encoding: chunked") + chunks + SMUGGLED;
            let answer = server.exchange(bytes.as_bytes()).await;
            let shown = &chunks[..chunks.len().min(40)];
            assert!(answer.starts_with("HTTP/1.1 400"), "{shown:?}, {wire:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{shown:?}, {wire:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn http_1_0_is_kept_alive_only_if_it_asks_for_it() {
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        let old = post("content-length: 3").replace("1.1", "1.0") + "abc";
        let answer = server.exchange(format!("{old}{SMUGGLED}").as_bytes()).await;
        assert_eq!(answer.matches("HTTP/1.").count(), 1, "{wire:?}: {answer}");
        assert!(answer.ends_with("abc"), "{wire:?}: {answer}");

        let mut peer = server.connect().await;
        let kept = old.replace("host: a\r\n", "host: a\r\nconnection: keep-alive\r\n");
        for _ in 0..2 {
            peer.send(kept.as_bytes()).await;
            let answer = peer.read_until("abc").await;
            assert!(answer.to_ascii_lowercase().contains("content-length: 3\r\n"), "{wire:?}: {answer}");
        }
    }
}

#[tokio::test]
async fn heads_are_bounded() {
    for wire in WIRES {
        let limits = ServerLimits { header_bytes: 8 * 1024, ..ServerLimits::default() };
        let server = Server::on(wire, limits).await;
        let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(20 * 1024));
        let many = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "x: y\r\n".repeat(200));
        for head in [long, many] {
            let answer = server.exchange(head.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 431") && answer.contains("\"headers_too_large\""), "{answer}");
        }
        let server = Server::on(wire, ServerLimits::default()).await;
        let path = format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "y".repeat(100 * 1024));
        let answer = server.exchange(path.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 414") || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
}

#[tokio::test]
async fn a_head_that_drips_is_closed_in_time() {
    for wire in WIRES {
        let server = Server::on(wire, quick()).await;
        let beginnings: [&[u8]; 4] = [b"", b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nhost: a\r\n"];
        for beginning in beginnings {
            let mut peer = server.connect().await;
            let began = Instant::now();
            peer.send(beginning).await;
            assert!(!peer.rest().await.contains("200"));
            let closed = began.elapsed();
            // Over TLS the server began to count a moment before the peer.
            assert!(closed >= Duration::from_millis(250) && closed < HANGS / 2, "{closed:?} after {beginning:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_does_not_read_is_cut_off() {
    for wire in WIRES {
        let limits = ServerLimits { unread: Duration::from_millis(300), ..ServerLimits::default() };
        let server = Server::on(wire, limits).await;
        let mut peer = server.connect().await;
        peer.send(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await;
        // More bytes for the server, until it has reset the connection.
        let cut = async {
            while peer.0.write_all(b"GET").await.is_ok() && peer.0.flush().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(HANGS, cut).await.expect("it is kept");
        let mut read = Vec::new();
        drop(peer.0.read_to_end(&mut read).await);
        assert!(read.len() < LARGE_BYTES, "{wire:?}: {}", read.len());
        server.connect().await.get().await;
    }
}

#[tokio::test]
async fn dripping_does_not_buy_time() {
    for wire in WIRES {
        let server = Server::on(wire, quick()).await;
        let mut peer = server.connect_and_get().await;
        let began = Instant::now();
        let mut byte = [0];
        // A byte of the second head whenever the server has been quiet for a while, until it has
        // had enough.
        for sent in b"GET / HTTP/1.1\r\nx: ".iter().chain(std::iter::repeat(&b'y')) {
            if peer.0.write_all(&[*sent]).await.is_err() || peer.0.flush().await.is_err() {
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
        assert!(began.elapsed() >= Duration::from_millis(290), "{wire:?}");
    }
}
