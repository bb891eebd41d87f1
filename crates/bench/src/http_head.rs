//! The head of an HTTP/1.1 answer, as far as the bare connections of `overload` and `fairness` look
//! at it. Both read the bytes themselves, and parse the head here.

use anyhow::Context;

/// The parts of a head that the bench uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// The status.
    pub status: u16,
    /// The length of the body, if the head has it.
    pub length: Option<usize>,
    /// Whether it has a `Retry-After`.
    pub retry_after: bool,
    /// Whether the server closes the connection after it.
    pub closes: bool,
}

impl AnswerHead {
    /// Reads a head, with or without the empty line at its end.
    pub fn parse(head: &str) -> anyhow::Result<Self> {
        let mut lines = head.lines();
        let first = lines.next().unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.with_context(|| format!("no status in {first:?}"))?;
        let mut parsed = Self { status, length: None, retry_after: false, closes: false };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            if name.eq_ignore_ascii_case("content-length") {
                parsed.length = Some(value.trim().parse()?);
            } else if name.eq_ignore_ascii_case("retry-after") {
                parsed.retry_after = true;
            } else if name.eq_ignore_ascii_case("connection") {
                parsed.closes = value.trim().eq_ignore_ascii_case("close");
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_has_status_length_and_headers() {
        let busy =
            AnswerHead::parse("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\ncontent-length: 7\r\nx: y\r\n\r\n").unwrap();
        assert_eq!(busy, AnswerHead { status: 503, length: Some(7), retry_after: true, closes: false });
        let last = AnswerHead::parse("HTTP/1.1 200 OK\r\nconnection: close").unwrap();
        assert_eq!(last, AnswerHead { status: 200, length: None, retry_after: false, closes: true });
        assert!(AnswerHead::parse("hello\r\n\r\n").is_err());
        assert!(AnswerHead::parse("HTTP/1.1 200 OK\r\ncontent-length: many\r\n").is_err());
    }
}
