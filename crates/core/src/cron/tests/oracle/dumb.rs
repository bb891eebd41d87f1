//! The oracle: asks for every minute whether it matches, and for every local time which instants
//! show it.
//!
//! It shares nothing with the engine but the database of time zones: it reads expressions by trying
//! each value, days by asking the calendar of another library, and zones by looking at the clock of
//! every minute.

use std::collections::BTreeMap;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;

use super::classes::Change;
use crate::cron::{DayOverflow, DstFold, DstGap};

/// An expression.
pub(super) struct Dumb {
    seconds: Vec<i64>,
    /// Which of the 1,440 minutes of a day match.
    minutes: Vec<bool>,
    day_of_month: String,
    month: String,
    day_of_week: String,
    overflow: DayOverflow,
    /// Whether the minutes of each hour run through changes of the clocks.
    runs_through: Vec<bool>,
}

impl Dumb {
    pub(super) fn read(text: &str, overflow: DayOverflow) -> Self {
        let text = match text {
            "@hourly" => "0 * * * *",
            "@daily" => "0 0 * * *",
            "@weekly" => "0 0 * * 0",
            "@monthly" => "0 0 1 * *",
            "@yearly" => "0 0 1 1 *",
            other => other,
        };
        let mut fields: Vec<&str> = text.split(' ').collect();
        if fields.len() == 5 {
            fields.insert(0, "0");
        }
        let [second, minute, hour, day_of_month, month, day_of_week] = fields[..] else { panic!("{text}") };
        let mut minutes = Vec::new();
        for h in 0..24 {
            for m in 0..60 {
                minutes.push(has(hour, h, 0, 23) && has(minute, m, 0, 59));
            }
        }
        Self {
            seconds: (0..60).filter(|s| has(second, *s, 0, 59)).collect(),
            minutes,
            day_of_month: day_of_month.to_owned(),
            month: month.to_owned(),
            day_of_week: day_of_week.to_owned(),
            overflow,
            runs_through: (0..24)
                .map(|h| hour.split(',').all(|item| item.starts_with('*') || !has(item, h, 0, 23)))
                .collect(),
        }
    }

    /// Whether no rule for changes of the clocks makes a difference.
    pub(super) fn is_wildcard(&self) -> bool {
        self.runs_through.iter().all(|through| *through)
    }

    pub(super) fn matches_day(&self, date: Date) -> bool {
        if !has(&self.month, i64::from(date.month()), 1, 12) {
            return false;
        }
        let by_month = self.day_of_month.split(',').any(|item| is_day_of_month(item, date, self.overflow));
        let by_week = self.day_of_week.split(',').any(|item| is_day_of_week(item, date));
        let open = |field: &str| field.contains('*') || field.contains('?');
        match (open(&self.day_of_month), open(&self.day_of_week)) {
            (false, false) => by_month || by_week,
            _ => by_month && by_week,
        }
    }
}

const NAMES: [(&str, i64); 10] = [
    ("MAR", 3),
    ("OCT", 10),
    ("NOV", 11),
    ("SUN", 0),
    ("MON", 1),
    ("TUE", 2),
    ("WED", 3),
    ("THU", 4),
    ("FRI", 5),
    ("SAT", 6),
];

fn number(text: &str) -> i64 {
    NAMES.iter().find(|(name, _)| *name == text).map_or_else(|| text.parse().unwrap(), |(_, number)| *number)
}

/// Whether a field of plain values has this value. Walks each range from its beginning to its end.
fn has(field: &str, value: i64, min: i64, max: i64) -> bool {
    field.split(',').any(|item| {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (from, to) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (min, max),
            Some((from, to)) => (number(from), number(to)),
            None if item.contains('/') => (number(range), max),
            None => (number(range), number(range)),
        };
        let (mut at, mut counted) = (from, 0);
        loop {
            if at == value && counted % number(step) == 0 {
                return true;
            }
            if at == to {
                return false;
            }
            (at, counted) = (if at == max { min } else { at + 1 }, counted + 1);
        }
    })
}

fn is_weekday(date: Date) -> bool {
    !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday)
}

fn is_day_of_month(item: &str, date: Date, overflow: DayOverflow) -> bool {
    let overflows = overflow == DayOverflow::Last;
    let length = i64::from(date.days_in_month());
    let weekdays = || {
        let days = date.first_of_month().series(jiff::Span::new().days(1));
        days.take_while(|day| day.month() == date.month()).filter(|day| is_weekday(*day))
    };
    if item == "L" {
        return date == date.last_of_month();
    }
    if item == "LW" {
        return weekdays().last() == Some(date);
    }
    if let Some(back) = item.strip_prefix("L-") {
        return i64::from(date.last_of_month().day() - date.day()) == number(back);
    }
    if let Some(wanted) = item.strip_suffix('W') {
        let wanted = if overflows { number(wanted).min(length) } else { number(wanted) };
        let nearest = weekdays().min_by_key(|day| (i64::from(day.day()) - wanted).abs());
        return wanted <= length && nearest == Some(date);
    }
    let is_last = date == date.last_of_month() && !item.starts_with(['*', '?']);
    has(item, i64::from(date.day()), 1, 31)
        || (overflows && is_last && (length + 1..=31).any(|beyond| has(item, beyond, 1, 31)))
}

fn is_day_of_week(item: &str, date: Date) -> bool {
    let weekday = i64::from(date.weekday().to_sunday_zero_offset());
    if let Some((day, nth)) = item.split_once('#') {
        return weekday == number(day) % 7 && i64::from((date.day() - 1) / 7 + 1) == number(nth);
    }
    if let Some(day) = item.strip_suffix('L') {
        return weekday == number(day) % 7 && date.day() + 7 > date.days_in_month();
    }
    // Without a wildcard Sunday is 7 as well.
    let item = if item == "7" { "0" } else { item };
    has(item, weekday, 0, 6)
}

/// A local minute: the number of its day in the window's list, and the minute of that day.
type Local = (usize, usize);

/// A minute of UTC, and the local time in it.
struct Minute {
    second: i64,
    local: Local,
    /// Whether the clock shows this for the first and for the last time.
    first: bool,
    last: bool,
    /// The local minutes that were skipped right before.
    left_out: Vec<Local>,
}

/// Some hours around a change, with the local time of every minute.
pub(super) struct Window {
    pub(super) from: i64,
    pub(super) until: i64,
    dates: Vec<Date>,
    minutes: Vec<Minute>,
}

impl Window {
    pub(super) fn around(zone: &TimeZone, change: &Change, all: &[Change]) -> Self {
        let size = (change.after - change.before).abs();
        assert_eq!((change.at % 60, size % 60, change.before % 60), (0, 0, 0), "minutes are enough since 2000");
        let width = size + 90 * 60;
        // Another change nearby may show the same minutes again.
        let near = all.iter().any(|other| other.at != change.at && (other.at - change.at).abs() < 3 * 86_400);
        let margin = if near { 2 * 86_400 } else { size + 60 };
        let (begin, end) = (change.at - width - margin, change.at + width + margin);
        let clock = |second: i64| zone.to_datetime(jiff::Timestamp::from_second(second).unwrap());

        // Two days more on both sides, since clocks may be put back over midnight.
        let mut dates = vec![clock(begin).date().yesterday().unwrap().yesterday().unwrap()];
        while dates[dates.len() - 1] < clock(end).date().tomorrow().unwrap().tomorrow().unwrap() {
            dates.push(dates[dates.len() - 1].tomorrow().unwrap());
        }

        let mut minutes = Vec::new();
        let mut shown: BTreeMap<Local, Vec<i64>> = BTreeMap::new();
        for second in (begin..end).step_by(60) {
            let time = clock(second);
            let day = dates.iter().position(|date| *date == time.date()).unwrap();
            let local = (day, usize::try_from(time.hour()).unwrap() * 60 + usize::try_from(time.minute()).unwrap());
            minutes.push(Minute { second, local, first: false, last: false, left_out: Vec::new() });
            shown.entry(local).or_default().push(second);
        }
        for minute in &mut minutes {
            minute.first = shown[&minute.local].first() == Some(&minute.second);
            minute.last = shown[&minute.local].last() == Some(&minute.second);
        }
        for at in 1..minutes.len() {
            let mut local = next(minutes[at - 1].local);
            while local < minutes[at].local {
                if !shown.contains_key(&local) {
                    minutes[at].left_out.push(local);
                }
                local = next(local);
            }
        }
        let (from, until) = (change.at - width, change.at + width);
        minutes.retain(|minute| (from..until).contains(&minute.second));
        Self { from, until, dates, minutes }
    }

    /// The instants of the window at which the expression fires.
    pub(super) fn fired(&self, cron: &Dumb, gap: DstGap, fold: DstFold) -> Vec<i64> {
        let days: Vec<bool> = self.dates.iter().map(|date| cron.matches_day(*date)).collect();
        let matches = |(day, minute): Local| cron.minutes[minute] && days[day];
        let mut fired = Vec::new();
        for minute in &self.minutes {
            let through = |(_, minute): Local| cron.runs_through[minute / 60];
            let shifted = |local: &Local| !through(*local) && matches(*local);
            if gap == DstGap::Shift && minute.left_out.iter().any(shifted) {
                fired.push(minute.second);
            }
            let wanted = match fold {
                _ if through(minute.local) => true,
                DstFold::First => minute.first,
                DstFold::Last => minute.last,
                DstFold::Both => true,
            };
            if wanted && matches(minute.local) {
                fired.extend(cron.seconds.iter().map(|second| minute.second + second));
            }
        }
        fired.dedup();
        fired
    }
}

fn next((day, minute): Local) -> Local {
    if minute == 1_439 { (day + 1, 0) } else { (day, minute + 1) }
}
