//! HTTP/2 peers that send what costs them nothing, with and without TLS. Each is cut off within a
//! bounded number of bytes, and others are served meanwhile.

use punctual_api::server::ServerLimits;
use tokio::io::AsyncWriteExt;

use crate::it::harness::{HANGS, Server, WIRES};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames.
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW: u8 = 8;
const CONTINUATION: u8 = 9;

/// Flags of frames.
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// More than any server should take: it reads a few megabytes after the end, and the kernel has
/// buffers.
const FLOOD_BYTES_MAX: usize = 64 * 1024 * 1024;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET /wait`, by the entries of the table of RFC 7541.
fn wait_fields() -> Vec<u8> {
    let mut fields = vec![0x82, 0x86];
    for (name, value) in [(4, "/wait"), (1, "a")] {
        fields.extend([name, u8::try_from(value.len()).unwrap()]);
        fields.extend_from_slice(value.as_bytes());
    }
    fields
}

/// The error codes of the GOAWAY frames among `bytes`.
fn went_away(mut bytes: &[u8]) -> Vec<u8> {
    let mut codes = Vec::new();
    while let [high, middle, low, kind, _, _, _, _, _, rest @ ..] = bytes {
        let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        if *kind == GO_AWAY {
            codes.push(payload[7]);
        }
        bytes = rest;
    }
    codes
}

/// Sends the preface and then pieces without end, and reads meanwhile. Returns what the server said
/// until it closed the connection.
async fn flood(server: &Server, mut piece: impl FnMut(u32) -> Vec<u8>) -> Vec<u8> {
    let peer = server.connect().await.0;
    let (mut read, mut write) = tokio::io::split(peer);
    let reading = tokio::spawn(async move {
        let mut said = Vec::new();
        // It may be reset in the end.
        drop(tokio::io::AsyncReadExt::read_to_end(&mut read, &mut said).await);
        said
    });
    let mut sent = 0;
    let sending = async {
        let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
        write.write_all(&opening).await?;
        for number in 0.. {
            let bytes = piece(number);
            write.write_all(&bytes).await?;
            sent += bytes.len();
            assert!(sent < FLOOD_BYTES_MAX, "it takes everything");
        }
        std::io::Result::Ok(())
    };
    let ended = tokio::time::timeout(HANGS, sending).await.expect("it neither closes nor reads");
    assert!(ended.is_err());
    tokio::time::timeout(HANGS, reading).await.expect("it does not close").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_are_cut_off() {
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        let said = flood(&server, |number| {
            let stream = 2 * number + 1;
            let cancel = frame(RESET, 0, stream, &8_u32.to_be_bytes());
            [frame(HEADERS, END_STREAM | END_HEADERS, stream, &wait_fields()), cancel].concat()
        })
        .await;
        // The parser says ENHANCE_YOUR_CALM, unless the budget of frames came first.
        assert!(went_away(&said).iter().all(|code| *code == 11), "{wire:?}: {:?}", went_away(&said));
        server.connect().await.get().await;
    }
}

/// Each request gets a window that is too large, for which the server itself must reset it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_the_server_must_reset_are_cut_off() {
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        let said = flood(&server, |number| {
            let stream = 2 * number + 1;
            let window = frame(WINDOW, 0, stream, &0x7fff_ffff_u32.to_be_bytes());
            [frame(HEADERS, END_STREAM | END_HEADERS, stream, &wait_fields()), window].concat()
        })
        .await;
        assert!(went_away(&said).iter().all(|code| *code == 11), "{wire:?}: {:?}", went_away(&said));
        server.connect().await.get().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_heads_are_cut_off() {
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        flood(&server, |number| match number {
            0 => frame(HEADERS, END_STREAM, 1, &wait_fields()),
            // A field that is not indexed, named `x`.
            _ => frame(CONTINUATION, 0, 1, &[0, 1, b'x', 1, b'y'].repeat(100)),
        })
        .await;
        flood(&server, |number| match number {
            0 => frame(HEADERS, END_STREAM, 1, &wait_fields()),
            _ => frame(CONTINUATION, 0, 1, &[]),
        })
        .await;
        server.connect().await.get().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_carry_nothing_are_cut_off() {
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        for (kind, payload) in [(PING, &[0; 8][..]), (SETTINGS, &[]), (PRIORITY, &[0, 0, 0, 0, 1])] {
            let stream = u32::from(kind == PRIORITY) * 3;
            flood(&server, |_| frame(kind, 0, stream, payload).repeat(100)).await;
            server.connect().await.get().await;
        }
    }
}

/// A table entry of four kilobytes, and a head that names it again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_grows_is_refused() {
    for wire in WIRES {
        let server = Server::on(wire, ServerLimits::default()).await;
        let mut fields = wait_fields();
        // Literal with indexing, a new name, and a value of 4000 bytes.
        fields.extend([0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
        fields.extend([b'y'; 4_000]);
        // The newest entry of the table, 8000 times: 32 MB.
        fields.extend([0xbe; 8_000]);
        let mut peer = server.connect().await;
        let bomb = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frame(HEADERS, END_STREAM | END_HEADERS, 1, &fields)];
        peer.send(&bomb.concat()).await;
        // Then a request that is served on the same connection, or the connection is over.
        drop(peer.0.write_all(&frame(PING, 0, 0, &[7; 8])).await);
        let mut said = Vec::new();
        let answered = async {
            while !said.windows(8).any(|bytes| bytes == [7; 8]) && went_away(&said).is_empty() {
                let read = tokio::io::AsyncReadExt::read_buf(&mut peer.0, &mut said).await.unwrap_or(0);
                if read == 0 {
                    break;
                }
            }
        };
        tokio::time::timeout(HANGS, answered).await.expect("an answer");
        assert!(server.arrived.is_empty(), "the handler got a head of 32 MB");
        server.connect().await.get().await;
    }
}
