//! Why a text is not a cron expression. Each sentence continues after the word `cron` and says what
//! to write instead.

use super::parse::Field;

/// The maximum number of characters of a user's text that a sentence repeats.
const SHOWN_MAX: usize = 40;

/// Why a text is not a cron expression that we accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    /// No field.
    #[error("is empty; write five fields (minute hour day-of-month month day-of-week), such as 30 8 * * MON-FRI")]
    Empty,
    /// Longer than any expression needs to be.
    #[error("is longer than {max} bytes; write ranges and steps instead of long lists")]
    TooLong {
        /// The limit.
        max: usize,
    },
    /// Not five and not six fields.
    #[error(
        "has {found} {}; write five (minute hour day-of-month month day-of-week) or six with seconds first, separated by spaces",
        if *found == 1 { "field" } else { "fields" }
    )]
    FieldCount {
        /// How many there are.
        found: usize,
    },
    /// An unknown word after `@`.
    #[error("has the unknown word {word}; write one of @yearly @monthly @weekly @daily @hourly, or five fields")]
    UnknownWord {
        /// What was written.
        word: String,
    },
    /// A time zone before the fields, as some crontabs have it.
    #[error("must not begin with {zone}; give the time zone in the field `timezone` instead")]
    Zone {
        /// What was written.
        zone: String,
    },
    /// `@every`.
    #[error("cannot be @every; leave cron out and give interval_seconds")]
    Every,
    /// `@reboot`.
    #[error("cannot be @reboot, because a schedule belongs to no machine; write when it is to run")]
    Reboot,
    /// An item that the grammar does not have.
    #[error("has {item} in the {field} field, which is not understood; write {expected}")]
    Syntax {
        /// The field.
        field: &'static str,
        /// What was written.
        item: String,
        /// What can be written.
        expected: &'static str,
    },
    /// A number or name outside of the field's range.
    #[error("has {item} in the {field} field, which goes from {min} to {max}")]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was written.
        item: String,
        /// The minimum.
        min: u32,
        /// The maximum.
        max: u32,
    },
    /// A step of zero, or one that leaves the field at once.
    #[error(
        "has the step {step} in the {field} field; write a step from 1 to {max}, or use an interval instead of cron"
    )]
    Step {
        /// The field.
        field: &'static str,
        /// What was written.
        step: String,
        /// The maximum step.
        max: u32,
    },
    /// `?` where there is none.
    #[error("has a ? in the {field} field; write *, or ? alone in a day field")]
    QuestionMark {
        /// The field.
        field: &'static str,
    },
    /// More than one field has a fault.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<CronError>),
    /// No date matches.
    #[error("never matches, because no month that it names has such a day; change its day or its month")]
    Impossible,
}

impl CronError {
    pub(super) fn syntax(field: &Field, item: &str) -> Self {
        Self::Syntax { field: field.name, item: shown(item), expected: field.expected }
    }

    pub(super) fn out_of_range(field: &Field, item: &str) -> Self {
        Self::OutOfRange { field: field.name, item: shown(item), min: field.min, max: field.max }
    }

    pub(super) fn step(field: &Field, step: &str) -> Self {
        Self::Step { field: field.name, step: shown(step), max: field.size() }
    }

    pub(super) fn zone(zone: &str) -> Self {
        Self::Zone { zone: shown(zone) }
    }

    pub(super) fn unknown_word(word: &str) -> Self {
        Self::UnknownWord { word: shown(word) }
    }
}

/// The text in quotes, short and without characters that break lines.
fn shown(text: &str) -> String {
    let mut short: String = text.chars().take(SHOWN_MAX).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        short.push('…');
    }
    format!("\"{short}\"")
}
