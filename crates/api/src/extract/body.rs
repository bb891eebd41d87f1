//! Reads bodies of a known content type up to a limit, with one copy in memory.

use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use crate::problem::{Code, Problem};

/// The content types of bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MediaType {
    /// One JSON document.
    Json,
    /// One JSON document per line.
    Ndjson,
}

/// The content type of the body, if it is supported.
pub fn media_type(headers: &HeaderMap) -> Result<MediaType, Problem> {
    let refuse = |detail: String| Problem::new(Code::UnsupportedMediaType, detail);
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return Err(refuse("no content encoding is supported; send the body as it is".to_owned()));
    }
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Err(refuse("the header content-type: application/json is missing".to_owned()));
    };
    let value = value.to_str().unwrap_or_default();
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let charset = parts.find_map(|part| part.split_once('=').filter(|(name, _)| name.eq_ignore_ascii_case("charset")));
    if let Some((_, charset)) = charset
        && !charset.trim_matches('"').eq_ignore_ascii_case("utf-8")
    {
        return Err(refuse("the only charset is utf-8".to_owned()));
    }
    match essence.as_str() {
        "application/x-ndjson" | "application/ndjson" => Ok(MediaType::Ndjson),
        "application/json" => Ok(MediaType::Json),
        suffixed if suffixed.starts_with("application/") && suffixed.ends_with("+json") => Ok(MediaType::Json),
        _ => Err(refuse("the content type must be application/json".to_owned())),
    }
}

/// Refuses every content type but JSON.
pub fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    match media_type(headers)? {
        MediaType::Json => Ok(()),
        MediaType::Ndjson => {
            Err(Problem::new(Code::UnsupportedMediaType, "only a batch is read as application/x-ndjson"))
        }
    }
}

/// Reads the body, up to `limit` bytes. A body that announces more is not read at all.
pub async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| length > limit as u64) {
        return Err(too_large(limit));
    }
    let mut body = request.into_body();
    // Most bodies arrive in one piece, which needs no copy.
    let Some(first) = next_piece(&mut body).await? else { return Ok(Bytes::new()) };
    if first.len() > limit {
        return Err(too_large(limit));
    }
    let Some(second) = next_piece(&mut body).await? else { return Ok(first) };
    let mut whole = BytesMut::with_capacity(capacity_for(announced, first.len() + second.len()));
    whole.extend_from_slice(&first);
    let mut piece = second;
    loop {
        if whole.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        whole.extend_from_slice(&piece);
        match next_piece(&mut body).await? {
            Some(next) => piece = next,
            None => return Ok(whole.freeze()),
        }
    }
}

/// The capacity for a body: what it announced, but at most a mebibyte before it has arrived.
fn capacity_for(announced: Option<u64>, arrived: usize) -> usize {
    announced.and_then(|length| usize::try_from(length).ok()).unwrap_or(0).min(1 << 20).max(arrived)
}

async fn next_piece(body: &mut Body) -> Result<Option<Bytes>, Problem> {
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| Problem::new(Code::InvalidBody, "the body ended early or is not framed as HTTP requires"))?;
        if let Ok(data) = frame.into_data()
            && !data.is_empty()
        {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn too_large(limit: usize) -> Problem {
    Problem::new(Code::TooLarge, format!("the body may have at most {limit} bytes"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn typed(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))])
    }

    #[test]
    fn json_is_known_by_its_content_type() {
        for good in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/merge-patch+json",
            "application/json;charset=\"utf-8\"",
        ] {
            assert_eq!(media_type(&typed(good)).ok(), Some(MediaType::Json), "{good}");
        }
        assert_eq!(media_type(&typed("application/x-ndjson")).ok(), Some(MediaType::Ndjson));
        for bad in ["", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "json"] {
            assert_eq!(media_type(&typed(bad)).unwrap_err().code(), Code::UnsupportedMediaType, "{bad}");
        }
        assert!(media_type(&HeaderMap::new()).is_err());
        assert!(require_json(&typed("application/x-ndjson")).is_err());
    }

    #[test]
    fn compressed_bodies_are_refused() {
        let mut headers = typed("application/json");
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(media_type(&headers).unwrap_err().code(), Code::UnsupportedMediaType);
    }

    #[tokio::test]
    async fn a_body_is_read_up_to_its_limit() {
        let sent = |text: &'static str| Request::new(Body::from(text));
        assert_eq!(read(sent("12345"), 5).await.unwrap(), "12345");
        assert_eq!(read(sent(""), 5).await.unwrap(), "");
        assert_eq!(read(sent("123456"), 5).await.unwrap_err().code(), Code::TooLarge);
        let announced = Request::builder().header(CONTENT_LENGTH, "6").body(Body::empty()).unwrap();
        assert_eq!(read(announced, 5).await.unwrap_err().code(), Code::TooLarge);
    }
}
