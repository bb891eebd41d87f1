//! How many local seconds of a stretch of time match an expression, by multiplying instead of
//! listing.

use super::{CronExpression, DayOverflow, HOUR};
use crate::civil::{self, DAY};

impl CronExpression {
    /// How many local seconds from `from` to before `until` match.
    pub(in crate::cron) fn count_local(&self, overflow: DayOverflow, from: i64, until: i64) -> u64 {
        self.count_in(overflow, self.hours, from, until)
    }

    /// How many of them are in written hours.
    pub(in crate::cron) fn count_written(&self, overflow: DayOverflow, from: i64, until: i64) -> u64 {
        self.count_in(overflow, self.hours & !self.wildcard_hours, from, until)
    }

    fn count_in(&self, overflow: DayOverflow, hours: u32, from: i64, until: i64) -> u64 {
        if until <= from {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY), until.div_euclid(DAY));
        let begun =
            |day: i64, local: i64| if self.day_matches(overflow, day) { self.times_before(hours, local) } else { 0 };
        self.days_between(overflow, first, last) * self.times_before(hours, DAY) + begun(last, until.rem_euclid(DAY))
            - begun(first, from.rem_euclid(DAY))
    }

    /// How many days from `from` to before `until` match.
    fn days_between(&self, overflow: DayOverflow, from: i64, until: i64) -> u64 {
        let (first, end) = (civil::date_of(from), civil::date_of(until));
        let (mut year, mut month, mut count) = (first.year, first.month, 0);
        while (year, month) <= (end.year, end.month) {
            if self.months & 1 << month != 0 {
                let mut days = self.days.of(overflow, year, month);
                if (year, month) == (first.year, first.month) {
                    days &= u32::MAX << first.day;
                }
                if (year, month) == (end.year, end.month) {
                    days &= (1 << end.day) - 1;
                }
                count += u64::from(days.count_ones());
            }
            (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        }
        count
    }

    /// How many seconds of a day before `second` match in these hours.
    fn times_before(&self, hours: u32, second: i64) -> u64 {
        let (hour, minute, second) = (second / HOUR, second / 60 % 60, second % 60);
        let below = |mask: u64, end: i64| u64::from((mask & ((1 << end) - 1)).count_ones());
        let is_set = |mask: u64, bit: i64| mask >> bit & 1;
        let (hours, in_minute) = (u64::from(hours), below(self.seconds, 60));
        let in_hour = below(self.minutes, 60) * in_minute;
        below(hours, hour) * in_hour
            + is_set(hours, hour)
                * (below(self.minutes, minute) * in_minute + is_set(self.minutes, minute) * below(self.seconds, second))
    }
}
