//! The proxy between a client and a server: what it passes on, what it cuts, and where.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::{Postgres, connect, execute};
use punctual_testkit::proxy::{CutCommit, FaultProxy, FlowDirection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::Client;

const SOON: Duration = Duration::from_secs(20);

/// Long enough for anything that passes.
const A_WHILE: Duration = Duration::from_millis(300);

/// A server that sends its name, and then echoes its input until the end.
async fn echo(name: u8) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound listener has an address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                client.write_all(&[name]).await.ok();
                let (mut from, mut to) = client.split();
                tokio::io::copy(&mut from, &mut to).await.ok();
            });
        }
    });
    address
}

/// Connects, and returns the name that the server sends.
async fn greeted(proxy: &FaultProxy) -> (TcpStream, u8) {
    let mut client = TcpStream::connect(proxy.address()).await.expect("the proxy accepts");
    let name = client.read_u8().await.expect("the server sends its name");
    (client, name)
}

async fn echoed(client: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    client.write_u8(byte).await?;
    client.read_u8().await
}

#[tokio::test]
async fn everything_passes_in_both_directions_to_the_very_end() {
    let proxy = FaultProxy::start(echo(1).await);
    let (mut client, _) = greeted(&proxy).await;
    let sent: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let mut received = Vec::new();
    let (mut from, mut to) = client.split();
    let (wrote, read) = tokio::join!(
        async {
            to.write_all(&sent).await?;
            to.shutdown().await
        },
        from.read_to_end(&mut received),
    );
    wrote.expect("the proxy reads everything");
    read.expect("the connection ends cleanly");
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    eventually("it is over", SOON, async || match proxy.open_connections() {
        0 => Ok(()),
        open => Err(open.to_string()),
    })
    .await;
}

#[tokio::test]
async fn connections_are_cut_refused_and_led_elsewhere() {
    let proxy = FaultProxy::start(echo(1).await);
    let (mut one, _) = greeted(&proxy).await;
    let (mut two, _) = greeted(&proxy).await;
    proxy.cut().await;
    assert_eq!(proxy.open_connections(), 0);
    for cut in [&mut one, &mut two] {
        cut.read_u8().await.expect_err("it is cut");
    }

    let (mut open, _) = greeted(&proxy).await;
    proxy.refuse().await;
    let refused = TcpStream::connect(proxy.address()).await.expect_err("it is refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    assert_eq!(echoed(&mut open, 7).await.expect("an open connection stays"), 7);
    proxy.accept().await;

    proxy.lead_to(echo(2).await);
    assert_eq!(greeted(&proxy).await.1, 2);
    assert_eq!(echoed(&mut open, 8).await.expect("an open connection stays at its server"), 8);
}

#[tokio::test]
async fn a_connection_without_a_server_is_reset() {
    // A free port could be taken by another process; no server uses this one.
    let proxy = FaultProxy::start(SocketAddr::from(([127, 0, 0, 1], 1)));
    // The reset may arrive before `connect` returns.
    let read = match TcpStream::connect(proxy.address()).await {
        Ok(mut client) => client.read_u8().await,
        Err(error) => Err(error),
    };
    assert_eq!(read.expect_err("there is no server").kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn either_direction_can_be_held_back_for_a_while() {
    let proxy = FaultProxy::start(echo(1).await);
    let (mut client, _) = greeted(&proxy).await;
    for ways in [
        &[FlowDirection::ToServer][..],
        &[FlowDirection::ToClient],
        &[FlowDirection::ToServer, FlowDirection::ToClient],
    ] {
        for way in ways {
            proxy.stall(*way);
        }
        let mut echo = Box::pin(echoed(&mut client, 9));
        tokio::time::timeout(A_WHILE, &mut echo).await.expect_err("nothing comes back");
        proxy.flow();
        assert_eq!(echo.await.expect("the connection was open all the time"), 9);
    }
    proxy.stall(FlowDirection::ToServer);
    assert_eq!(greeted(&proxy).await.1, 1, "the other direction is not affected");
    proxy.black_hole();
    proxy.cut().await;
    client.read_u8().await.expect_err("a stalled connection can be cut");
}

#[tokio::test]
async fn a_delay_takes_its_time_and_keeps_the_order() {
    let proxy = FaultProxy::start(echo(1).await);
    let (mut client, _) = greeted(&proxy).await;
    proxy.delay(A_WHILE);
    let begun = Instant::now();
    for byte in 0..5 {
        client.write_u8(byte).await.expect("the proxy reads");
    }
    for byte in 0..5 {
        assert_eq!(client.read_u8().await.expect("it arrives in the end"), byte);
    }
    assert!(begun.elapsed() >= 2 * A_WHILE, "one delay each way, but it took {:?}", begun.elapsed());
    proxy.delay(Duration::ZERO);
    assert_eq!(echoed(&mut client, 9).await.expect("it passes"), 9);
}

/// A table in its own PostgreSQL, and the proxy before that.
async fn table() -> (Postgres, FaultProxy, String) {
    let server = Postgres::start().await;
    let proxy = FaultProxy::before_postgres(server.address());
    let url = server.url("postgres");
    execute(&url, "CREATE TABLE t (n int)").await;
    (server, proxy, url)
}

async fn rows(url: &str) -> Vec<String> {
    let rows = execute(url, "SELECT n FROM t ORDER BY n").await;
    rows.into_iter().flatten().map(|value| value.expect("it is never null")).collect()
}

/// Waits until the server has ended all other sessions and rolled back their open transactions.
async fn is_alone(url: &str) {
    let others =
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    eventually("the session is over", SOON, async || match execute(url, others).await.remove(0).remove(0) {
        Some(count) if count == "0" => Ok(()),
        other => Err(format!("{other:?} sessions")),
    })
    .await;
}

/// One of the ways in which a client commits.
async fn commit(client: &Client, way: &str, row: u32) -> Result<(), tokio_postgres::Error> {
    let insert = format!("INSERT INTO t VALUES ({row})");
    match way {
        "one message" => client.batch_execute(&format!("BEGIN; {insert}; COMMIT")).await,
        "messages one by one" => {
            client.batch_execute("BEGIN").await?;
            client.batch_execute(&insert).await?;
            client.batch_execute("COMMIT").await
        }
        "messages in a row" => {
            let insert = client.prepare(&insert).await?;
            let (begun, inserted, committed) = tokio::join!(
                client.batch_execute("BEGIN"),
                client.execute(&insert, &[]),
                client.batch_execute("COMMIT")
            );
            begun.and(inserted.map(|_| ())).and(committed)
        }
        _ => {
            let commit = client.prepare("COMMIT").await?;
            client.batch_execute(&format!("BEGIN; {insert}")).await?;
            client.execute(&commit, &[]).await.map(|_| ())
        }
    }
}

#[tokio::test]
async fn a_commit_is_cut_before_or_after_the_server_knows_of_it() {
    let (_server, proxy, url) = table().await;
    let mut expected = Vec::new();
    let mut cuts = 0;
    for (place, way) in ["one message", "messages one by one", "messages in a row", "prepared"].into_iter().enumerate()
    {
        let row = u32::try_from(place).expect("a small number") * 10;
        for (cut, row) in [(CutCommit::Before, row + 1), (CutCommit::After, row + 2)] {
            let client = connect(&proxy.through(&url)).await;
            proxy.cut_next_commit(cut);
            commit(&client, way, row).await.expect_err("the client gets no answer");
            cuts += 1;
            assert_eq!(proxy.commits_cut(), cuts, "{way}, {cut:?}");
            is_alone(&url).await;
            expected.extend((cut == CutCommit::After).then(|| row.to_string()));
            assert_eq!(rows(&url).await, expected, "{way}, {cut:?}");
        }
        let client = connect(&proxy.through(&url)).await;
        commit(&client, way, row + 3).await.expect("only the requested number is cut");
        expected.push((row + 3).to_string());
    }
    assert_eq!((rows(&url).await, proxy.commits_cut()), (expected, cuts));
}

#[tokio::test]
async fn a_query_through_a_black_hole_is_answered_when_it_is_over() {
    let (_server, proxy, url) = table().await;
    let client = connect(&proxy.through(&url)).await;
    proxy.black_hole();
    let mut query = Box::pin(client.batch_execute("INSERT INTO t VALUES (1)"));
    tokio::time::timeout(A_WHILE, &mut query).await.expect_err("no answer comes");
    assert!(rows(&url).await.is_empty(), "the server did not get it");
    proxy.flow();
    query.await.expect("it is answered");
    assert_eq!(rows(&url).await, ["1"]);
}

#[tokio::test]
async fn a_failover_leads_to_the_promoted_standby() {
    let (mut primary, proxy, url) = table().await;
    let mut standby = primary.standby().await;
    let through = proxy.through(&url);
    execute(&through, "INSERT INTO t VALUES (1)").await;
    let behind = standby.url("postgres");
    eventually("the row arrives", SOON, async || match rows(&behind).await {
        rows if rows == ["1"] => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    primary.kill().await;
    standby.promote().await;
    proxy.lead_to(standby.address());
    execute(&through, "INSERT INTO t VALUES (2)").await;
    assert_eq!(rows(&behind).await, ["1", "2"]);
}
