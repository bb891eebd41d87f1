//! Which days of a month match the two day fields of an expression, as one bit mask for a month.

use super::DayOverflow;
use crate::civil;

/// Saturday, as the day of a week that begins with Sunday.
const SATURDAY: u32 = 6;

/// The two day fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) of_month: OfMonth,
    pub(super) of_week: OfWeek,
    /// Whether a day that matches one of the two fields matches (Vixie's rule when neither contains
    /// a `*`).
    pub(super) either: bool,
}

/// The day-of-month field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfMonth {
    /// Bit 1 is the first.
    pub(super) days: u32,
    /// Those of the days that are written out: a wildcard (`*`, `*/n`, `?`) names only days that
    /// there are, so they never overflow.
    pub(super) written: u32,
    /// Bit n: n days before the last.
    pub(super) before_last: u32,
    /// Bit n: the weekday nearest to the nth.
    pub(super) nearest_weekday: u32,
    pub(super) last_weekday: bool,
}

/// The day-of-week field; bit 0 is Sunday.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OfWeek {
    pub(super) days: u32,
    /// `nth[0]`: the first of the month.
    pub(super) nth: [u32; 5],
    pub(super) last: u32,
}

impl Days {
    /// The days of a month that match; bit 1 is the first.
    pub(super) fn of(&self, overflow: DayOverflow, year: i64, month: u32) -> u32 {
        let length = civil::days_in(year, month);
        let first_weekday = civil::weekday(civil::first_of(year, month));
        let of_month = self.of_month.of(overflow, length, first_weekday);
        let of_week = self.of_week.of(length, first_weekday);
        if self.either { of_month | of_week } else { of_month & of_week }
    }
}

/// The bits of the days that a month of this length has.
fn all(length: u32) -> u32 {
    u32::MAX >> (31 - length) & !1
}

impl OfMonth {
    fn of(&self, overflow: DayOverflow, length: u32, first_weekday: u32) -> u32 {
        let mut days = self.days & all(length);
        if overflow == DayOverflow::Last && self.written & !all(length) != 0 {
            days |= 1 << length;
        }
        for back in bits(self.before_last) {
            if back < length {
                days |= 1 << (length - back);
            }
        }
        for wanted in bits(self.nearest_weekday) {
            if wanted <= length || overflow == DayOverflow::Last {
                days |= 1 << nearest_weekday(wanted.min(length), length, first_weekday);
            }
        }
        if self.last_weekday {
            days |= 1 << nearest_weekday(length, length, first_weekday);
        }
        days
    }
}

/// The day from Monday to Friday that is nearest to `day` without leaving the month.
fn nearest_weekday(day: u32, length: u32, first_weekday: u32) -> u32 {
    match (first_weekday + day - 1) % 7 {
        SATURDAY if day == 1 => 3,
        SATURDAY => day - 1,
        0 if day == length => day - 2,
        0 => day + 1,
        _ => day,
    }
}

impl OfWeek {
    fn of(&self, length: u32, first_weekday: u32) -> u32 {
        let mut days = on_weekdays(self.days, first_weekday);
        for (week, weekdays) in (0..).zip(self.nth) {
            days |= on_weekdays(weekdays, first_weekday) & 0b1111_1110 << (7 * week);
        }
        // The last seven days have each weekday once.
        days |= on_weekdays(self.last, first_weekday) & 0b1111_1110 << (length - 7);
        days & all(length)
    }
}

/// The days that fall on these weekdays, in a month of 31 days that begins on `first_weekday`.
fn on_weekdays(weekdays: u32, first_weekday: u32) -> u32 {
    let week = (weekdays >> first_weekday | weekdays << (7 - first_weekday)) & 0x7F;
    (week | week << 7 | week << 14 | week << 21 | week << 28) << 1
}

/// The numbers of the bits that are set.
fn bits(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        (mask != 0).then(|| {
            let bit = mask.trailing_zeros();
            mask &= mask - 1;
            bit
        })
    })
}
