//! Reads `Retry-After`: seconds or a date. [`crate::answer`] calls it. Pure.
//!
//! Invariant: what it does not follow to the letter has a remark, which the run records.

use std::time::UNIX_EPOCH;

use punctual_core::task::limits;
use punctual_core::time::Timestamp;

/// What a `Retry-After` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// A delay, in milliseconds.
    Delay(u64),
    /// A delay beyond the longest that there is.
    TooLong,
    /// Nothing: it is neither a whole number of seconds nor an HTTP date.
    Unreadable,
}

impl RetryAfter {
    /// Reads the header's value at `now`. A date in the past asks for no delay.
    pub fn parse(value: &str, now: Timestamp) -> Self {
        let value = value.trim_matches([' ', '\t']);
        if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
            // Too many digits for a number still mean a long time.
            let seconds: u64 = value.parse().unwrap_or(u64::MAX);
            return Self::of(seconds.saturating_mul(1_000));
        }
        let date = httpdate::parse_http_date(value).ok().and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        match date.and_then(|date| i64::try_from(date.as_millis()).ok()).map(Timestamp::from_millis) {
            Some(at) => Self::of(u64::try_from(at.millis_since(now)).unwrap_or(0)),
            None => Self::Unreadable,
        }
    }

    fn of(millis: u64) -> Self {
        if millis > limits::RETRY_DELAY_MILLIS { Self::TooLong } else { Self::Delay(millis) }
    }

    /// The delay of the retry, in milliseconds; none if the policy decides.
    pub const fn delay_millis(self) -> Option<u64> {
        match self {
            Self::Delay(millis) => Some(millis),
            Self::TooLong => Some(limits::RETRY_DELAY_MILLIS),
            Self::Unreadable => None,
        }
    }

    /// What the run records if the header was not followed to the letter.
    pub const fn remark(self) -> Option<&'static str> {
        match self {
            Self::Delay(_) => None,
            Self::TooLong => Some("its Retry-After was cut to 30 days"),
            Self::Unreadable => Some("its Retry-After is neither seconds nor a date, and was ignored"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000;

    #[test]
    fn seconds_and_dates_ask_for_up_to_30_days() {
        let now = Timestamp::parse("1994-11-06T08:49:30Z").unwrap();
        for (value, asked) in [
            ("0", RetryAfter::Delay(0)),
            ("1", RetryAfter::Delay(1_000)),
            ("  120\t", RetryAfter::Delay(120_000)),
            ("259200", RetryAfter::Delay(3 * DAY)),
            ("2592000", RetryAfter::Delay(30 * DAY)),
            ("2592001", RetryAfter::TooLong),
            ("99999999999999999999999999", RetryAfter::TooLong),
            ("Sun, 06 Nov 1994 08:49:37 GMT", RetryAfter::Delay(7_000)),
            ("Sunday, 06-Nov-94 08:49:37 GMT", RetryAfter::Delay(7_000)),
            ("Sun Nov  6 08:49:37 1994", RetryAfter::Delay(7_000)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", RetryAfter::Delay(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", RetryAfter::TooLong),
        ] {
            assert_eq!(RetryAfter::parse(value, now), asked, "{value}");
        }
        assert_eq!(RetryAfter::TooLong.delay_millis(), Some(30 * DAY));
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
            assert_eq!(RetryAfter::parse(value, now), RetryAfter::Unreadable, "{value}");
        }
        assert_eq!(RetryAfter::Unreadable.delay_millis(), None);
    }
}
