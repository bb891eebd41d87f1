//! Refused expressions and zones, and their error messages.

use super::at;
use crate::cron::{CronError, CronExpression, DayOverflow, Interval, Zone, ZoneError};

fn refusal(text: &str) -> CronError {
    match CronExpression::parse(text) {
        Ok(cron) => panic!("{text} was accepted as {cron:?}"),
        Err(fault) => fault,
    }
}

#[test]
fn a_refusal_says_what_to_write_instead() {
    for (text, sentence) in [
        ("", "is empty; write five fields (minute hour day-of-month month day-of-week), such as 30 8 * * MON-FRI"),
        (
            "* * * *",
            "has 4 fields; write five (minute hour day-of-month month day-of-week) or six with seconds first, separated by spaces",
        ),
        (
            "* * * * * * 2026",
            "has 7 fields; write five (minute hour day-of-month month day-of-week) or six with seconds first, separated by spaces",
        ),
        (
            "@fortnightly",
            "has the unknown word \"@fortnightly\"; write one of @yearly @monthly @weekly @daily @hourly, or five fields",
        ),
        (
            "CRON_TZ=Europe/Berlin 0 3 * * *",
            "must not begin with \"CRON_TZ=Europe/Berlin\"; give the time zone in the field `timezone` instead",
        ),
        ("TZ=UTC @daily", "must not begin with \"TZ=UTC\"; give the time zone in the field `timezone` instead"),
        ("@every 5m", "cannot be @every; leave cron out and give interval_seconds"),
        ("@reboot", "cannot be @reboot, because a schedule belongs to no machine; write when it is to run"),
        ("60 * * * *", "has \"60\" in the minute field, which goes from 0 to 59"),
        ("* 24 * * *", "has \"24\" in the hour field, which goes from 0 to 23"),
        ("0 0 0 * *", "has \"0\" in the day-of-month field, which goes from 1 to 31"),
        ("0 0 1 13 *", "has \"13\" in the month field, which goes from 1 to 12"),
        ("0 0 * * 8", "has \"8\" in the day-of-week field, which goes from 0 to 7"),
        (
            "*/70 * * * *",
            "has the step \"70\" in the minute field; write a step from 1 to 60, or use an interval instead of cron",
        ),
        (
            "*/0 * * * *",
            "has the step \"0\" in the minute field; write a step from 1 to 60, or use an interval instead of cron",
        ),
        (
            "0 0 * * */8",
            "has the step \"8\" in the day-of-week field; write a step from 1 to 7, or use an interval instead of cron",
        ),
        ("? * * * *", "has a ? in the minute field; write *, or ? alone in a day field"),
        ("0 0 ?,1 * *", "has a ? in the day-of-month field; write *, or ? alone in a day field"),
        (
            "0 9am * * *",
            "has \"9am\" in the hour field, which is not understood; write numbers from 0 to 23, ranges such as 9-17, steps such as */6, or a list of these",
        ),
        (
            "61 25 * 13 *",
            "has \"61\" in the minute field, which goes from 0 to 59; has \"25\" in the hour field, which goes from 0 to 23; has \"13\" in the month field, which goes from 1 to 12",
        ),
        (
            "5",
            "has 1 field; write five (minute hour day-of-month month day-of-week) or six with seconds first, separated by spaces",
        ),
        ("0 0 30 2 *", "never matches, because no month that it names has such a day; change its day or its month"),
    ] {
        assert_eq!(refusal(text).to_string(), sentence, "{text}");
    }
}

#[test]
fn an_expression_that_never_matches_is_refused() {
    for text in [
        "0 0 30 2 *",
        "0 0 31 4 *",
        "0 0 31 2,4,6,9,11 *",
        "0 0 30,31 2 *",
        "0 0 30W 2 *",
        "0 0 L-29 2 *",
        "0 0 LW * */7",
        "0 0 30 FEB ?",
    ] {
        assert_eq!(refusal(text), CronError::Impossible, "{text}");
    }
    for text in ["0 0 30 2 *", "0 0 31 2,4,6,9,11 *", "0 0 30W 2 *"] {
        assert!(CronExpression::parse_with(text, DayOverflow::Last).is_ok(), "{text}");
    }
    for text in ["0 0 L-29 2 *", "0 0 LW * */7"] {
        let refused = CronExpression::parse_with(text, DayOverflow::Last);
        assert_eq!(refused, Err(CronError::Impossible), "{text}");
    }
    for text in ["0 0 29 2 *", "0 0 31 * *", "0 0 30 2 MON", "0 0 * 2 MON#5", "0 0 L-28 2 *", "0 0 29W 2 *"] {
        assert!(CronExpression::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn text_outside_of_the_grammar_is_refused() {
    for text in [
        "1,,2 * * * *",
        ",1 * * * *",
        "1, * * * *",
        "1- * * * *",
        "-1 * * * *",
        "1-2-3 * * * *",
        "*/ * * * *",
        "/5 * * * *",
        "*/5/5 * * * *",
        "*/-1 * * * *",
        "** * * * *",
        "*-5 * * * *",
        "5-* * * * *",
        "+5 * * * *",
        "005 * * * *",
        "99999999999999999999 * * * *",
        "*/99999999999999999999 * * * *",
        "1.5 * * * *",
        "٣ * * * *",
        "60-0 * * * *",
        "0-60 * * * *",
        "MON * * * *",
        "L * * * *",
        "0 0 W * *",
        "0 0 32W * *",
        "0 0 L-0 * *",
        "0 0 L-31 * *",
        "0 0 L- * *",
        "0 0 L15 * *",
        "0 0 LL * *",
        "0 0 1-5W * *",
        "0 0 MON * *",
        "0 0 1 JANUARY *",
        "0 0 1 FOO *",
        "0 0 * * MONDAY",
        "0 0 * * L",
        "0 0 * * 8L",
        "0 0 * * MON#0",
        "0 0 * * MON#6",
        "0 0 * * MON#",
        "0 0 * * #2",
        "0 0 * * MON#2#3",
        "0 0 * * MON-FRI#2",
        "0 0 * * 5W",
        "@",
        "@daily 5",
        "@every 5m",
        "0 0 1 1 * \u{0}",
    ] {
        refusal(text);
    }
}

#[test]
fn a_long_text_is_refused_and_never_repeated_whole() {
    assert_eq!(refusal(&"* ".repeat(5_000)), CronError::TooLong { max: 1_000 });
    let sentence = refusal(&format!("{} * * * *", "é\n9".repeat(100).replace('\n', "\u{7}"))).to_string();
    assert!(sentence.chars().count() < 300 && sentence.contains('…'), "{sentence}");
    assert!(!sentence.contains('\u{7}'), "{sentence}");
    let every_second = (0..60).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    assert!(CronExpression::parse(&format!("{every_second} {every_second} * * * *")).is_ok());
}

#[test]
fn zones_have_names() {
    for (name, canonical) in [
        ("UTC", "UTC"),
        ("utc", "UTC"),
        ("Europe/Berlin", "Europe/Berlin"),
        ("EUROPE/BERLIN", "Europe/Berlin"),
        ("US/Pacific", "US/Pacific"),
        ("EST", "EST"),
        ("Etc/GMT-2", "Etc/GMT-2"),
    ] {
        assert_eq!(Zone::named(name).map(|zone| zone.name().to_owned()), Ok(canonical.to_owned()), "{name}");
    }
    for name in ["+02:00", "-05:00", "2", "+0200", "1234"] {
        assert_eq!(Zone::named(name), Err(ZoneError::Offset), "{name}");
    }
    for name in ["", "Berlin", "Europe/Atlantis", "Etc/Unknown", "CET-1CEST,M3.5.0,M10.5.0", "../etc/passwd", "\u{0}"] {
        assert_eq!(Zone::named(name), Err(ZoneError::Unknown), "{name}");
    }
    assert_eq!(Zone::named(&"A".repeat(10_000)), Err(ZoneError::Unknown));
    assert!(Zone::names().len() > 400, "the bundled database has every zone");
}

#[test]
fn an_interval_is_neither_too_short_nor_too_long() {
    let every = |millis| Interval::new(millis, at("2026-01-01T00:00:00Z"));
    for millis in [0, 1, 999, 316_224_000_001, u64::MAX] {
        assert_eq!(
            every(millis).unwrap_err().to_string(),
            "must be a number of seconds from 1 to 316224000",
            "{millis}"
        );
    }
    assert!(every(1_000).is_ok() && every(316_224_000_000).is_ok());
}
