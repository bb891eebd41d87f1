//! The header `Idempotency-Key`, read by the routes that submit or trigger one task. Its rule is
//! that of the body's field.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use punctual_submission::idempotency_key::{RULE, is_key};

use crate::problem::{Code, Problem};

/// The header that carries the key.
pub const HEADER: &str = "idempotency-key";

/// The key in the header `Idempotency-Key`, if there is one.
pub struct HeaderKey(pub Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for HeaderKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        from_headers(&parts.headers).map(Self)
    }
}

/// The key in `headers`: a quoted string of RFC 9651, as the draft wants it, or bare, as many
/// clients send it.
fn from_headers(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().and_then(|text| match text.strip_prefix('"') {
        Some(rest) => unquoted(rest),
        None => Some(text.to_owned()),
    });
    match key {
        Some(key) if is_key(&key) && values.next().is_none() => Ok(Some(key)),
        _ => {
            Err(Problem::new(Code::InvalidIdempotencyKey, format!("the header Idempotency-Key {RULE}, quoted or bare")))
        }
    }
}

/// The text between the quotes; `rest` begins after the first quote.
fn unquoted(rest: &str) -> Option<String> {
    let inner = rest.strip_suffix('"')?;
    let mut key = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => key.push(letters.next().filter(|escaped| matches!(escaped, '"' | '\\'))?),
            '"' => return None,
            _ => key.push(letter),
        }
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(values: &[&[u8]]) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HEADER, HeaderValue::from_bytes(value).unwrap());
        }
        from_headers(&headers).map_err(|problem| problem.code())
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        assert_eq!(read(&[]), Ok(None));
        for same in [&b"order-17"[..], b"\"order-17\""] {
            assert_eq!(read(&[same]), Ok(Some("order-17".to_owned())));
        }
        assert_eq!(read(&[br#""a\"b\\c""#]), Ok(Some(r#"a"b\c"#.to_owned())));
    }

    #[test]
    fn a_malformed_key_is_refused() {
        let long = [b'k'; 256];
        assert!(read(&[&long[..255]]).is_ok());
        let emoji = "\u{1f600}".as_bytes();
        for bad in
            [&b""[..], b"\"\"", b"\"open", br#""a"b""#, br#""a\n""#, br#""a";p=1"#, b"a\tb", b"\" \"", &long, emoji]
        {
            assert_eq!(read(&[bad]), Err(Code::InvalidIdempotencyKey), "{bad:?}");
        }
        assert_eq!(read(&[b"a", b"b"]), Err(Code::InvalidIdempotencyKey));
    }
}
