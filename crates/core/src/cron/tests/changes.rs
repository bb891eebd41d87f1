//! What happens when clocks change, in the cases that other implementations got wrong.

use super::{at, instants, moved, timing};
use crate::cron::{DstFold, DstGap};

/// The instants of a few days with the defaults: shift, first.
fn plain(cron: &str, zone: &str, from: &str, to: &str) -> Vec<String> {
    instants(&timing(cron, zone), from, to)
}

#[test]
fn a_time_in_a_gap_fires_at_its_end_or_not_at_all() {
    let zone = "America/New_York";
    assert_eq!(
        plain("30 2 * * *", zone, "2025-03-08", "2025-03-11"),
        ["2025-03-08T07:30", "2025-03-09T07:00", "2025-03-10T06:30"]
    );
    let skipping = moved("30 2 * * *", zone, DstGap::Skip, DstFold::First);
    assert_eq!(instants(&skipping, "2025-03-08", "2025-03-11"), ["2025-03-08T07:30", "2025-03-10T06:30"]);
}

#[test]
fn times_in_the_same_gap_fire_once() {
    for cron in ["*/15 2 * * *", "0,10,50 2 * * *", "* 2,3 9 3 *", "0 2,3 * * *", "*/5 * 2 * * *"] {
        let fired = plain(cron, "America/New_York", "2025-03-09", "2025-03-10");
        assert_eq!(fired.iter().filter(|at| *at == "2025-03-09T07:00").count(), 1, "{cron}: {fired:?}");
        assert!(fired.is_sorted_by(|a, b| a < b), "{cron}: {fired:?}");
    }
    assert_eq!(plain("*/15 2 * * *", "America/New_York", "2025-03-09", "2025-03-10"), ["2025-03-09T07:00"]);
}

#[test]
fn a_wildcard_hour_runs_through_a_gap_and_through_a_fold() {
    assert_eq!(
        plain("*/30 * * * *", "Europe/Berlin", "2026-03-29", "2026-03-30")[..4],
        ["2026-03-29T00:00", "2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]
    );
    let fold = plain("*/15 * * * *", "America/New_York", "2025-11-02", "2025-11-03");
    assert_eq!(fold.len(), 96, "every quarter of an hour of a day in UTC");
    for (gap, fold) in [(DstGap::Shift, DstFold::First), (DstGap::Skip, DstFold::Last), (DstGap::Skip, DstFold::Both)] {
        let every_other = moved("30 */2 * * *", "Europe/Berlin", gap, fold);
        // 02:30 does not exist in spring and exists twice in autumn.
        assert_eq!(
            instants(&every_other, "2026-03-28", "2026-03-30")[10..13],
            ["2026-03-28T21:30", "2026-03-28T23:30", "2026-03-29T02:30"]
        );
        assert_eq!(
            instants(&every_other, "2026-10-25", "2026-10-26")[..3],
            ["2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T03:30"]
        );
    }
}

#[test]
fn a_written_hour_beside_a_wildcard_keeps_its_rule() {
    let (zone, all_day) = ("Europe/Berlin", |timing, day: (&str, &str)| instants(&timing, day.0, day.1));
    let (spring, autumn) = (("2026-03-29", "2026-03-30"), ("2026-10-25", "2026-10-26"));
    for cron in ["30 2,*/12 * * *", "30 */12,2 * * *"] {
        let in_gap = |gap| all_day(moved(cron, zone, gap, DstFold::First), spring);
        assert_eq!(in_gap(DstGap::Shift), ["2026-03-29T01:00", "2026-03-29T10:30", "2026-03-29T22:30"], "{cron}");
        assert_eq!(in_gap(DstGap::Skip), ["2026-03-29T10:30", "2026-03-29T22:30"], "{cron}");
        let in_fold = |fold| all_day(moved(cron, zone, DstGap::Shift, fold), autumn)[..2].to_vec();
        assert_eq!(in_fold(DstFold::First), ["2026-10-25T00:30", "2026-10-25T11:30"], "{cron}");
        assert_eq!(in_fold(DstFold::Last), ["2026-10-25T01:30", "2026-10-25T11:30"], "{cron}");
        assert_eq!(in_fold(DstFold::Both), ["2026-10-25T00:30", "2026-10-25T01:30"], "{cron}");
    }
    // An hour that is both is written; the wildcard's other hours run through.
    let both = moved("30 *,2 * * *", zone, DstGap::Skip, DstFold::Last);
    let hours = all_day(both, autumn);
    assert_eq!(hours[..2], ["2026-10-25T01:30", "2026-10-25T02:30"], "02:30 once, by the rule");
    // Clocks that go back over two hours, of which one is written.
    let troll = moved("30 1,*/2 25 10 *", "Antarctica/Troll", DstGap::Shift, DstFold::First);
    let fold = instants(&troll, "2026-10-24", "2026-10-26");
    assert_eq!(fold[1..4], ["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T02:30"], "{fold:?}");
}

#[test]
fn a_time_in_a_fold_fires_first_last_or_both_times() {
    let fold =
        |fold| instants(&moved("30 1 * * *", "America/New_York", DstGap::Shift, fold), "2025-11-02", "2025-11-03");
    assert_eq!(fold(DstFold::First), ["2025-11-02T05:30"]);
    assert_eq!(fold(DstFold::Last), ["2025-11-02T06:30"]);
    assert_eq!(fold(DstFold::Both), ["2025-11-02T05:30", "2025-11-02T06:30"]);
    // A search from the middle of the fold neither repeats nor forgets it.
    let daily = |fold| moved("30 1 * * *", "America/New_York", DstGap::Shift, fold);
    let from = at("2025-11-02T05:45:00Z");
    assert_eq!(daily(DstFold::First).next_after(from), Some(at("2025-11-03T06:30:00Z")));
    assert_eq!(daily(DstFold::Last).next_after(from), Some(at("2025-11-02T06:30:00Z")));
    assert_eq!(daily(DstFold::Both).next_after(from), Some(at("2025-11-02T06:30:00Z")));
}

#[test]
fn a_yearly_time_in_a_fold_is_found_from_a_year_before() {
    for (fold, expected) in [
        (DstFold::First, "2025-11-02T05:30:00Z"),
        (DstFold::Last, "2025-11-02T06:30:00Z"),
        (DstFold::Both, "2025-11-02T05:30:00Z"),
    ] {
        let yearly = moved("30 1 2 11 *", "America/New_York", DstGap::Shift, fold);
        assert_eq!(yearly.next_after(at("2025-01-01T00:00:00Z")), Some(at(expected)));
    }
    let yearly = timing("30 2 9 3 *", "America/New_York");
    assert_eq!(yearly.next_after(at("2024-03-20T00:00:00Z")), Some(at("2025-03-09T07:00:00Z")));
    let skipping = moved("30 2 9 3 *", "America/New_York", DstGap::Skip, DstFold::First);
    assert_eq!(skipping.next_after(at("2024-03-20T00:00:00Z")), Some(at("2026-03-09T06:30:00Z")));
}

#[test]
fn half_an_hour_at_lord_howe() {
    let zone = "Australia/Lord_Howe";
    assert_eq!(plain("45 1 5 4 *", zone, "2026-04-01", "2026-04-10"), ["2026-04-04T14:45"]);
    let last = moved("45 1 5 4 *", zone, DstGap::Shift, DstFold::Last);
    assert_eq!(instants(&last, "2026-04-01", "2026-04-10"), ["2026-04-04T15:15"]);
    // 02:00 to 02:30 does not exist on 4 October.
    assert_eq!(plain("15 2 4 10 *", zone, "2026-10-01", "2026-10-10"), ["2026-10-03T15:30"]);
    assert_eq!(plain("45 2 4 10 *", zone, "2026-10-01", "2026-10-10"), ["2026-10-03T15:45"]);
}

#[test]
fn two_hours_at_troll() {
    let zone = "Antarctica/Troll";
    assert_eq!(plain("0,30 1,2 29 3 *", zone, "2026-03-29", "2026-03-30"), ["2026-03-29T01:00"]);
    let both = moved("30 1,2 25 10 *", zone, DstGap::Shift, DstFold::Both);
    assert_eq!(
        instants(&both, "2026-10-24", "2026-10-26"),
        ["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]
    );
}

#[test]
fn a_midnight_that_does_not_exist() {
    // Havana puts its clocks forward at midnight.
    assert_eq!(plain("0 0 * * *", "America/Havana", "2026-03-08", "2026-03-09"), ["2026-03-08T05:00"]);
    assert_eq!(plain("30 0 8 3 *", "America/Havana", "2026-01-01", "2027-01-01"), ["2026-03-08T05:00"]);
    // And back at one, so that midnight exists twice.
    assert_eq!(plain("0 0 * * *", "America/Havana", "2026-11-01", "2026-11-02"), ["2026-11-01T04:00"]);
    assert_eq!(
        plain("@daily", "America/Sao_Paulo", "2018-11-03", "2018-11-06"),
        ["2018-11-03T03:00", "2018-11-04T03:00", "2018-11-05T02:00"]
    );
}

#[test]
fn a_day_that_does_not_exist() {
    // Samoa went from 29 to 31 December 2011 at midnight, which was 10:00 in UTC.
    let zone = "Pacific/Apia";
    assert_eq!(
        plain("0 12 * * *", zone, "2011-12-28", "2012-01-01"),
        ["2011-12-28T22:00", "2011-12-29T22:00", "2011-12-30T10:00", "2011-12-30T22:00", "2011-12-31T22:00"]
    );
    let skipping = moved("0 12 30 12 *", zone, DstGap::Skip, DstFold::First);
    assert_eq!(instants(&skipping, "2011-12-01", "2012-12-31"), ["2012-12-29T22:00"]);
    assert_eq!(plain("0 12 30 12 *", zone, "2011-12-01", "2012-01-01"), ["2011-12-30T10:00"]);
    assert_eq!(plain("0 */12 * * *", zone, "2011-12-30", "2011-12-31"), ["2011-12-30T10:00", "2011-12-30T22:00"]);
}

#[test]
fn unusual_changes_of_clocks() {
    // Casablanca goes back an hour for Ramadan: on 15 February 2026 and forward again on 22 March.
    assert_eq!(plain("30 2 * * *", "Africa/Casablanca", "2026-02-15", "2026-02-16"), ["2026-02-15T01:30"]);
    assert_eq!(plain("30 2 * * *", "Africa/Casablanca", "2026-03-22", "2026-03-23"), ["2026-03-22T02:00"]);
    // Dublin's winter time is the exception in its rules; the instants are London's.
    for cron in ["30 1 * * *", "*/20 * * * *", "15 0-3 * * *"] {
        for (from, to) in [("2026-03-28", "2026-03-31"), ("2026-10-24", "2026-10-27")] {
            assert_eq!(plain(cron, "Europe/Dublin", from, to), plain(cron, "Europe/London", from, to), "{cron}");
        }
    }
    // St. John's moved its clocks at one minute past midnight.
    assert_eq!(plain("30 0 13 3 *", "America/St_Johns", "2011-01-01", "2012-01-01"), ["2011-03-13T03:31"]);
}

#[test]
fn a_change_of_a_zone_within_a_fold_is_in_order() {
    for zone in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "America/Havana"] {
        for cron in ["*/10 * * * *", "*/10 0-4 * * *", "0 */3 * * *", "*/15 * * * * *"] {
            for fold in [DstFold::First, DstFold::Last, DstFold::Both] {
                let timing = moved(cron, zone, DstGap::Shift, fold);
                for (from, to) in
                    [("2026-03-28", "2026-03-31"), ("2026-10-24", "2026-10-27"), ("2026-11-01", "2026-11-03")]
                {
                    let fired = instants(&timing, from, to);
                    assert!(fired.len() > 10 && fired.is_sorted_by(|a, b| a < b), "{cron} {zone} {fold:?}");
                }
            }
        }
    }
}
