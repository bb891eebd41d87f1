//! Parses `Retry-After`: seconds or a date, cut to a day. [`crate::answer`] calls it. Pure.

use std::time::UNIX_EPOCH;

use punctual_core::state::MAX_RETRY_AFTER_MILLIS;
use punctual_core::time::Timestamp;

/// The delay a `Retry-After` header asks for, in milliseconds, at most a day. None unless it is a
/// whole number of seconds or an HTTP date. A date in the past asks for no delay.
pub fn parse(value: &str, now: Timestamp) -> Option<u64> {
    let value = value.trim_matches([' ', '\t']);
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        // Too many digits for a number still mean a long time.
        let seconds: u64 = value.parse().unwrap_or(u64::MAX);
        return Some(seconds.saturating_mul(1_000).min(MAX_RETRY_AFTER_MILLIS));
    }
    let date = httpdate::parse_http_date(value).ok()?.duration_since(UNIX_EPOCH).ok()?;
    let at = Timestamp::from_millis(i64::try_from(date.as_millis()).ok()?);
    Some(u64::try_from(at.millis_since(now)).unwrap_or(0).min(MAX_RETRY_AFTER_MILLIS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    #[test]
    fn seconds_and_dates_are_cut_to_a_day() {
        let now = Timestamp::parse("1994-11-06T08:49:30Z").unwrap();
        for (value, millis) in [
            ("0", Some(0)),
            ("1", Some(1_000)),
            ("  120\t", Some(120_000)),
            ("86400", Some(DAY)),
            ("86401", Some(DAY)),
            ("1000000000000", Some(DAY)),
            ("99999999999999999999999999", Some(DAY)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(7_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", Some(7_000)),
            ("Sun Nov  6 08:49:37 1994", Some(7_000)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(DAY)),
        ] {
            assert_eq!(parse(value, now), millis, "{value}");
        }
    }

    #[test]
    fn garbage_asks_for_nothing() {
        let now = Timestamp::parse("2026-05-22T18:00:00Z").unwrap();
        for value in [
            "",
            "-",
            "-5",
            "--1",
            "+5",
            "1.5",
            "5s",
            "0x10",
            "1e3",
            "soon",
            "5, 6",
            "\u{661}",
            "2026-05-22T18:00:00Z",
            "Sun, 99 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(parse(value, now), None, "{value}");
        }
    }
}
