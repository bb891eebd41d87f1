//! Problem documents for the refusals that hyper makes itself.
//!
//! Malformed requests never reach the router: hyper answers with a bare status and closes. The API
//! promises a problem document and a `request-id` in every answer, and hyper has no hook for its
//! own. So the socket of [`super::connection`] recognises such an answer on its way out, by the
//! headers that it lacks, and sends a complete one instead.

use axum::http::HeaderMap;

use crate::problem::{Code, Problem};
use crate::request_id::RequestId;
use crate::security_headers;

/// The bytes to send in place of `answer`, if hyper made it itself.
pub(super) fn documented(answer: &[u8], is_over_tls: bool) -> Option<Vec<u8>> {
    let rest = answer.strip_prefix(b"HTTP/1.1 4")?;
    let head = answer.strip_suffix(b"\r\n\r\n").filter(|_| answer.len() < 512)?;
    let head = std::str::from_utf8(head).ok()?;
    let has = |header: &str| head.lines().any(|line| line.starts_with(header));
    if !has("connection: close") || !has("content-length: 0") || has("request-id:") || has("content-type:") {
        return None;
    }
    let problem = match &rest[..2] {
        b"31" => Problem::new(Code::HeadersTooLarge, "the head of the request is too large, or has too many headers"),
        b"14" => Problem::new(Code::UriTooLong, "the path and query are too long"),
        b"00" => Problem::new(Code::MalformedRequest, "the bytes are not an HTTP request, or an ambiguous one"),
        _ => return None,
    };
    let kept = head.lines().filter(|line| !line.starts_with("content-length:"));
    let kept: String = kept.flat_map(|line| [line, "\r\n"]).collect();
    Some(document(&kept, &problem, is_over_tls))
}

/// A whole answer: the lines of `head`, the headers that all answers have, and the problem.
pub(super) fn document(head: &str, problem: &Problem, is_over_tls: bool) -> Vec<u8> {
    let body = serde_json::to_string(&problem.to_wire()).expect("invariant: a problem has only texts and numbers");
    let (id, length) = (RequestId::of(&HeaderMap::new()).to_string(), body.len().to_string());
    let mut document = head.to_owned();
    for (name, value) in security_headers::of_every_answer(is_over_tls) {
        document.extend([name.as_str(), ": ", value, "\r\n"]);
    }
    document.extend(["request-id: ", &id, "\r\ncontent-type: application/problem+json\r\n"]);
    document.extend(["content-length: ", &length, "\r\n\r\n", &body]);
    document.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str =
        "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\ndate: today\r\n\r\n";

    #[test]
    fn a_refusal_of_hyper_becomes_a_problem() {
        let answer = String::from_utf8(documented(BARE.as_bytes(), true).unwrap()).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ndate: today\r\n")
        );
        for header in ["request-id: ", "x-content-type-options: nosniff", "strict-transport-security: "] {
            assert!(head.contains(&format!("\r\n{header}")), "{header}");
        }
        assert!(head.ends_with(&format!("content-length: {}", body.len())));
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["code"], "headers_too_large");
    }

    #[test]
    fn answers_of_the_router_are_left_alone() {
        for answer in [
            BARE.replace("date: today", "request-id: x"),
            BARE.replace("date: today", "content-type: application/problem+json"),
            BARE.replace("connection: close\r\n", ""),
            BARE.replace("431", "204"),
            BARE.replace("431", "499"),
            format!("{BARE}and more"),
        ] {
            assert_eq!(documented(answer.as_bytes(), false), None, "{answer}");
        }
    }
}
