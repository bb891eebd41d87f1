//! The meaning of expressions where no clock changes.

use super::{at, instants, timing};
use crate::cron::{CronExpression, DayOverflow, Interval, Pattern, Timing, TimingRules, Zone};
use crate::time::Timestamp;

/// The days of 2026 and 2027 on which an expression fires at midnight, as `MM-DD`, from one of them
/// to another.
fn days(expression: &str, from: &str, to: &str) -> Vec<String> {
    instants(&timing(&format!("0 0 {expression}"), "UTC"), from, to)
        .into_iter()
        .map(|at| at.strip_suffix("T00:00").unwrap()[5..].to_owned())
        .collect()
}

/// The times of 2026-01-01 at which an expression fires.
fn times(expression: &str) -> Vec<String> {
    instants(&timing(expression, "UTC"), "2026-01-01", "2026-01-02").into_iter().map(|at| at[11..].to_owned()).collect()
}

#[test]
fn minutes_hours_and_seconds() {
    assert_eq!(times("30 8 * * *"), ["08:30"]);
    assert_eq!(times("5 30 8 * * *"), ["08:30:05"]);
    assert_eq!(times("*/20 9-10 * * *"), ["09:00", "09:20", "09:40", "10:00", "10:20", "10:40"]);
    assert_eq!(times("0 3/10 * * *"), ["03:00", "13:00", "23:00"]);
    assert_eq!(times("0 1-20/5 * * *"), ["01:00", "06:00", "11:00", "16:00"]);
    assert_eq!(times("0 22-2 * * *"), ["00:00", "01:00", "02:00", "22:00", "23:00"]);
    assert_eq!(times("0 22-4/3 * * *"), ["01:00", "04:00", "22:00"]);
    assert_eq!(times("0,30,15 12 * * *"), ["12:00", "12:15", "12:30"]);
    assert_eq!(times("0/30 59 23 * * *"), ["23:59", "23:59:30"]);
    assert_eq!(times("* * * * *").len(), 1_440);
    assert_eq!(times("0 */24 * * *"), ["00:00"]);
    assert_eq!(instants(&timing("* * * * * *", "UTC"), "2026-01-01", "2026-01-02").len(), 10_000);
}

#[test]
fn days_of_the_month() {
    assert_eq!(days("31 * *", "2026-01-01", "2026-09-01"), ["01-31", "03-31", "05-31", "07-31", "08-31"]);
    assert_eq!(days("L * *", "2026-01-01", "2026-05-01"), ["01-31", "02-28", "03-31", "04-30"]);
    assert_eq!(days("L * *", "2028-02-01", "2028-03-01"), ["02-29"]);
    assert_eq!(days("L-3 * *", "2026-01-01", "2026-04-01"), ["01-28", "02-25", "03-28"]);
    assert_eq!(days("L-30 * *", "2026-01-01", "2026-06-01"), ["01-01", "03-01", "05-01"]);
    // 15 August 2026 is a Saturday, 15 November a Sunday, 15 September a Tuesday.
    assert_eq!(days("15W 8,9,11 *", "2026-01-01", "2027-01-01"), ["08-14", "09-15", "11-16"]);
    // 1 August 2026 is a Saturday, 31 May a Sunday: neither leaves its month.
    assert_eq!(days("1W 8 *", "2026-01-01", "2027-01-01"), ["08-03"]);
    assert_eq!(days("31W 4-6 *", "2026-01-01", "2027-01-01"), ["05-29"]);
    assert_eq!(days("LW 1-5 *", "2026-01-01", "2027-01-01"), ["01-30", "02-27", "03-31", "04-30", "05-29"]);
    assert_eq!(days("lw,15w,l-1 8 ?", "2026-01-01", "2027-01-01"), ["08-14", "08-30", "08-31"]);
    assert_eq!(
        days("29-2 2 *", "2026-01-01", "2029-01-01"),
        ["02-01", "02-02", "02-01", "02-02", "02-01", "02-02", "02-29"]
    );
}

#[test]
fn days_of_the_week() {
    let august = |expression: &str| days(expression, "2026-08-01", "2026-09-01");
    assert_eq!(august("* * FRI"), ["08-07", "08-14", "08-21", "08-28"]);
    assert_eq!(august("? * 5"), august("* * fri"));
    assert_eq!(august("* * 0"), august("* * 7"));
    assert_eq!(august("* * SUN"), ["08-02", "08-09", "08-16", "08-23", "08-30"]);
    assert_eq!(august("* * 5L"), ["08-28"]);
    assert_eq!(august("* * FriL"), ["08-28"]);
    assert_eq!(august("* * 7L"), ["08-30"]);
    assert_eq!(august("* * FRI#2"), ["08-14"]);
    assert_eq!(august("* * 5#2,5#4"), ["08-14", "08-28"]);
    assert_eq!(august("* * SUN#5"), ["08-30"]);
    assert_eq!(august("* * MON#5"), ["08-31"]);
    assert_eq!(august("* * FRI#5"), Vec::<String>::new());
    assert_eq!(august("* * FRI-MON"), august("* * 0,1,5,6"));
    assert_eq!(august("* * 5-7"), august("* * FRI,SAT,SUN"));
    assert_eq!(august("* * 7-2"), august("* * SUN,MON,TUE"));
    assert_eq!(august("* * FRI-MON/2"), august("* * FRI,SUN"));
    assert_eq!(august("* * 0-7"), august("* * *"));
    assert_eq!(august("* * */2"), august("* * SUN,TUE,THU,SAT"));
    assert_eq!(august("* * 3/2"), august("* * WED,FRI"));
}

#[test]
fn day_fields_combine_as_in_vixie_cron() {
    let august = |expression: &str| days(expression, "2026-08-01", "2026-09-01");
    assert_eq!(august("13 * FRI"), ["08-07", "08-13", "08-14", "08-21", "08-28"]);
    assert_eq!(august("L * FRI#1"), ["08-07", "08-31"]);
    assert_eq!(august("? * FRI"), august("* * FRI"));
    assert_eq!(august("13 * ?"), ["08-13"]);
    assert_eq!(august("*/2 * FRI"), ["08-07", "08-21"]);
    assert_eq!(august("1-7 * */6"), ["08-01", "08-02"]);
}

#[test]
fn months_and_words() {
    let firsts = |expression: &str| days(expression, "2026-01-01", "2027-01-01");
    assert_eq!(firsts("1 FEB,4,Dec *"), ["02-01", "04-01", "12-01"]);
    assert_eq!(firsts("1 NOV-FEB *"), ["01-01", "02-01", "11-01", "12-01"]);
    assert_eq!(firsts("1 */5 *"), ["01-01", "06-01", "11-01"]);
    for (word, same) in [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@Monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@DAILY", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ] {
        let year = |cron: &str| instants(&timing(cron, "UTC"), "2026-01-01", "2027-01-01");
        assert_eq!(year(word), year(same), "{word}");
    }
}

#[test]
fn an_expression_keeps_the_text_it_was_written_in() {
    let cron = CronExpression::parse("  0\t30 8 *  * mon-FRI ").unwrap();
    assert_eq!(cron.as_str(), "0 30 8 * * mon-FRI");
    let json = serde_json::to_string(&cron).unwrap();
    assert_eq!(json, "\"0 30 8 * * mon-FRI\"");
    assert_eq!(serde_json::from_str::<CronExpression>(&json).unwrap(), cron);
    assert!(serde_json::from_str::<CronExpression>("\"61 * * * *\"").is_err());
}

#[test]
fn a_timing_survives_its_storage() {
    let timing = timing("30 2 * * *", "europe/berlin");
    assert_eq!(timing.rules.zone.name(), "Europe/Berlin");
    let json = serde_json::to_string(&timing).unwrap();
    assert_eq!(serde_json::from_str::<Timing>(&json).unwrap(), timing);
    let interval = every(90, "2026-01-01T00:00:00.250Z", TimingRules::default());
    let json = serde_json::to_string(&interval).unwrap();
    assert_eq!(serde_json::from_str::<Timing>(&json).unwrap(), interval);
}

#[test]
fn a_rule_for_short_months_is_skip_where_none_is_stored() {
    let mut timing = timing("0 9 31 * *", "UTC");
    timing.rules.day_overflow = DayOverflow::Last;
    let mut stored = serde_json::to_value(&timing).unwrap();
    assert_eq!(serde_json::from_value::<Timing>(stored.clone()).unwrap(), timing);
    stored["rules"].as_object_mut().unwrap().remove("day_overflow").unwrap();
    assert_eq!(serde_json::from_value::<Timing>(stored).unwrap().rules.day_overflow, DayOverflow::Skip);
}

#[test]
fn days_beyond_a_month_may_mean_its_last_day() {
    let days = |cron: &str, day_overflow: DayOverflow| {
        let cron = CronExpression::parse_with(cron, day_overflow).unwrap_or_else(|fault| panic!("{cron} {fault}"));
        let timing =
            Timing { pattern: Pattern::Cron(cron), rules: TimingRules { day_overflow, ..TimingRules::default() } };
        let days = instants(&timing, "2027-01-15", "2027-05-01");
        days.iter().map(|day| day[5..10].to_owned()).collect::<Vec<_>>().join(" ")
    };
    for (cron, skip, last) in [
        ("0 9 31 * *", "01-31 03-31", "01-31 02-28 03-31 04-30"),
        ("0 9 30 * *", "01-30 03-30 04-30", "01-30 02-28 03-30 04-30"),
        ("0 9 29 2,4 *", "04-29", "02-28 04-29"),
        ("0 9 29-31 2 MON#1", "02-01", "02-01 02-28"),
        // Once for all of them, also beside a day that is there.
        ("0 9 28,29,30,31 2 *", "02-28", "02-28"),
        ("0 9 21/10 2-4 *", "02-21 03-21 03-31 04-21", "02-21 02-28 03-21 03-31 04-21 04-30"),
        // The nearest weekday to the last day: 28 February is a Sunday.
        ("0 9 31W 2,4 *", "", "02-26 04-30"),
        // A wildcard names only days that there are.
        ("0 9 */15 * *", "01-16 01-31 02-01 02-16 03-01 03-16 03-31 04-01 04-16", ""),
        ("0 9 L,L-30 * *", "01-31 02-28 03-01 03-31 04-30", ""),
    ] {
        if !skip.is_empty() {
            assert_eq!(days(cron, DayOverflow::Skip), skip, "{cron}");
        }
        assert_eq!(days(cron, DayOverflow::Last), if last.is_empty() { skip } else { last }, "{cron}");
    }
}

#[test]
fn a_start_and_an_end_are_instants_themselves() {
    let mut timing = timing("0 12 * * *", "UTC");
    timing.rules.starts_at = Some(at("2026-01-02T12:00:00Z"));
    timing.rules.ends_at = Some(at("2026-01-04T12:00:00Z"));
    let all = ["2026-01-02T12:00", "2026-01-03T12:00", "2026-01-04T12:00"];
    assert_eq!(instants(&timing, "2025-01-01", "2027-01-01"), all);
    timing.rules.starts_at = Some(at("2026-01-02T12:00:00.001Z"));
    timing.rules.ends_at = Some(at("2026-01-04T11:59:59.999Z"));
    assert_eq!(instants(&timing, "2025-01-01", "2027-01-01"), all[1..2]);
    timing.rules.ends_at = Some(at("2025-01-01T00:00:00Z"));
    assert_eq!(timing.next_after(at("2024-01-01T00:00:00Z")), None, "an end before its start");
}

fn every(seconds: u64, anchor: &str, rules: TimingRules) -> Timing {
    Timing { pattern: Pattern::Interval(Interval::new(seconds * 1_000, at(anchor)).unwrap()), rules }
}

#[test]
fn an_interval_ignores_changes_of_clocks() {
    let rules = TimingRules { zone: Zone::named("Europe/Berlin").unwrap(), ..TimingRules::default() };
    let timing = every(5_400, "2026-03-28T22:00:00.250Z", rules);
    let all: Vec<String> =
        timing.iter_between(at("2026-03-28T22:00:00Z"), at("2026-03-29T02:30:00Z")).map(|at| at.to_string()).collect();
    assert_eq!(all, ["2026-03-28T22:00:00.250Z", "2026-03-28T23:30:00.250Z", "2026-03-29T01:00:00.250Z"]);
}

#[test]
fn the_last_instant_is_found_however_many_there_are() {
    let minutely = timing("* * * * *", "UTC");
    let last = |timing: &Timing, from: &str, to: &str| timing.last_between(at(from), at(to));
    assert_eq!(last(&minutely, "0001-01-01T00:00:00Z", "2200-05-05T05:05:05Z"), Some(at("2200-05-05T05:05:00Z")));
    assert_eq!(last(&minutely, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), Some(at("2026-01-01T00:00:00Z")));
    assert_eq!(last(&minutely, "2026-01-01T00:00:01Z", "2026-01-01T00:00:59Z"), None);
    assert_eq!(last(&minutely, "2026-01-01T00:00:01Z", "2026-01-01T00:01:00Z"), Some(at("2026-01-01T00:01:00Z")));
    assert_eq!(last(&minutely, "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), None);
    let leap = timing("0 0 29 2 *", "UTC");
    assert_eq!(last(&leap, "1970-01-01T00:00:00Z", "2103-01-01T00:00:00Z"), Some(at("2096-02-29T00:00:00Z")));
    let extremes = (Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX));
    assert_eq!(minutely.last_between(extremes.0, extremes.1), Some(at("9999-12-30T22:00:00Z")));
}
