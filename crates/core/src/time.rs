//! Instants as whole milliseconds since 1970 in UTC, durations in milliseconds, and the one text
//! form of an instant: RFC 3339 with milliseconds and `Z`.
//!
//! Input is strict RFC 3339: `T` (or `t`) between date and time, seconds present, an offset present
//! (`Z`, `z` or `±hh:mm`), any number of fraction digits, no leap second, years 0001 to 9999.
//! Digits below the millisecond are rounded up: a task is never due before the instant its
//! submitter wrote. Pure.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::civil::{self, Date};

/// An instant in UTC, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 9999-12-31T23:59:59.999Z, the last instant RFC 3339 can write.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// 0001-01-01T00:00:00.000Z, the first instant we accept.
    const MIN: Self = Self(-62_135_596_800_000);

    /// From milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// This instant moved by `millis`, never past [`Timestamp::MAX`].
    #[must_use]
    pub fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis).min(Self::MAX.0))
    }

    /// This instant moved forward by `millis`, never past [`Timestamp::MAX`].
    #[must_use]
    pub fn plus_unsigned_millis(self, millis: u64) -> Self {
        self.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX))
    }

    /// This instant moved forward by `duration`, never past [`Timestamp::MAX`].
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        self.plus_millis(signed_millis(duration))
    }

    /// This instant moved back by `duration`.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        self.plus_millis(-signed_millis(duration))
    }

    /// Milliseconds from `earlier` to this instant, negative if it is later.
    pub const fn millis_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// How long from `now` until this instant; zero when it has passed.
    pub fn duration_from(self, now: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(now.0)).unwrap_or(0))
    }

    /// Reads strict RFC 3339 (see the module's rule).
    pub fn parse(text: &str) -> Result<Self, TimeFault> {
        let text = text.as_bytes();
        check_shape(text)?;
        // By hand: jiff's instants end a day before those of RFC 3339, and this is on the hot path.
        let number = |range: std::ops::Range<usize>| text[range].iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
        let (year, month, day) = (number(0..4), number(5..7), number(8..10));
        let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
        let month = u32::try_from(month).expect("invariant: two digits");
        if !(1..=12).contains(&month)
            || !(1..=i64::from(civil::days_in(year, month))).contains(&day)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return Err(TimeFault::NoSuchTime);
        }
        let digits =
            text[19..].strip_prefix(b".").unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
        let fraction = number(20..20 + digits.min(3)) * [0, 100, 10, 1][digits.min(3)];
        let rounded_up = digits > 3 && text[23..20 + digits].iter().any(|digit| *digit != b'0');
        let zone = &text[19 + if digits > 0 { digits + 1 } else { 0 }..];
        let offset = match zone {
            [sign, h1, h2, _, m1, m2] => {
                let minutes = i64::from(h1 - b'0') * 600
                    + i64::from(h2 - b'0') * 60
                    + i64::from(m1 - b'0') * 10
                    + i64::from(m2 - b'0');
                if *sign == b'-' { -minutes } else { minutes }
            }
            _ => 0,
        };
        let minutes = ((civil::first_of(year, month) + day - 1) * 24 + hour) * 60 + minute - offset;
        let millis = (minutes * 60 + second) * 1_000 + fraction + i64::from(rounded_up);
        if (Self::MIN.0..=Self::MAX.0).contains(&millis) { Ok(Self(millis)) } else { Err(TimeFault::OutOfRange) }
    }
}

/// A duration in whole milliseconds, or the largest number if it is longer.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration in whole milliseconds, or the largest number if it is longer; signed, as instants
/// are.
pub fn signed_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Why a text is not an instant we accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeFault {
    /// Not of the RFC 3339 form.
    #[error("must be an RFC 3339 time with seconds and an offset, such as 2026-05-22T18:00:00Z")]
    Shape,
    /// Of the right form, but there is no such time (month 13, 24:00, a leap second).
    #[error("is not a time that exists (note that leap seconds and 24:00 are not accepted)")]
    NoSuchTime,
    /// Outside the years 0001 to 9999.
    #[error("must lie between the years 0001 and 9999")]
    OutOfRange,
}

/// An instant without fraction and offset, where 0 is any digit.
const SHAPE: &[u8] = b"0000-00-00T00:00:00";

/// Checks `yyyy-mm-ddThh:mm:ss[.f+](Z|±hh:mm)`. Of the values it checks only the offset, leap
/// seconds and the year zero; the parser checks the others.
fn check_shape(text: &[u8]) -> Result<(), TimeFault> {
    let fits = |(byte, shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        b'T' => byte.eq_ignore_ascii_case(&b'T'),
        _ => byte == shape,
    };
    if text.len() < SHAPE.len() || !text.iter().zip(SHAPE).all(fits) {
        return Err(TimeFault::Shape);
    }
    let mut rest = &text[SHAPE.len()..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let count = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
        if count == 0 {
            return Err(TimeFault::Shape);
        }
        rest = &fraction[count..];
    }
    match rest {
        b"Z" | b"z" => {}
        [b'+' | b'-', h1, h2, b':', m1, m2] if [h1, h2, m1, m2].iter().all(|b| b.is_ascii_digit()) => {
            let (hours, minutes) = ((h1 - b'0') * 10 + (h2 - b'0'), (m1 - b'0') * 10 + (m2 - b'0'));
            if hours > 23 || minutes > 59 {
                return Err(TimeFault::NoSuchTime);
            }
        }
        _ => return Err(TimeFault::Shape),
    }
    if &text[17..19] == b"60" {
        return Err(TimeFault::NoSuchTime);
    }
    if &text[0..4] == b"0000" { Err(TimeFault::OutOfRange) } else { Ok(()) }
}

/// An instant as text. It has its own buffer: a task carries up to eight instants on the hot path,
/// where the formatter of the standard library takes several times longer.
struct TimestampText([u8; 24]);

impl TimestampText {
    fn of(at: Timestamp) -> Self {
        // An instant outside the accepted years is written as the nearest inside.
        let at = at.clamp(Timestamp::MIN, Timestamp::MAX);
        let (days, ms) = (at.0.div_euclid(86_400_000), at.0.rem_euclid(86_400_000));
        let Date { year, month, day } = civil::date_of(days);
        let (hour, minute, second, milli) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60, ms % 1_000);
        let mut text = *b"0000-00-00T00:00:00.000Z";
        for (number, end) in
            [(year, 4), (month.into(), 7), (day.into(), 10), (hour, 13), (minute, 16), (second, 19), (milli, 23)]
        {
            digits(&mut text[..end], number);
        }
        Self(text)
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("invariant: digits and separators are ASCII")
    }
}

/// Writes `number` over the zeros that `text` ends with.
fn digits(text: &mut [u8], mut number: i64) {
    for place in text.iter_mut().rev().take_while(|place| place.is_ascii_digit()) {
        *place = b'0' + u8::try_from(number % 10).expect("invariant: the parts of a date are not negative");
        number /= 10;
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TimestampText::of(*self).as_str())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(TimestampText::of(*self).as_str())
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
            Self::parse(&text).map_err(de::Error::custom)
        } else {
            i64::deserialize(deserializer).map(Self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate() {
        let (second, forever) = (Duration::from_secs(1), Duration::MAX);
        assert_eq!((millis(second), millis(forever)), (1_000, u64::MAX));
        assert_eq!((signed_millis(second), signed_millis(forever)), (1_000, i64::MAX));
        assert_eq!(Timestamp(5).plus(second), Timestamp(1_005));
        assert_eq!(Timestamp(5).minus(second), Timestamp(-995));
        assert_eq!(Timestamp(5).plus(forever), Timestamp::MAX);
        assert!(Timestamp(5).minus(forever) < Timestamp::MIN);
    }

    #[test]
    fn a_written_time_reads_back_as_itself() {
        for millis in [0, 1, -1, 951_782_400_000, 1_779_472_800_123, Timestamp::MAX.0, -62_135_596_800_000] {
            let at = Timestamp(millis);
            assert_eq!(Timestamp::parse(&at.to_string()), Ok(at), "{at}");
        }
    }

    #[test]
    fn times_are_read_as_jiff_reads_them() {
        for seconds in (-62_135_596_800..253_402_207_200_i64).step_by(8_640_013) {
            let other = jiff::Timestamp::from_second(seconds).unwrap();
            assert_eq!(Timestamp::parse(&other.to_string()), Ok(Timestamp(seconds * 1_000)), "{other}");
        }
        for (text, millis) in [
            ("1970-01-01T00:00:00.5Z", 500),
            ("1970-01-01T00:00:00.05Z", 50),
            ("1970-01-01T00:00:00.005Z", 5),
            ("1970-01-01T00:00:00.0050Z", 5),
            ("1970-01-01T00:00:00.999000001Z", 1_000),
            ("1970-01-01T01:30:00.25+01:30", 250),
            ("1969-12-31T22:29:59.25-01:30", -750),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
        ] {
            assert_eq!(Timestamp::parse(text), Ok(Timestamp(millis)), "{text}");
        }
    }

    #[test]
    fn any_offset_is_accepted_and_becomes_utc() {
        let utc = Timestamp::parse("2026-05-22T18:00:00Z").unwrap();
        for same in ["2026-05-22T20:00:00+02:00", "2026-05-22t18:00:00z", "2026-05-22T18:00:00.000000000-00:00"] {
            assert_eq!(Timestamp::parse(same), Ok(utc), "{same}");
        }
        assert_eq!(utc.to_string(), "2026-05-22T18:00:00.000Z");
    }

    #[test]
    fn a_fraction_below_the_millisecond_is_never_early() {
        assert_eq!(Timestamp::parse("1970-01-01T00:00:00.0000001Z"), Ok(Timestamp(1)));
        assert_eq!(Timestamp::parse("1969-12-31T23:59:59.9990001Z"), Ok(Timestamp(0)));
    }

    #[test]
    fn a_fraction_has_any_number_of_digits() {
        for (digits, millis) in
            [("1234567890123", 124), (&"0".repeat(300), 0), (&format!("5{}1", "0".repeat(300)), 501)]
        {
            for offset in ["Z", "+00:00"] {
                let text = format!("1970-01-01T00:00:00.{digits}{offset}");
                assert_eq!(Timestamp::parse(&text), Ok(Timestamp(millis)), "{text}");
            }
        }
    }

    #[test]
    fn only_strict_rfc_3339_is_accepted() {
        use TimeFault::{NoSuchTime, OutOfRange, Shape};
        for (text, fault) in [
            ("", Shape),
            ("2026-05-22", Shape),
            ("2026-05-22T18:00:00", Shape),
            ("2026-05-22 18:00:00Z", Shape),
            ("2026-05-22T18:00Z", Shape),
            ("2026-05-22T18:00:00.Z", Shape),
            ("2026-05-22T18:00:00+0200", Shape),
            ("2026-05-22T18:00:00Z[UTC]", Shape),
            ("12026-05-22T18:00:00Z", Shape),
            ("+002026-05-22T18:00:00Z", Shape),
            ("2026-13-22T18:00:00Z", NoSuchTime),
            ("2026-02-30T18:00:00Z", NoSuchTime),
            ("2026-05-22T24:00:00Z", NoSuchTime),
            ("2026-06-30T23:59:60Z", NoSuchTime),
            ("2026-05-22T18:00:00+25:00", NoSuchTime),
            ("2026-00-22T18:00:00Z", NoSuchTime),
            ("2026-05-00T18:00:00Z", NoSuchTime),
            ("2025-02-29T18:00:00Z", NoSuchTime),
            ("1900-02-29T18:00:00Z", NoSuchTime),
            ("2026-05-22T18:60:00Z", NoSuchTime),
            ("2026-05-22T18:00:61Z", NoSuchTime),
            ("0000-01-01T00:00:00Z", OutOfRange),
            ("0001-01-01T00:00:00+00:01", OutOfRange),
            ("9999-12-31T23:59:59-00:01", OutOfRange),
            ("9999-12-31T23:59:59.9999Z", OutOfRange),
        ] {
            assert_eq!(Timestamp::parse(text), Err(fault), "{text}");
        }
    }
}
