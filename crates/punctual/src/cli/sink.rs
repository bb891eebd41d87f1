//! `punctual sink`: a receiver of webhooks to try things out. It prints each request on one line
//! and answers with the status that the URL or the flag asks for, so that retries and dead letters
//! can be watched without writing a server.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;

use anyhow::Context;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use clap::Args;

/// The largest body: any payload that the server accepts by default.
const BODY_BYTES_MAX: usize = 1_024 * 1_024;

/// The arguments of `punctual sink`.
#[derive(Args)]
pub struct SinkArguments {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7410")]
    listen: SocketAddr,
    /// The status of every answer whose URL names none.
    #[arg(long, default_value = "200", value_parser = parse_status)]
    status: StatusCode,
}

/// Receives until it is killed.
pub fn run(arguments: &SinkArguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(receive(arguments))
}

async fn receive(arguments: &SinkArguments) -> anyhow::Result<()> {
    let cannot = || format!("cannot listen on {}", arguments.listen);
    let listener = tokio::net::TcpListener::bind(arguments.listen).await.with_context(cannot)?;
    let app = Router::new().fallback(hit).layer(DefaultBodyLimit::max(BODY_BYTES_MAX)).with_state(arguments.status);
    print(&format!("listening on http://{}", listener.local_addr()?));
    axum::serve(listener, app).await?;
    Ok(())
}

async fn hit(
    State(usual): State<StatusCode>,
    Query(query): Query<HashMap<String, String>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
    let attempt = header("punctual-attempt");
    let status = wanted(&query, attempt.parse().unwrap_or(1)).unwrap_or(usual);
    let (task, kind) = (header("punctual-task-id"), header("punctual-type"));
    let body = one_line(&String::from_utf8_lossy(&body));
    print(&format!("{method} {uri} {task} {kind} attempt={attempt} {body} -> {}", status.as_u16()));
    (status, [(header::CONTENT_TYPE, "application/json")], r#"{"received":true}"#).into_response()
}

/// The status that the URL asks for: `status=503` for every attempt, with `attempts=2` for the
/// first two. Other parameters are ignored.
fn wanted(query: &HashMap<String, String>, attempt: u32) -> Option<StatusCode> {
    let status = parse_status(query.get("status")?).ok()?;
    let attempts = query.get("attempts").and_then(|text| text.parse().ok()).unwrap_or(u32::MAX);
    (attempt <= attempts).then_some(status)
}

fn parse_status(text: &str) -> Result<StatusCode, String> {
    text.parse()
        .ok()
        .filter(|status: &StatusCode| status.as_u16() >= 200)
        .ok_or("must be a status from 200 to 999".into())
}

/// The text on one line, with control characters escaped.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Prints the line and flushes, also into a pipe.
fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the reader is gone, the sink still answers.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_sets_the_status_of_its_first_attempts() {
        let statuses = |query: &[(&str, &str)]| {
            let query = query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            [1, 2, 3].map(|attempt| wanted(&query, attempt).map(|status| status.as_u16()))
        };
        assert_eq!(statuses(&[("status", "503"), ("attempts", "2")]), [Some(503), Some(503), None]);
        assert_eq!(statuses(&[("status", "404")]), [Some(404); 3]);
        assert_eq!(statuses(&[("status", "paid"), ("attempts", "many")]), [None; 3]);
    }

    #[test]
    fn a_hit_is_one_line() {
        assert_eq!(one_line("{\"a\":\n\u{1b}[31m\"é\"}"), "{\"a\":\\n\\u{1b}[31m\"é\"}");
    }
}
