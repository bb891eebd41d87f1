//! Calendar arithmetic on plain numbers: days since 1970 and seconds of local time, in the
//! proleptic Gregorian calendar.
//!
//! The cron search and the text form of instants use it. A local second is what a clock on the wall
//! shows, counted as if it were UTC.

/// The number of seconds in a day.
pub(crate) const DAY: i64 = 86_400;

/// A date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Date {
    pub(crate) year: i64,
    /// 1 to 12.
    pub(crate) month: u32,
    /// 1 to 31.
    pub(crate) day: u32,
}

/// The date of a day, after H. Hinnant.
pub(crate) fn date_of(day: i64) -> Date {
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    Date {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month: small(month),
        day: small(day_of_year - (153 * from_march + 2) / 5 + 1),
    }
}

/// The first day of a month, as days since 1970.
pub(crate) fn first_of(year: i64, month: u32) -> i64 {
    let month = i64::from(month);
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// How many days a month has.
pub(crate) fn days_in(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The weekday of a day: 0 is Sunday.
pub(crate) fn weekday(day: i64) -> u32 {
    // 1970 began on a Thursday.
    small((day + 4).rem_euclid(7))
}

/// A part of a date, which is small and not negative.
fn small(number: i64) -> u32 {
    u32::try_from(number).expect("invariant: the parts of a date are not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_agrees_with_another_library() {
        let epoch = jiff::civil::date(1970, 1, 1);
        for day in (-719_162..2_932_896_i64).step_by(97) {
            let other = epoch.checked_add(jiff::Span::new().days(day)).unwrap();
            let date = date_of(day);
            assert_eq!(
                (date.year, date.month, date.day),
                (i64::from(other.year()), other.month().cast_unsigned().into(), other.day().cast_unsigned().into())
            );
            assert_eq!(first_of(date.year, date.month) + i64::from(date.day) - 1, day);
            assert_eq!(days_in(date.year, date.month), u32::from(other.days_in_month().cast_unsigned()));
            assert_eq!(weekday(day), u32::from(other.weekday().to_sunday_zero_offset().cast_unsigned()));
        }
    }
}
