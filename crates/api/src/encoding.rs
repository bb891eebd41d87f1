//! Compressed answers: `Accept-Encoding`, `Content-Encoding` and `Vary`.
//!
//! The middleware calls [`finish`] for every answer. The route of leases encodes its own, since
//! that one must not be read again once its tasks are handed over. An answer is encoded whole, in a
//! pool, before its memory is counted ([`crate::unread`]): a slow reader holds the encoded bytes
//! and nothing else, and no more encoders work at once than the pool has slots. Streams, small
//! answers, and answers to callers that ask for nothing stay as they are.

use std::io::{self, Write};
use std::thread::yield_now;

use axum::body::{Body, HttpBody};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, VARY};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::BodyExt;

use crate::cpu_pool::CpuPool;
use crate::problem::{Code, Problem};

/// Smaller answers fit into a packet or so, and stay as they are.
const ENCODED_BYTES_MIN: u64 = 1_024;
/// Larger ones are encoded in the pool: this many take a fraction of a millisecond.
const POOLED_BYTES: usize = 8 * 1_024;
/// An encoder yields the processor after this many bytes (see [`crate::yielding`]).
const YIELD_BYTES: usize = 32 * 1_024;
/// Fast, with most of what the slow levels save on JSON.
const GZIP_LEVEL: u32 = 3;
const ZSTD_LEVEL: i32 = 3;

/// How an answer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// `gzip`.
    Gzip,
    /// `zstd`.
    Zstd,
}

impl Coding {
    const ALL: [Coding; 2] = [Coding::Gzip, Coding::Zstd];

    const fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
        }
    }

    /// The coding that a caller prefers; none if it wants the answer as it is, or does not ask.
    /// Among equals `zstd` is taken, which is faster and smaller.
    fn wanted(headers: &HeaderMap) -> Option<Self> {
        let (mut gzip, mut zstd, mut identity, mut any) = (None, None, None, None);
        let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        for element in values.flat_map(|value| value.split(',')) {
            let (name, parameters) = element.split_once(';').unwrap_or((element, ""));
            let weight = match name.trim().to_ascii_lowercase().as_str() {
                "gzip" | "x-gzip" => &mut gzip,
                "zstd" => &mut zstd,
                "identity" => &mut identity,
                "*" => &mut any,
                _ => continue,
            };
            *weight = Some(weight_of(parameters));
        }
        let weight = |own: Option<f32>| own.or(any).unwrap_or(0.0);
        let (gzip, zstd) = (weight(gzip), weight(zstd));
        let (coding, weight) = if zstd >= gzip { (Coding::Zstd, zstd) } else { (Coding::Gzip, gzip) };
        (weight > 0.0 && weight >= identity.unwrap_or(0.0)).then_some(coding)
    }

    fn encode(self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let room = Vec::with_capacity(bytes.len() / 4);
        match self {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(room, Compression::new(GZIP_LEVEL));
                write_yielding(&mut encoder, bytes)?;
                encoder.finish()
            }
            Coding::Zstd => {
                let mut encoder = zstd::Encoder::new(room, ZSTD_LEVEL)?;
                // Its tables are then no larger than the answer needs.
                encoder.set_pledged_src_size(Some(bytes.len() as u64))?;
                write_yielding(&mut encoder, bytes)?;
                encoder.finish()
            }
        }
    }
}

/// The weight in the parameters of an element; an unreadable one refuses the element.
pub fn weight_of(parameters: &str) -> f32 {
    let given = parameters.split(';').find_map(|parameter| {
        let (name, weight) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| weight.trim().parse().unwrap_or(0.0))
    });
    given.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(if given.is_some() { 0.0 } else { 1.0 })
}

fn write_yielding(encoder: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    for chunk in bytes.chunks(YIELD_BYTES) {
        encoder.write_all(chunk)?;
        yield_now();
    }
    Ok(())
}

/// Encodes the answer to one request. Among the request's extensions if its caller asks for it.
#[derive(Clone)]
pub struct AnswerEncoder {
    coding: Coding,
    pool: CpuPool,
}

/// Marks an answer that was looked at: it is encoded, or stays as it is.
#[derive(Clone, Copy)]
struct Considered;

impl AnswerEncoder {
    /// The encoder for a request with these headers; none if its caller does not ask.
    pub fn of(headers: &HeaderMap, pool: &CpuPool) -> Option<Self> {
        Coding::wanted(headers).map(|coding| Self { coding, pool: pool.clone() })
    }

    /// The answer, encoded if that is worthwhile.
    pub async fn encode(&self, response: Response) -> Result<Response, Problem> {
        if response.extensions().get::<Considered>().is_some() || !is_worthwhile(&response) {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        let whole = body.collect().await.map_err(|_| cannot_encode())?.to_bytes();
        parts.extensions.insert(Considered);
        let (encoded, whole) = self.encoded(whole).await?;
        if encoded.len() >= whole.len() {
            return Ok(Response::from_parts(parts, Body::from(whole)));
        }
        self.describe(&mut parts.headers);
        Ok(Response::from_parts(parts, Body::from(encoded)))
    }

    async fn encoded(&self, whole: Bytes) -> Result<(Vec<u8>, Bytes), Problem> {
        let (coding, bytes) = (self.coding, whole.len());
        let work = move || (coding.encode(&whole), whole);
        let (encoded, whole) = if bytes < POOLED_BYTES { work() } else { self.pool.run_pooled(work).await? };
        Ok((encoded.map_err(|_| cannot_encode())?, whole))
    }

    /// Sets the headers of an encoded answer. A strong tag names bytes, so each coding has its own
    /// (see [`without_coding`]).
    fn describe(&self, headers: &mut HeaderMap) {
        headers.remove(CONTENT_LENGTH);
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(self.coding.name()));
        let strong = headers.get(ETAG).and_then(|tag| tag.to_str().ok()?.strip_prefix('"')?.strip_suffix('"'));
        let own = strong.and_then(|tag| HeaderValue::from_str(&format!("\"{tag}-{}\"", self.coding.name())).ok());
        if let Some(own) = own {
            headers.insert(ETAG, own);
        }
    }
}

/// The content of a tag, without what an encoded answer has added.
pub fn without_coding(tag: &str) -> &str {
    let stem = |coding: Coding| tag.strip_suffix(coding.name())?.strip_suffix('-');
    Coding::ALL.into_iter().find_map(stem).unwrap_or(tag)
}

/// The answer as it is sent: encoded if its caller asked, and said to depend on that if it does.
/// The answer to `HEAD` still has its body here, so it gets the same headers.
pub async fn finish(encoder: Option<&AnswerEncoder>, response: Response) -> Result<Response, Problem> {
    let is_encoded = response.headers().contains_key(CONTENT_ENCODING);
    let is_known = response.status() == StatusCode::NOT_MODIFIED;
    if !(is_encoded || is_known || is_worthwhile(&response)) {
        return Ok(response);
    }
    let mut response = match encoder {
        Some(encoder) => encoder.encode(response).await?,
        None => response,
    };
    // One line, since some readers look at one only.
    let own = response.headers().get(VARY).and_then(|own| own.to_str().ok());
    let vary = own.and_then(|own| HeaderValue::try_from(format!("{own}, accept-encoding")).ok());
    let vary = vary.unwrap_or(HeaderValue::from_static("accept-encoding"));
    response.headers_mut().insert(VARY, vary);
    Ok(response)
}

/// Whether an answer is whole, text and not small.
fn is_worthwhile(response: &Response) -> bool {
    let media = response.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    let is_text = media.starts_with("text/") || media.ends_with("json") || media == "application/openmetrics-text";
    response.body().size_hint().exact().is_some_and(|size| size >= ENCODED_BYTES_MIN)
        && is_text
        && media != "text/event-stream"
        && !response.headers().contains_key(CONTENT_ENCODING)
}

fn cannot_encode() -> Problem {
    Problem::new(Code::Internal, "the answer could not be compressed")
}

#[cfg(test)]
mod tests;
