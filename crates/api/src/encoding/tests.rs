use std::io::Read;

use axum::http::header::HeaderName;
use axum::response::IntoResponse;

use super::*;

fn headers(name: &HeaderName, values: &[&str]) -> HeaderMap {
    values.iter().map(|value| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
}

fn wanted(values: &[&str]) -> Option<Coding> {
    Coding::wanted(&headers(&ACCEPT_ENCODING, values))
}

#[test]
fn the_caller_chooses_the_coding() {
    use Coding::{Gzip, Zstd};
    for (values, expected) in [
        (&[][..], None),
        (&[""], None),
        (&["gzip"], Some(Gzip)),
        (&["X-GZIP"], Some(Gzip)),
        (&["gzip, deflate, br"], Some(Gzip)),
        (&["gzip, deflate, br, zstd"], Some(Zstd)),
        (&["gzip", "zstd"], Some(Zstd)),
        (&["gzip;q=1.0, zstd;q=0.5"], Some(Gzip)),
        (&["gzip ; Q=0.2"], Some(Gzip)),
        (&["gzip;q=0"], None),
        (&["gzip;q=0.000, zstd"], Some(Zstd)),
        (&["gzip;q=x, zstd;q=2"], None),
        (&["gzip;q=NaN"], None),
        (&["identity, gzip;q=0.5"], None),
        (&["identity;q=0.5, gzip"], Some(Gzip)),
        (&["identity;q=0, gzip;q=0.1"], Some(Gzip)),
        (&["*"], Some(Zstd)),
        (&["*;q=0.1, zstd;q=0"], Some(Gzip)),
        (&["*;q=0"], None),
        (&["br, deflate"], None),
    ] {
        assert_eq!(wanted(values), expected, "{values:?}");
    }
}

fn text(bytes: usize) -> String {
    let items: Vec<String> = (0..=bytes / 9).map(|number| format!("{{\"n\": {number}}},")).collect();
    items.concat()[..bytes].to_owned()
}

fn answer(media: &'static str, body: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, media), (ETAG, "\"7\"")], body.into()).into_response()
}

async fn finished(accepted: &str, response: Response) -> Response {
    let encoder = AnswerEncoder::of(&headers(&ACCEPT_ENCODING, &[accepted]), &CpuPool::with_slots(1));
    finish(encoder.as_ref(), response).await.unwrap()
}

fn header(response: &Response, name: HeaderName) -> Option<&str> {
    response.headers().get(name).map(|value| value.to_str().unwrap())
}

async fn body(response: Response) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

#[tokio::test]
async fn an_encoded_answer_is_the_same_decoded() {
    for size in [1_024, POOLED_BYTES, 1_000_000] {
        let plain = text(size);
        for coding in ["gzip", "zstd"] {
            let answer = finished(coding, answer("application/json", plain.clone())).await;
            assert_eq!(header(&answer, CONTENT_ENCODING), Some(coding));
            assert_eq!(header(&answer, VARY), Some("accept-encoding"));
            assert_eq!(header(&answer, ETAG), Some(format!("\"7-{coding}\"").as_str()));
            let (encoded, mut decoded) = (body(answer).await, String::new());
            assert!(encoded.len() < size / 2, "{coding} of {size}: {}", encoded.len());
            match coding {
                "gzip" => flate2::read::GzDecoder::new(&encoded[..]).read_to_string(&mut decoded).unwrap(),
                _ => zstd::Decoder::new(&encoded[..]).unwrap().read_to_string(&mut decoded).unwrap(),
            };
            assert_eq!(decoded, plain);
        }
    }
}

#[tokio::test]
async fn what_is_not_worth_it_stays_as_it_is() {
    let chunks = futures_of(text(4_096));
    let noise: Vec<u8> = (0..4_096).map(|_| rand::random()).collect();
    for (name, answer) in [
        ("small", answer("application/json", text(1_023))),
        ("an image", answer("image/png", text(4_096))),
        ("events", answer("text/event-stream", text(4_096))),
        ("a stream", answer("application/json", chunks)),
        ("noise", answer("text/plain", noise)),
    ] {
        let answer = finished("gzip", answer).await;
        assert_eq!(header(&answer, CONTENT_ENCODING), None, "{name}");
        assert_eq!(header(&answer, ETAG), Some("\"7\""), "{name}");
        assert!(body(answer).await.len() >= 1_023, "{name}");
    }
}

/// A body of unknown length.
fn futures_of(text: String) -> Body {
    struct Unknown(Option<Bytes>);
    impl HttpBody for Unknown {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, io::Error>>> {
            std::task::Poll::Ready(self.0.take().map(|bytes| Ok(hyper::body::Frame::data(bytes))))
        }
    }
    Body::new(Unknown(Some(text.into())))
}

#[tokio::test]
async fn an_answer_says_that_it_depends_on_the_coding() {
    for (name, expected, answer) in [
        ("large", Some("accept-encoding"), answer("application/json", text(1_024))),
        ("small", None, answer("application/json", text(1_023))),
        ("known", Some("accept-encoding"), (StatusCode::NOT_MODIFIED, Body::empty()).into_response()),
    ] {
        assert_eq!(header(&finished("identity", answer).await, VARY), expected, "{name}");
    }
}

/// The route of leases has encoded its answer, or has found that it is not worth it.
#[tokio::test]
async fn an_answer_is_considered_once() {
    let encoder = AnswerEncoder::of(&headers(&ACCEPT_ENCODING, &["gzip"]), &CpuPool::with_slots(1)).unwrap();
    let noise: Vec<u8> = (0..4_096).map(|_| rand::random()).collect();
    for plain in [text(4_096).into_bytes(), noise] {
        let once = encoder.encode(answer("text/plain", plain)).await.unwrap();
        let (parts, first) = once.into_parts();
        let first = first.collect().await.unwrap().to_bytes();
        let again = finish(Some(&encoder), Response::from_parts(parts, Body::from(first.clone()))).await.unwrap();
        assert_eq!(header(&again, VARY), Some("accept-encoding"));
        assert_eq!(body(again).await, first);
    }
}

#[test]
fn a_tag_is_known_with_and_without_its_coding() {
    for (tag, stem) in [("7", "7"), ("7-gzip", "7"), ("7-zstd", "7"), ("7-br", "7-br"), ("-gzip", ""), ("gzip", "gzip")]
    {
        assert_eq!(without_coding(tag), stem);
    }
}
