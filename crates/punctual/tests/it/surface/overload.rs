//! Requests beyond the bounds.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::it::world::World;

/// The body of a batch that takes as much of the room as one may: a quarter.
const LARGE: usize = 400_000;

/// The header of a client that sends its body only when asked to.
const ASKS: &str = "expect: 100-continue\r\n";

/// The head and body of a batch of one task with `bytes` in all.
fn batch(bytes: usize, more: &str) -> (String, String) {
    let task = r#"{"type":"t","delay_seconds":600}"#;
    let head = format!(
        "POST /v1/tasks/batch HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n{more}content-length: {bytes}\r\n\r\n"
    );
    (head, format!("{}{task}", " ".repeat(bytes - task.len())))
}

/// The next answer on `connection`, as text.
async fn answer(connection: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
            if body.len() >= length.parse().expect("a number") {
                return text;
            }
        }
        assert_ne!(connection.read_buf(&mut read).await.expect("it can be read"), 0, "closed after {text:?}");
    }
}

#[tokio::test]
async fn a_batch_without_room_is_refused() {
    let world = World::start_with(|serve| serve.setting("LIMITS__BODIES_BYTES", "1048576")).await;
    let connect = async || TcpStream::connect(world.server.address()).await.unwrap();

    let (head, body) = batch(LARGE, "");
    let mut slow = Vec::new();
    for _ in 0..4 {
        // There is still room, however slow the clients before are.
        let mut quick = connect().await;
        quick.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await.unwrap();
        let reply = answer(&mut quick).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "beside {} slow ones: {reply}", slow.len());
        let mut connection = connect().await;
        connection.write_all(batch(LARGE, ASKS).0.as_bytes()).await.unwrap();
        let reply = answer(&mut connection).await;
        assert!(reply.starts_with("HTTP/1.1 100 "), "a client that gets 100 has its room: {reply}");
        connection.write_all(&body.as_bytes()[..1_000]).await.unwrap();
        slow.push(connection);
    }

    let mut refused = connect().await;
    refused.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await.unwrap();
    let reply = answer(&mut refused).await;
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("\r\nretry-after: "), "{reply}");
    assert!(reply.contains(r#""code":"overloaded""#), "{reply}");
    assert!(!reply.contains("connection: close"), "{reply}");

    // It had sent its whole body, so the connection stays open.
    refused.write_all(b"GET /v1/tasks HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let reply = answer(&mut refused).await;
    assert!(
        reply.starts_with("HTTP/1.1 200 ") && reply.matches(r#""task_id""#).count() == 4,
        "nothing more was stored: {reply}"
    );

    // A client that asks first does not have to send its body.
    let mut asking = connect().await;
    asking.write_all(batch(LARGE, ASKS).0.as_bytes()).await.unwrap();
    let reply = answer(&mut asking).await;
    assert!(reply.starts_with("HTTP/1.1 503 ") && reply.contains("connection: close"), "{reply}");

    // A single task is admitted.
    world.caller().submit_id(json!({"type": "t", "delay_seconds": 600})).await;

    for mut connection in slow {
        connection.write_all(&body.as_bytes()[1_000..]).await.unwrap();
        assert!(answer(&mut connection).await.starts_with("HTTP/1.1 200 "));
    }
    refused.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await.unwrap();
    assert!(answer(&mut refused).await.starts_with("HTTP/1.1 200 "), "there is room again");
}
