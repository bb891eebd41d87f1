//! Targets that break the protocol, hang, flood, or die in the middle.

use std::time::Duration;

use punctual_core::failure::FailureCause;
use punctual_core::run_end::RunOutcome;
use punctual_core::trail::ResultDropped;
use punctual_testkit::sink::{Sink, SinkAnswer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::support::{AMPLE, BRIEF, Raw, call, call_within, failed, failure, read_request};

/// Requires that a call of `url` times out.
async fn times_out(url: &str) {
    times_out_after(url, BRIEF, None).await;
}

async fn times_out_after(url: &str, time: Duration, status: Option<u16>) {
    let begun = Instant::now();
    let failed = failed(call_within(url, time).await);
    assert_eq!((failed.error.code.as_ref(), failed.http_status, failed.retryable), ("timeout", status, true));
    assert_eq!(failed.cause, FailureCause::Timeout);
    assert!(begun.elapsed() >= time && begun.elapsed() < AMPLE, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_target_that_never_answers_times_out() {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::hang());
    times_out(&sink.url("/")).await;
}

#[tokio::test]
async fn headers_a_byte_at_a_time_time_out() {
    let server = Raw::serve(|mut stream| async move {
        read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nx-slow: ").await?;
        loop {
            stream.write_all(b"x").await?;
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    times_out(&server.url("/")).await;
}

#[tokio::test]
async fn a_body_a_byte_at_a_time_times_out() {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::trickle());
    // Long enough for the status to arrive on a busy machine.
    times_out_after(&sink.url("/"), 10 * BRIEF, Some(200)).await;
}

#[tokio::test]
async fn a_flood_of_1xx_times_out() {
    let server = Raw::serve(|mut stream| async move {
        read_request(&mut stream).await?;
        loop {
            stream.write_all(&b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(100)).await?;
        }
    })
    .await;
    times_out(&server.url("/")).await;
}

#[tokio::test]
async fn an_endless_body_is_cut_and_the_status_stands() {
    let sink = Sink::start();
    sink.answer("/", SinkAnswer::endless());
    let dropped = Some(ResultDropped::TooLarge);
    let wanted = RunOutcome::Completed { result: None, http_status: Some(200), dropped };
    assert_eq!(call(&sink.url("/")).await, wanted);
    // The header means something on a 202 only: this is an answer like any other.
    let endless = SinkAnswer::endless().header("Punctual-Completion", "async");
    sink.answer("/", endless);
    assert_eq!(call(&sink.url("/")).await, wanted);

    let server = Raw::serve(|mut stream| async move {
        read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 500 No\r\n\r\n").await?;
        loop {
            stream.write_all(&[b'x'; 4_096]).await?;
        }
    })
    .await;
    let failed = failed(call(&server.url("/")).await);
    assert_eq!(failed.error.code, "http_500");
    assert_eq!(failed.error.details.unwrap().matches('x').count(), 1_024);
}

#[tokio::test]
async fn a_refusal_is_not_waited_for_to_its_end() {
    let server = Raw::serve(|mut stream| async move {
        read_request(&mut stream).await?;
        stream.write_all(b"HTTP/1.1 404 No\r\ncontent-length: 100\r\n\r\npartial").await?;
        std::future::pending().await
    })
    .await;
    let begun = Instant::now();
    assert_eq!(failure(call(&server.url("/")).await), ("http_404".to_owned(), Some(404), false));
    assert!(begun.elapsed() < AMPLE);
}

#[tokio::test]
async fn a_connection_that_breaks_is_a_failure_even_after_a_200() {
    let sink = Sink::start();
    for (answer, status) in
        [(SinkAnswer::cut_short(), Some(200)), (SinkAnswer::reset(), None), (SinkAnswer::close(), None)]
    {
        sink.answer("/", answer);
        assert_eq!(failure(call(&sink.url("/")).await), ("connection_failed".to_owned(), status, true));
    }
    let server = Raw::saying("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"a").await;
    assert_eq!(failure(call(&server.url("/")).await), ("connection_failed".to_owned(), Some(200), true));
}

#[tokio::test]
async fn a_closed_port_is_a_failed_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let failed = failed(call(&format!("http://{address}/")).await);
    assert_eq!((failed.error.code.as_ref(), failed.retryable), ("connection_failed", true));
    assert!(failed.error.message.to_lowercase().contains("refused"), "{}", failed.error.message);
}

#[tokio::test]
async fn bytes_that_are_not_http_are_an_invalid_response() {
    let huge = format!("HTTP/1.1 200 OK\r\nx-huge: {}\r\n\r\n", "x".repeat(2_000_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-one: more\r\n".repeat(10_000));
    for bytes in [
        "HTTP/1.1 99 Low\r\n\r\n",
        "HTTP/1.1 1000 High\r\n\r\n",
        "HTTP/1.1 abc Letters\r\n\r\n",
        "HTTP/9.9 200 OK\r\n\r\n",
        "SSH-2.0-OpenSSH_9.9\r\n",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        &huge,
        &many,
    ] {
        let server = Raw::saying(bytes).await;
        let (code, status, retryable) = failure(call(&server.url("/")).await);
        let shown: String = bytes.chars().take(60).collect();
        assert_eq!((code.as_str(), status, retryable), ("invalid_response", None, true), "{shown:?}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let location = format!("http://{}/", elsewhere.local_addr().unwrap());
    let sink = Sink::start();
    for status in [301, 302, 303, 307, 308] {
        sink.answer("/", SinkAnswer::status(status).header("location", &location));
        assert_eq!(failure(call(&sink.url("/")).await), ("redirected".to_owned(), Some(status), false));
    }
    elsewhere.into_std().unwrap().accept().expect_err("no connection came");
}

#[tokio::test]
async fn bytes_that_are_not_tls_are_a_tls_failure() {
    // A fatal alert (handshake_failure), and plain HTTP.
    for bytes in [&b"\x15\x03\x03\x00\x02\x02\x28"[..], b"HTTP/1.1 400 Bad Request\r\n\r\n"] {
        let server = Raw::serve(move |mut stream| async move {
            stream.read_u8().await?;
            stream.write_all(bytes).await?;
            std::future::pending().await
        })
        .await;
        let url = format!("https://{}/", server.address);
        assert_eq!(failure(call(&url).await), ("tls_failed".to_owned(), None, true));
    }
}
