//! A thin JSON client for black-box tests, whose failures show the whole exchange.
//!
//! [`ApiClient`] sends anything, also headers and bodies that no SDK would send. [`Reply`] is the
//! answer, with the checks that every test needs. Both know the conventions of the API (problem
//! details, `request-id`), but none of its calls.

use std::fmt;
use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, split};
use tokio::net::TcpStream;

use crate::certificates::Certificate;
use crate::wire::{HttpReader, find};

/// Longer than the longest wait for leases: a server that has not answered by then hangs.
const HANGS_AFTER: Duration = Duration::from_secs(90);

/// A client: a server, perhaps a tenant and a key, and a pool of connections.
#[derive(Clone, Debug)]
pub struct ApiClient {
    base: String,
    tenant: Option<String>,
    trust: Trust,
    key: Option<String>,
    client: reqwest::Client,
}

/// Whom a client trusts over TLS, and what it shows itself.
#[derive(Clone, Debug, Default)]
struct Trust {
    /// As PEM.
    root: Option<String>,
    identity: Option<Certificate>,
}

impl ApiClient {
    /// Calls `base`, such as `http://127.0.0.1:7400`, as the default tenant.
    pub fn new(base: &str) -> Self {
        Self::with(base, Trust::default())
    }

    /// Calls `base`, such as `https://127.0.0.1:7400`, trusts this root alone, and shows this
    /// certificate.
    pub fn over_tls(base: &str, root: &str, identity: Option<&Certificate>) -> Self {
        Self::with(base, Trust { root: Some(root.to_owned()), identity: identity.cloned() })
    }

    fn with(base: &str, trust: Trust) -> Self {
        // Another test of the same process may have installed it already.
        rustls::crypto::ring::default_provider().install_default().ok();
        let root = trust
            .root
            .as_ref()
            .map(|root| reqwest::Certificate::from_pem(root.as_bytes()).expect("the test's own root is a certificate"));
        let mut builder = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(HANGS_AFTER)
            // Reading the machine's certificates would only take time.
            .tls_certs_only(root);
        if let Some(Certificate { certificate, key }) = &trust.identity {
            let identity = reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes());
            builder = builder.identity(identity.expect("the test's own certificate is one"));
        }
        let client = builder.build().expect("invariant: a client without settings that can fail is built");
        Self { base: base.trim_end_matches('/').to_owned(), tenant: None, key: None, trust, client }
    }

    /// The same with the header `Punctual-Tenant`.
    #[must_use]
    pub fn tenant(&self, name: &str) -> Self {
        Self { tenant: Some(name.to_owned()), ..self.clone() }
    }

    /// The same, showing an API key.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same with connections of its own.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { tenant: self.tenant.clone(), key: self.key.clone(), ..Self::with(&self.base, self.trust.clone()) }
    }

    /// Begins any call.
    pub fn call(&self, method: &str, path: &str) -> ApiCall {
        let verb = method.parse().unwrap_or_else(|_| panic!("{method:?} is not a method"));
        let mut request = self.client.request(verb, format!("{}{path}", self.base));
        if let Some(tenant) = &self.tenant {
            request = request.header("punctual-tenant", tenant);
        }
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        ApiCall { request, sent: format!("{method} {path}") }
    }

    /// `GET path`.
    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path).send().await
    }

    /// `POST path` with JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call("POST", path).json(body).send().await
    }

    /// `PATCH path` with JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.call("PATCH", path).json(body).send().await
    }

    /// `DELETE path`.
    pub async fn delete(&self, path: &str) -> Reply {
        self.call("DELETE", path).send().await
    }
}

/// The builder of a call.
#[derive(Debug)]
pub struct ApiCall {
    request: reqwest::RequestBuilder,
    sent: String,
}

impl ApiCall {
    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.sent.extend(["\n", name, ": ", value]);
        self.request = self.request.header(name, value);
        self
    }

    /// Sends JSON.
    #[must_use]
    pub fn json(self, body: &Value) -> Self {
        self.body("application/json", body.to_string())
    }

    /// Sends any bytes.
    #[must_use]
    pub fn body(mut self, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        self.sent.extend(["\n", &abridged(&body)]);
        if !content_type.is_empty() {
            self.request = self.request.header("content-type", content_type);
        }
        self.request = self.request.body(body);
        self
    }

    /// Sends it; panics if there is no answer.
    pub async fn send(self) -> Reply {
        let sent = self.sent.clone();
        self.try_send().await.unwrap_or_else(|error| panic!("no answer: {error:?}\nto {sent}"))
    }

    /// Sends it; fails if the connection breaks.
    pub async fn try_send(self) -> Result<Reply, reqwest::Error> {
        let answer = self.request.send().await?;
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let body = answer.bytes().await?.to_vec();
        Ok(Reply { sent: self.sent, status, headers, body })
    }
}

/// An answer, and the call that it answers.
#[derive(Clone, Debug)]
pub struct Reply {
    sent: String,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Reply {
    /// The status code.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The body's bytes.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|error| panic!("not UTF-8: {error}\n{self}"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON: {error}\n{self}"))
    }

    /// Asserts a status, and returns the body as JSON.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        self.expect_any(&[status])
    }

    /// Asserts one of some statuses, and returns the body as JSON.
    #[track_caller]
    pub fn expect_any(&self, statuses: &[u16]) -> Value {
        assert!(statuses.contains(&self.status), "{} where {statuses:?} was expected\n{self}", self.status);
        self.value()
    }

    /// Asserts a complete problem with this status, and returns it.
    #[track_caller]
    pub fn problem(&self, status: u16) -> Value {
        self.problem_any(&[status])
    }

    /// Asserts a complete problem with one of some statuses, and returns it.
    #[track_caller]
    pub fn problem_any(&self, statuses: &[u16]) -> Value {
        let problem = self.expect_any(statuses);
        let media = self.header("content-type").unwrap_or_default();
        assert_eq!(media.split(';').next(), Some("application/problem+json"), "the content type of a problem\n{self}");
        for member in ["type", "title", "detail", "code"] {
            let text = problem[member].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "the problem's {member:?} is missing or empty\n{self}");
        }
        assert_eq!(problem["status"], self.status, "the problem's status is not the answer's\n{self}");
        let code = problem["code"].as_str().unwrap_or_default();
        let snake = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(code.chars().all(snake), "the code {code:?} is not in snake_case\n{self}");
        assert!(!self.header("request-id").unwrap_or_default().is_empty(), "no request-id\n{self}");
        problem
    }

    /// Asserts a problem with this status and code.
    #[track_caller]
    pub fn problem_code(&self, status: u16, code: &str) -> Value {
        let problem = self.problem(status);
        assert_eq!(problem["code"], code, "the problem's code\n{self}");
        problem
    }

    /// Asserts a validation problem (422) that points at `pointer`.
    #[track_caller]
    pub fn invalid(&self, pointer: &str) -> Value {
        let problem = self.problem(422);
        let errors = problem["errors"].as_array().cloned().unwrap_or_default();
        let points = |error: &Value| error["pointer"].as_str().is_some_and(|at| at.trim_start_matches('#') == pointer);
        assert!(errors.iter().any(points), "no error points at {pointer:?}\n{self}");
        let explained = |error: &Value| error["message"].as_str().is_some_and(|message| !message.is_empty());
        assert!(errors.iter().all(explained), "an error has no message\n{self}");
        problem
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "── {}\n── answered {}", self.sent, self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {}", String::from_utf8_lossy(value.as_bytes()))?;
        }
        write!(f, "{}", abridged(&self.body))
    }
}

/// The answer to a request that was written by hand.
#[derive(Clone, Debug)]
pub struct RawReply {
    /// The status code.
    pub status: u16,
    /// The headers in their order.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl RawReply {
    /// The first header of that name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

/// Sends `request` byte for byte on its own connection. Returns `None` if that is closed without an
/// answer.
pub async fn raw(address: &str, request: impl AsRef<[u8]>) -> Option<RawReply> {
    upload(address, request, b"", 0).await
}

/// Sends `head`, then `chunk` that many times or until the server stops reading. Reads the answer
/// meanwhile.
pub async fn upload(address: &str, head: impl AsRef<[u8]>, chunk: &[u8], times: usize) -> Option<RawReply> {
    let stream =
        TcpStream::connect(address).await.unwrap_or_else(|error| panic!("no connection to {address}: {error}"));
    let (read, mut write) = split(stream);
    let mut reader = HttpReader::new(read);
    let sending = async {
        write.write_all(head.as_ref()).await?;
        for _ in 0..times {
            write.write_all(chunk).await?;
        }
        write.flush().await
    };
    let exchange = async {
        let reading = reader.message();
        tokio::pin!(reading);
        tokio::select! {
            // The answer came before everything was sent, as it does at a limit.
            answer = &mut reading => answer,
            // Either everything was sent or the other side has closed: the answer shows which.
            _ = sending => reading.await,
        }
    };
    let answer = tokio::time::timeout(HANGS_AFTER, exchange).await.expect("an answer or an end before the time is up");
    let answer = answer.ok().flatten()?;
    let status = answer.start_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.unwrap_or_else(|| panic!("not a status line: {:?}", answer.start_line));
    Some(RawReply { status, headers: answer.headers, body: answer.body })
}

/// As much of the body as fits on a screen.
fn abridged(body: &[u8]) -> String {
    const SHOWN: usize = 4000;
    let text = String::from_utf8_lossy(&body[..body.len().min(SHOWN)]).into_owned();
    if body.len() > SHOWN { format!("{text}… ({} bytes)", body.len()) } else { text }
}
