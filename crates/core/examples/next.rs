//! How long it takes to find the next instant of a schedule.
//!
//! `cargo run --release -p punctual-core --example next`
//!
//! Every class of expressions that the tests know, in zones with many and odd changes of clocks,
//! from right before such a change, from within it and from months before; and the rarest dates
//! from years whose century has no leap year. Each search is made some times and its quickest
//! counts, so that what else the machine does is not measured.

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use jiff::tz::TimeZoneDatabase;
use punctual_core::cron::{CronExpression, DstFold, DstGap, Pattern, Timing, TimingRules, Zone};
use punctual_core::time::Timestamp;

#[path = "../src/cron/tests/oracle/classes.rs"]
mod classes;

use classes::{CLASSES, Change};

const ZONES: [&str; 15] = [
    "UTC",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Africa/El_Aaiun",
    "America/Ciudad_Juarez",
    "America/New_York",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Europe/Berlin",
    "Europe/Dublin",
    "Pacific/Apia",
];

/// 29 February, and that on a weekday: once in 40 years.
const RARE: [&str; 6] =
    ["0 0 29 2 *", "30 2 29 2 *", "59 59 23 29 2 *", "0 0 * 2 MON#5", "0 0 29 2 */7", "30 2 */28 2 THU#5"];

/// From where the next of those is far away.
const FAR: [&str; 5] = [
    "1896-03-01T00:00:00Z",
    "1896-02-29T12:00:00Z",
    "2072-03-01T00:00:00Z",
    "2088-03-01T00:00:00Z",
    "2096-03-01T00:00:00Z",
];

/// 2000-01-01 and 2038-01-01.
const YEARS: (i64, i64) = (946_684_800, 2_145_916_800);

const DAY: i64 = 86_400;

/// How often each search is made.
const TIMES: u32 = 5;

const RULES: [(DstGap, DstFold); 3] =
    [(DstGap::Shift, DstFold::First), (DstGap::Shift, DstFold::Last), (DstGap::Skip, DstFold::Both)];

fn main() {
    let mut at_changes = Measured::default();
    for zone in ZONES {
        let changes = changes(zone);
        let mut parsed: HashMap<String, CronExpression> = HashMap::new();
        for change in &changes {
            let size = (change.after - change.before).abs();
            for text in CLASSES.iter().map(|class| class.filled_in(change)) {
                let cron =
                    parsed.entry(text).or_insert_with_key(|text| CronExpression::parse(text).expect("an expression"));
                for timing in RULES.map(|rules| timing(cron, zone, rules)) {
                    for second in [change.at - 60 * DAY, change.at - 1, change.at + size / 2, change.at + DAY] {
                        at_changes.measure(&timing, Timestamp::from_millis(second * 1_000));
                    }
                }
            }
        }
    }
    let mut from_afar = Measured::default();
    for (zone, text) in ZONES.iter().flat_map(|zone| RARE.map(|text| (zone, text))) {
        let cron = CronExpression::parse(text).expect("an expression");
        for timing in RULES.map(|rules| timing(&cron, zone, rules)) {
            for after in FAR {
                from_afar.measure(&timing, Timestamp::parse(after).expect("an instant"));
            }
        }
    }
    at_changes.report("at changes of clocks");
    from_afar.report("rare dates from afar");
}

fn timing(cron: &CronExpression, zone: &str, (dst_gap, dst_fold): (DstGap, DstFold)) -> Timing {
    let zone = Zone::named(zone).expect("a zone");
    Timing {
        pattern: Pattern::Cron(cron.clone()),
        rules: TimingRules { zone, dst_gap, dst_fold, ..TimingRules::default() },
    }
}

/// The changes of a zone's clocks; of one that has none a day as any other.
fn changes(zone: &str) -> Vec<Change> {
    let rules = TimeZoneDatabase::bundled().get(zone).expect("a zone");
    let instant = |second| jiff::Timestamp::from_second(second).expect("an instant");
    let ahead = |second| i64::from(rules.to_offset(instant(second)).seconds());
    let following = rules.following(instant(YEARS.0)).map(|transition| transition.timestamp().as_second());
    let found: Vec<Change> = following
        .take_while(|at| *at < YEARS.1)
        .map(|at| Change { at, before: ahead(at - 1), after: ahead(at) })
        .collect();
    if found.is_empty() { vec![Change { at: YEARS.0, before: 0, after: 3_600 }] } else { found }
}

/// How long searches took, and what the longest was for.
#[derive(Default)]
struct Measured {
    took: Vec<Duration>,
    longest: (Duration, String),
}

impl Measured {
    fn measure(&mut self, timing: &Timing, after: Timestamp) {
        let mut quickest = Duration::MAX;
        for _ in 0..TIMES {
            let begun = Instant::now();
            black_box(black_box(timing).next_after(black_box(after)));
            quickest = quickest.min(begun.elapsed());
        }
        if quickest > self.longest.0 {
            let TimingRules { zone, dst_gap, dst_fold, .. } = &timing.rules;
            let Pattern::Cron(cron) = &timing.pattern else { return };
            self.longest =
                (quickest, format!("{:?} in {zone} after {after}, {dst_gap:?}, {dst_fold:?}", cron.as_str()));
        }
        self.took.push(quickest);
    }

    fn report(mut self, what: &str) {
        self.took.sort_unstable();
        let at = |percent: usize| self.took[(self.took.len() - 1) * percent / 100];
        println!("{what}: {} searches, p50 {:?}, p99 {:?}, longest {:?}", self.took.len(), at(50), at(99), at(100));
        println!("  the longest: {}", self.longest.1);
    }
}
