//! Durations on the wire: whole or fractional seconds.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::{Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// A number of seconds. Whole ones are written without a fraction.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Default)]
pub struct Seconds(pub f64);

impl Seconds {
    /// This many milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 milliseconds, 285 thousand years")]
    pub fn from_millis(millis: u64) -> Self {
        Self(millis as f64 / 1_000.0)
    }

    /// The milliseconds, rounded up, if they are between `least` and `most`.
    ///
    /// Up, because nothing may happen before its time. A rounding error is not rounded up: in
    /// binary `0.057 * 1000.0` is a little above 57.
    pub fn to_millis_within(self, least: u64, most: u64) -> Option<u64> {
        let exact = self.0 * 1_000.0;
        if !exact.is_finite() || exact < 0.0 {
            return None;
        }
        let nearest = exact.round();
        let hair = 1e-6_f64.max(exact * f64::EPSILON * 2.0);
        let rounded = if (exact - nearest).abs() <= hair { nearest } else { exact.ceil() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "finite, not negative, saturating")]
        let millis = rounded as u64;
        // A positive duration is not zero, however short.
        let millis = if self.0 > 0.0 { millis.max(1) } else { millis };
        (least..=most).contains(&millis).then_some(millis)
    }
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.0.fract() == 0.0 && (0.0..EXACT).contains(&self.0) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and within 2^53")]
            serializer.serialize_u64(self.0 as u64)
        } else {
            serializer.serialize_f64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        #[expect(clippy::cast_precision_loss, reason = "a number of seconds beyond 2^53 is out of every range anyway")]
        impl Visitor<'_> for Number {
            type Value = Seconds;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds")
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Seconds, E> {
                Ok(Seconds(value as f64))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Seconds, E> {
                Ok(Seconds(value as f64))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Seconds, E> {
                Ok(Seconds(value))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

impl PartialSchema for Seconds {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Number)
            .minimum(Some(0))
            .description(Some("A number of seconds, whole or fractional."))
            .into()
    }
}

impl ToSchema for Seconds {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Seconds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_written_whole() {
        for (seconds, text) in [(0.0, "0"), (30.0, "30"), (0.25, "0.25"), (1.5, "1.5")] {
            assert_eq!(serde_json::to_string(&Seconds(seconds)).unwrap(), text);
        }
    }

    #[test]
    fn a_fraction_below_the_millisecond_is_rounded_up() {
        for (seconds, millis) in [
            (0.0, 0),
            (1.0, 1_000),
            (0.057, 57),
            (0.29, 290),
            (1.000_1, 1_001),
            (1e-9, 1),
            (3_155_760_000.0, 3_155_760_000_000),
        ] {
            assert_eq!(Seconds(seconds).to_millis_within(0, u64::MAX), Some(millis), "{seconds}");
        }
        for millis in 0..100_000 {
            assert_eq!(Seconds::from_millis(millis).to_millis_within(0, u64::MAX), Some(millis));
        }
    }

    #[test]
    fn seconds_out_of_range_are_none() {
        for seconds in [-1.0, -0.001, 11.0, 10.000_1, f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(Seconds(seconds).to_millis_within(0, 10_000), None, "{seconds}");
        }
    }
}
