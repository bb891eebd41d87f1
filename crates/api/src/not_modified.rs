//! `304 Not Modified`: an answer that the caller has already is not sent again.
//!
//! An answer whose tag changes whenever its content does is marked by [`known_by_tag`]. The
//! middleware calls [`KnownTags::unless_known`]. Answers without the mark are sent
//! in full, even with a tag: the version of a queue does not count its tasks.

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap, IF_NONE_MATCH};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::encoding;

/// Marks an answer whose `ETag` names its content.
#[derive(Clone, Copy, Debug)]
struct KnownByTag;

/// Marks an answer whose `ETag` changes whenever its content does.
pub fn known_by_tag(mut response: Response) -> Response {
    response.extensions_mut().insert(KnownByTag);
    response
}

/// A tag of this content. It is weak, since the answer may be encoded on its way.
pub fn tag_of(content: &[u8]) -> HeaderValue {
    let digest = BASE64_URL_SAFE_NO_PAD.encode(&Sha256::digest(content)[..16]);
    HeaderValue::from_str(&format!("W/\"{digest}\"")).expect("invariant: a digest in base64 is visible ASCII")
}

/// The tags that a request to read something names; none for other requests.
pub struct KnownTags(Vec<String>);

impl KnownTags {
    /// The tags of a request.
    pub fn of(method: &Method, headers: &HeaderMap) -> Self {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Self(Vec::new());
        }
        let values = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
        // Our tags hold no commas.
        Self(values.flat_map(|value| value.split(',')).map(|tag| opaque(tag.trim()).to_owned()).collect())
    }

    /// The answer, or 304 without a body if the caller has it already.
    pub fn unless_known(&self, response: Response) -> Response {
        let is_marked = response.status() == StatusCode::OK && response.extensions().get::<KnownByTag>().is_some();
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(opaque);
        let is_known = tag.is_some_and(|tag| self.0.iter().any(|known| known == tag || known == "*"));
        if !(is_marked && is_known) {
            return response;
        }
        let (mut parts, _) = response.into_parts();
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(CONTENT_TYPE);
        parts.headers.remove(CONTENT_LENGTH);
        Response::from_parts(parts, Body::empty())
    }
}

/// What a tag names: without the mark of a weak one and the coding of the answer, which do not
/// matter here.
fn opaque(tag: &str) -> &str {
    let tag = tag.strip_prefix("W/").unwrap_or(tag);
    let content = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
    content.map_or(tag, encoding::without_coding)
}
