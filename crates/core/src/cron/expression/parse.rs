//! The grammar of cron expressions. Linear in the text, which is bounded.

use super::days::{Days, OfMonth, OfWeek};
use super::{CronError, CronExpression};

/// The maximum length of an expression in bytes.
const MAX_BYTES: usize = 1_000;

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// One of the fields.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) min: u32,
    /// The greatest number that may be written.
    pub(super) max: u32,
    /// The greatest value: Sunday is written 7 and is 0.
    last: u32,
    /// The names of its values, from `min` on.
    names: &'static [&'static str],
    pub(super) expected: &'static str,
}

impl Field {
    /// How many values it has.
    pub(super) const fn size(&self) -> u32 {
        self.last - self.min + 1
    }
}

const SECOND: Field = Field {
    name: "second",
    min: 0,
    max: 59,
    last: 59,
    names: &[],
    expected: "numbers from 0 to 59, ranges such as 0-30, steps such as */10, or a list of these",
};
const MINUTE: Field = Field { name: "minute", ..SECOND };
const HOUR: Field = Field {
    name: "hour",
    min: 0,
    max: 23,
    last: 23,
    names: &[],
    expected: "numbers from 0 to 23, ranges such as 9-17, steps such as */6, or a list of these",
};
const DAY_OF_MONTH: Field = Field {
    name: "day-of-month",
    min: 1,
    max: 31,
    last: 31,
    names: &[],
    expected: "numbers from 1 to 31, ranges, steps, ?, L (the last day), L-3 (up to L-30), 15W, LW, or a list of these",
};
const MONTH: Field = Field {
    name: "month",
    min: 1,
    max: 12,
    last: 12,
    names: MONTHS,
    expected: "numbers from 1 to 12, names such as JAN, ranges such as MAR-OCT, steps, or a list of these",
};
const DAY_OF_WEEK: Field = Field {
    name: "day-of-week",
    min: 0,
    max: 7,
    last: 6,
    names: WEEKDAYS,
    expected: "numbers from 0 to 7 (both are Sunday), names such as MON, ranges such as MON-FRI, ?, 5L (the last Friday), FRI#2 (the second Friday, up to #5), or a list of these",
};

/// Reads an expression, without checking that a date matches it.
pub(super) fn parse(text: &str) -> Result<CronExpression, CronError> {
    if text.len() > MAX_BYTES {
        return Err(CronError::TooLong { max: MAX_BYTES });
    }
    let written: Vec<&str> = text.split_ascii_whitespace().collect();
    let expanded: Vec<&str> = match written.as_slice() {
        [] => return Err(CronError::Empty),
        [zone, ..] if is_zone(zone) => return Err(CronError::zone(zone)),
        [word, ..] if word.eq_ignore_ascii_case("@every") => return Err(CronError::Every),
        [word] if word.starts_with('@') => expand(word)?.split(' ').collect(),
        fields => fields.to_vec(),
    };
    let (second, [minute, hour, day_of_month, month, day_of_week]) = match *expanded.as_slice() {
        [minute, hour, day_of_month, month, day_of_week] => ("0", [minute, hour, day_of_month, month, day_of_week]),
        [second, minute, hour, day_of_month, month, day_of_week] => {
            (second, [minute, hour, day_of_month, month, day_of_week])
        }
        _ => return Err(CronError::FieldCount { found: expanded.len() }),
    };
    let mut faults = FieldFaults::default();
    let seconds = faults.of(values(&SECOND, second));
    let minutes = faults.of(values(&MINUTE, minute));
    let hours = faults.of(values(&HOUR, hour));
    let of_month = faults.of(days_of_month(day_of_month));
    let months = faults.of(values(&MONTH, month));
    let of_week = faults.of(days_of_week(day_of_week));
    faults.finish()?;
    let either = is_restricted(day_of_month) && is_restricted(day_of_week);
    Ok(CronExpression {
        text: written.join(" "),
        seconds,
        minutes,
        hours: narrow(hours),
        wildcard_hours: wildcard_hours(hour)?,
        days: Days { of_month, of_week, either },
        months: narrow(months),
    })
}

/// The faults of the fields so far.
#[derive(Default)]
struct FieldFaults(Vec<CronError>);

impl FieldFaults {
    /// What a field names; nothing if it has a fault.
    fn of<T: Default>(&mut self, field: Result<T, CronError>) -> T {
        field.unwrap_or_else(|fault| {
            self.0.push(fault);
            T::default()
        })
    }

    fn finish(mut self) -> Result<(), CronError> {
        match self.0.len() {
            0 => Ok(()),
            1 => Err(self.0.remove(0)),
            _ => Err(CronError::Fields(self.0)),
        }
    }
}

/// Whether a field is the time zone of a crontab, such as `CRON_TZ=Europe/Berlin`.
fn is_zone(field: &str) -> bool {
    let name = field.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| ["CRON_TZ", "TZ"].iter().any(|zone| name.eq_ignore_ascii_case(zone)))
}

/// The five fields that a word stands for.
fn expand(word: &str) -> Result<&'static str, CronError> {
    match word.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => Ok("0 0 1 1 *"),
        "@monthly" => Ok("0 0 1 * *"),
        "@weekly" => Ok("0 0 * * 0"),
        "@daily" | "@midnight" => Ok("0 0 * * *"),
        "@hourly" => Ok("0 * * * *"),
        "@reboot" => Err(CronError::Reboot),
        _ => Err(CronError::unknown_word(word)),
    }
}

/// Whether a day field restricts the days.
fn is_restricted(text: &str) -> bool {
    !text.contains(['*', '?'])
}

/// A mask of numbers below 32.
fn narrow(mask: u64) -> u32 {
    u32::try_from(mask).expect("invariant: hours, days and months are below 32")
}

/// A field that has plain values only.
fn values(field: &Field, text: &str) -> Result<u64, CronError> {
    if text.contains('?') {
        return Err(CronError::QuestionMark { field: field.name });
    }
    text.split(',').try_fold(0, |mask, item| Ok(mask | plain(field, item)?))
}

/// The hours that only wildcards name.
fn wildcard_hours(text: &str) -> Result<u32, CronError> {
    let (mut wildcards, mut written) = (0, 0);
    for item in text.split(',') {
        *(if item.starts_with('*') { &mut wildcards } else { &mut written }) |= plain(&HOUR, item)?;
    }
    Ok(narrow(wildcards & !written))
}

fn days_of_month(text: &str) -> Result<OfMonth, CronError> {
    let field = &DAY_OF_MONTH;
    let mut found = OfMonth::default();
    for item in day_items(field, text)? {
        let upper = item.to_ascii_uppercase();
        match upper.as_str() {
            "L" => found.before_last |= 1,
            "LW" => found.last_weekday = true,
            _ => {
                if let Some(back) = upper.strip_prefix("L-") {
                    match number(back) {
                        Some(back @ 1..=30) => found.before_last |= 1 << back,
                        _ => return Err(CronError::syntax(field, item)),
                    }
                } else if let Some(day) = upper.strip_suffix('W') {
                    found.nearest_weekday |= 1 << value(field, day, item)?;
                } else {
                    let days = narrow(plain(field, item)?);
                    found.days |= days;
                    if !item.starts_with('*') {
                        found.written |= days;
                    }
                }
            }
        }
    }
    Ok(found)
}

fn days_of_week(text: &str) -> Result<OfWeek, CronError> {
    let field = &DAY_OF_WEEK;
    let mut found = OfWeek::default();
    for item in day_items(field, text)? {
        if let Some((day, nth)) = item.split_once('#') {
            let day = value(field, day, item)? % 7;
            let week = match number(nth) {
                Some(nth @ 1..=5) => nth as usize - 1,
                _ => return Err(CronError::syntax(field, item)),
            };
            found.nth[week] |= 1 << day;
        } else if let Some(day) = item.strip_suffix(['l', 'L']) {
            found.last |= 1 << (value(field, day, item)? % 7);
        } else {
            found.days |= narrow(plain(field, item)?);
        }
    }
    Ok(found)
}

/// The items of a day field, where `?` alone is `*`.
fn day_items<'t>(field: &Field, text: &'t str) -> Result<std::str::Split<'t, char>, CronError> {
    match text {
        "?" => Ok("*".split(',')),
        _ if text.contains('?') => Err(CronError::QuestionMark { field: field.name }),
        _ => Ok(text.split(',')),
    }
}

/// `*`, a value or a range, with or without a step.
fn plain(field: &Field, item: &str) -> Result<u64, CronError> {
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, Some(step)),
        None => (item, None),
    };
    let (from, to) = match range.split_once('-') {
        _ if range == "*" => (field.min, field.last),
        Some((from, to)) => (value(field, from, item)?, value(field, to, item)?),
        None => {
            let from = value(field, range, item)?;
            (from, if step.is_some() { field.last.max(from) } else { from })
        }
    };
    let step = match step {
        None => 1,
        Some(text) => match number(text) {
            Some(step) if (1..=field.size()).contains(&step) => step,
            Some(_) => return Err(CronError::step(field, text)),
            None if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() => {
                return Err(CronError::step(field, text));
            }
            None => return Err(CronError::syntax(field, item)),
        },
    };
    Ok(range_mask(field, from, to, step))
}

/// Every `step`th value from `from` to `to`, wrapping round the end of the field if `to` is less.
fn range_mask(field: &Field, from: u32, to: u32, step: u32) -> u64 {
    let size = field.size();
    let span = if from <= to { to - from } else { (to + size - from) % size };
    (0..=span).step_by(step as usize).fold(0, |mask, ahead| mask | 1 << (field.min + (from - field.min + ahead) % size))
}

/// A number or a name of the field; `item` is shown if it is neither.
fn value(field: &Field, text: &str, item: &str) -> Result<u32, CronError> {
    if let Some(number) = number(text) {
        return if (field.min..=field.max).contains(&number) {
            Ok(number)
        } else {
            Err(CronError::out_of_range(field, text))
        };
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(CronError::out_of_range(field, text));
    }
    (field.min..)
        .zip(field.names)
        .find(|(_, name)| name.eq_ignore_ascii_case(text))
        .map(|(value, _)| value)
        .ok_or_else(|| CronError::syntax(field, item))
}

/// A number of one or two digits.
fn number(text: &str) -> Option<u32> {
    if matches!(text.len(), 1 | 2) && text.bytes().all(|b| b.is_ascii_digit()) { text.parse().ok() } else { None }
}
