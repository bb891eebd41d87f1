//! The id of a request: the caller's, or a new one. Every answer carries it, and every log line of
//! the request has it. Called by [`crate::middleware`].

use std::fmt;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use uuid::Uuid;

/// The header of requests and answers.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The longest id that is taken from a caller.
const LENGTH_MAX: usize = 128;

/// The id of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's id if it is acceptable, otherwise a new one.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut given = headers.get_all(REQUEST_ID).iter();
        match (given.next(), given.next()) {
            (Some(id), None) if acceptable(id.as_bytes()) => Self(id.clone()),
            _ => Self::fresh(),
        }
    }

    fn fresh() -> Self {
        let mut text = Uuid::encode_buffer();
        let text = Uuid::now_v7().hyphenated().encode_lower(&mut text);
        Self(HeaderValue::from_str(text).expect("invariant: a UUID is visible ASCII"))
    }

    /// The value of the header.
    pub fn header(&self) -> HeaderValue {
        self.0.clone()
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

fn acceptable(id: &[u8]) -> bool {
    (1..=LENGTH_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&[u8]]) -> RequestId {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(REQUEST_ID, HeaderValue::from_bytes(value).unwrap());
        }
        RequestId::of(&headers)
    }

    #[test]
    fn an_acceptable_id_is_kept() {
        assert_eq!(of(&[b"order-7/try:2"]).to_string(), "order-7/try:2");
        assert_eq!(of(&[&[b'x'; 128]]).to_string().len(), 128);
    }

    #[test]
    fn any_other_id_is_replaced() {
        let odd: [&[&[u8]]; 6] = [&[], &[b""], &[b"two words"], &["é".as_bytes()], &[&[b'x'; 129]], &[b"a", b"b"]];
        for values in odd {
            let id = of(values).to_string();
            assert_eq!(Uuid::parse_str(&id).unwrap().get_version_num(), 7, "{id}");
        }
    }
}
