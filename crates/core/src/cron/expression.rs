//! A cron expression: which local times match, as bit masks, and the search for the next one.
//!
//! The search jumps from field to field (month, day, hour, minute, second) and never counts
//! minutes, so the rarest expression (a weekday on 29 February, up to forty years apart) takes
//! about as long as any other. It knows nothing of zones: [`super::timing`] maps local times to
//! instants.

mod count;
mod days;
mod error;
mod parse;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::DayOverflow;
use crate::civil::{self, DAY};
use days::Days;
pub use error::CronError;

/// Two consecutive matches are at most this many years apart: 29 February falls on a given weekday
/// every 28 years, or every 40 across a century without a leap year.
const YEARS: i64 = 41;

/// Seconds of an hour.
const HOUR: i64 = 3_600;

/// The calendar repeats after this many years.
const CYCLE: i64 = 400;

/// A cron expression that matches at least one possible date, if days that a month does not have
/// are taken for its last day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CronExpression {
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u32,
    /// Those of the hours that only `*` or `*/n` name. They run through changes of the clocks.
    wildcard_hours: u32,
    /// Bit 1 is January.
    months: u32,
    days: Days,
}

impl CronExpression {
    /// Reads an expression of five fields (minute, hour, day of month, month, day of week), of six
    /// with seconds first, or one of `@yearly @annually @monthly @weekly @daily @midnight @hourly`.
    ///
    /// - Fields are `*`, values, ranges `1-5` (`FRI-MON` goes round), steps `*/5`, `3/10` (from 3
    ///   to the end) and `1-20/5`, and lists of these. Months and weekdays have names in any case;
    ///   Sunday is 0 and 7.
    /// - Day of month also: `?`, `L` (the last), `L-3` (three days before it), `15W` (the weekday,
    ///   Monday to Friday, nearest to the 15th in its month), `LW` (the last weekday). Day of week
    ///   also: `?`, `5L` (the last Friday), `FRI#2` (the second Friday).
    /// - If neither day field contains `*` or `?`, a day must match one of them; otherwise it must
    ///   match both.
    ///
    /// An expression that never matches is refused.
    pub fn parse(text: &str) -> Result<Self, CronError> {
        Self::parse_with(text, DayOverflow::Skip)
    }

    /// The same, with this rule for days that a month does not have.
    pub fn parse_with(text: &str, overflow: DayOverflow) -> Result<Self, CronError> {
        let cron = parse::parse(text)?;
        let matches = cron.next_day(overflow, civil::first_of(2000, 1), CYCLE).is_some();
        if matches { Ok(cron) } else { Err(CronError::Impossible) }
    }

    /// The expression as it was written, with one blank between its fields.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first local second from `local` on that matches; none only past the years of the
    /// calendar.
    pub(super) fn next_local(&self, overflow: DayOverflow, local: i64) -> Option<i64> {
        self.next_in(overflow, self.hours, local)
    }

    /// The first local second from `local` on that matches in a written hour: one that means a time
    /// of the day, and so goes by the rules for clock changes.
    pub(super) fn next_written(&self, overflow: DayOverflow, local: i64) -> Option<i64> {
        self.next_in(overflow, self.hours & !self.wildcard_hours, local)
    }

    /// Whether the hour of a local second runs through clock changes.
    pub(super) fn runs_through(&self, local: i64) -> bool {
        self.wildcard_hours & 1 << (local.rem_euclid(DAY) / HOUR) != 0
    }

    /// The first local second from `local` on whose hour runs through clock changes, if one of the
    /// hours does.
    pub(super) fn next_running_through(&self, local: i64) -> Option<i64> {
        let (hour, ahead) = (local.div_euclid(HOUR), |hour: i64| self.wildcard_hours & 1 << hour.rem_euclid(24) != 0);
        (hour..hour + 24).find(|hour| ahead(*hour)).map(|hour| local.max(hour * HOUR))
    }

    /// The first local second from `local` on that matches in one of these hours.
    fn next_in(&self, overflow: DayOverflow, hours: u32, local: i64) -> Option<i64> {
        #[cfg(test)]
        super::tests::steps::take();
        let (day, second) = (local.div_euclid(DAY), local.rem_euclid(DAY));
        if self.day_matches(overflow, day)
            && let Some(time) = self.next_time(hours, second)
        {
            return Some(day * DAY + time);
        }
        let time = self.next_time(hours, 0)?;
        self.next_day(overflow, day + 1, YEARS).map(|day| day * DAY + time)
    }

    fn day_matches(&self, overflow: DayOverflow, day: i64) -> bool {
        let date = civil::date_of(day);
        self.months & 1 << date.month != 0 && self.days.of(overflow, date.year, date.month) & 1 << date.day != 0
    }

    /// The first day from `from` on that matches, if there is one within `years`.
    fn next_day(&self, overflow: DayOverflow, from: i64, years: i64) -> Option<i64> {
        let first = civil::date_of(from);
        for year in first.year..=first.year + years {
            let mut months = self.months;
            if year == first.year {
                months &= u32::MAX << first.month;
            }
            while months != 0 {
                let month = months.trailing_zeros();
                months &= months - 1;
                let mut days = self.days.of(overflow, year, month);
                if year == first.year && month == first.month {
                    days &= u32::MAX << first.day;
                }
                if days != 0 {
                    return Some(civil::first_of(year, month) + i64::from(days.trailing_zeros()) - 1);
                }
            }
        }
        None
    }

    /// The first second of the day from `from` on whose time matches in one of these hours.
    fn next_time(&self, hours: u32, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3_600, from / 60 % 60, from % 60);
        if hours & 1 << hour != 0 {
            if self.minutes & 1 << minute != 0
                && let Some(second) = at_least(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            if let Some(minute) = at_least(self.minutes, minute + 1) {
                return Some(hour * 3_600 + minute * 60 + at_least(self.seconds, 0)?);
            }
        }
        let hour = at_least(hours.into(), hour + 1)?;
        Some(hour * 3_600 + at_least(self.minutes, 0)? * 60 + at_least(self.seconds, 0)?)
    }
}

/// The first number from `from` on (up to 63) whose bit is set.
fn at_least(mask: u64, from: i64) -> Option<i64> {
    let rest = mask & u64::MAX << from;
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for CronExpression {
    type Err = CronError;
    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for CronExpression {
    type Error = CronError;
    /// Reads a stored expression, which matched by the rule that is stored beside it. What matches
    /// by any rule matches by this one.
    fn try_from(text: String) -> Result<Self, CronError> {
        Self::parse_with(&text, DayOverflow::Last)
    }
}

impl From<CronExpression> for String {
    fn from(cron: CronExpression) -> Self {
        cron.text
    }
}
