//! The wheel against a map of the same keys, and each edge by name.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const YEAR: i64 = 31_557_600_000;
const NOW: i64 = 1_779_472_800_123;
/// Where the top level begins a new turn, so that all that lies after it is beyond the wheel.
const EDGE: i64 = 26 << TOP_BITS;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn wheel_at<const N: usize>(now: i64, entries: [(u32, i64); N]) -> Wheel<u32> {
    let mut wheel = Wheel::new(at(now));
    for (key, due) in entries {
        wheel.schedule(key, at(due));
    }
    wheel
}

fn advance(wheel: &mut Wheel<u32>, now: i64) -> Vec<u32> {
    let mut fired = Vec::new();
    wheel.advance(at(now), &mut fired);
    fired
}

#[test]
fn an_empty_wheel_never_wakes() {
    let mut wheel = wheel_at(NOW, []);
    assert!(wheel.is_empty());
    assert_eq!(wheel.next_wakeup(), None);
    assert_eq!(advance(&mut wheel, NOW + 200 * YEAR), [0_u32; 0]);
}

#[test]
fn an_entry_fires_at_its_millisecond_and_not_before() {
    for level in 0..=8 {
        for distance in [(1 << (6 * level)) - 1, 1 << (6 * level), (1 << (6 * level)) + 1] {
            for now in [0, NOW, EDGE - 1, EDGE, -NOW] {
                let due = now + distance;
                let mut wheel = wheel_at(now, [(7, due)]);
                assert_eq!(advance(&mut wheel, due - 1), [0_u32; 0]);
                assert_eq!(advance(&mut wheel, due), [7]);
                assert!(wheel.is_empty());
            }
        }
    }
}

#[test]
fn keys_fire_in_order_of_due_and_then_of_schedule() {
    let mut wheel = wheel_at(NOW, [(1, NOW + 9), (2, NOW + 5000), (3, NOW - 4), (4, NOW + 9), (5, NOW + 9)]);
    wheel.schedule(1, at(NOW + 10));
    wheel.schedule(1, at(NOW + 9)); // given anew: after 4 and 5
    wheel.schedule(4, at(NOW + 9)); // has it already: stays before 5
    let mut fired = vec![99];
    wheel.advance(at(NOW + YEAR), &mut fired);
    assert_eq!(fired, [99, 3, 4, 5, 1, 2]);
}

#[test]
fn a_key_has_one_entry_that_moves_both_ways() {
    let mut wheel = wheel_at(NOW, [(1, NOW + 100), (1, NOW + 10), (2, NOW + 10), (2, NOW + 100_000)]);
    assert_eq!(wheel.len(), 2);
    assert_eq!(wheel.due_of(1), Some(at(NOW + 10)));
    assert_eq!(advance(&mut wheel, NOW + 10), [1]);
    assert_eq!(wheel.due_of(1), None);
    assert_eq!(advance(&mut wheel, NOW + 99_999), [0_u32; 0]);
    assert_eq!(advance(&mut wheel, NOW + 100_000), [2]);
}

#[test]
fn a_cancelled_key_does_not_fire() {
    let mut wheel = wheel_at(NOW, [(1, NOW + 10), (2, NOW + 10), (3, NOW + 10), (4, NOW - 1), (5, NOW + 9 * YEAR)]);
    for key in [2, 4, 5] {
        assert!(wheel.cancel(key));
        assert!(!wheel.cancel(key));
    }
    assert_eq!(advance(&mut wheel, NOW + 10 * YEAR), [1, 3]);
}

#[test]
fn what_is_due_in_the_past_fires_on_the_next_advance() {
    let mut wheel = wheel_at(NOW, [(1, NOW), (2, NOW - YEAR), (3, i64::MIN)]);
    assert!(wheel.next_wakeup() <= Some(at(NOW - YEAR)));
    assert_eq!(advance(&mut wheel, NOW), [3, 2, 1]);
}

#[test]
fn a_clock_that_goes_back_fires_nothing_that_is_not_due_by_it() {
    let mut wheel = wheel_at(NOW, [(1, NOW + 10), (2, NOW + 70)]);
    assert_eq!(advance(&mut wheel, NOW + 5), [0_u32; 0]);
    assert_eq!(advance(&mut wheel, NOW - YEAR), [0_u32; 0]);
    assert_eq!(advance(&mut wheel, i64::MIN), [0_u32; 0]);
    // Scheduled behind the position: found when the clock that went back reaches them, without busy wake-ups.
    wheel.schedule(3, at(NOW - 20));
    wheel.schedule(4, at(NOW - 10));
    assert_eq!(wheel.next_wakeup(), Some(at(NOW - 20)));
    assert_eq!(advance(&mut wheel, NOW - 21), [0_u32; 0]);
    assert_eq!(advance(&mut wheel, NOW - 20), [3]);
    assert_eq!(wheel.next_wakeup(), Some(at(NOW - 10)));
    assert_eq!(advance(&mut wheel, NOW + 10), [4, 1]);
    assert_eq!(advance(&mut wheel, NOW + 70), [2]);
}

#[test]
fn what_lies_beyond_the_top_level_is_kept() {
    let due = Timestamp::MAX.as_millis();
    let mut wheel = wheel_at(NOW, [(1, due), (2, due - 1), (3, NOW + 3 * YEAR)]);
    assert_eq!(advance(&mut wheel, NOW + 3 * YEAR - 1), [0_u32; 0]);
    assert_eq!(advance(&mut wheel, NOW + 3 * YEAR), [3]);
    assert_eq!(advance(&mut wheel, due - 2), [0_u32; 0]);
    assert_eq!(advance(&mut wheel, due), [2, 1]);
}

#[test]
fn the_far_future_is_reached_in_a_wakeup_for_each_level() {
    let mut wheel = wheel_at(NOW, [(1, Timestamp::MAX.as_millis())]);
    let mut wakeups = 0;
    while let Some(wakeup) = wheel.next_wakeup() {
        advance(&mut wheel, wakeup.as_millis());
        wakeups += 1;
    }
    assert_eq!(wakeups, LEVELS + 1);
}

#[test]
fn the_ends_of_time_are_instants_like_any_other() {
    let mut wheel = wheel_at(i64::MIN, [(1, i64::MIN), (2, i64::MIN + 1), (3, -1), (4, 0), (5, i64::MAX)]);
    assert_eq!(advance(&mut wheel, i64::MIN), [1]);
    assert_eq!(advance(&mut wheel, -1), [2, 3]);
    assert_eq!(advance(&mut wheel, i64::MAX - 1), [4]);
    assert_eq!(advance(&mut wheel, i64::MAX), [5]);
    wheel.schedule(6, at(i64::MAX));
    assert_eq!(advance(&mut wheel, i64::MAX), [6]);
}

/// Would not end in a lifetime if empty time cost anything by the tick.
#[test]
fn empty_time_costs_nothing() {
    let mut wheel = wheel_at(NOW, [(1, i64::MAX)]);
    for jump in 1..=100_000 {
        assert_eq!(advance(&mut wheel, NOW + jump * 200 * YEAR), [0_u32; 0]);
    }
    assert_eq!(advance(&mut wheel, i64::MAX), [1]);
}

#[test]
fn an_advance_touches_only_the_slots_it_passes() {
    assert_eq!(passed_slots(0, 0, 2), 0b111);
    assert_eq!(passed_slots(0, 0, 63), u64::MAX);
    assert_eq!(passed_slots(0, 63, 64), u64::MAX);
    assert_eq!(passed_slots(1, 63, 64), 0b11);
    assert_eq!(passed_slots(5, 63, 64), 0b1);
}

#[test]
fn a_jump_over_many_entries_fires_them_all_in_order() {
    let mut wheel = Wheel::new(at(NOW));
    for key in 0..50_000_u32 {
        wheel.schedule(key, at(NOW + i64::from(key.wrapping_mul(2_654_435_761)) * 1_500));
    }
    let mut expected: Vec<u32> = (0..50_000).collect();
    expected.sort_by_key(|&key| wheel.due_of(key));
    assert_eq!(advance(&mut wheel, NOW + 205 * YEAR), expected);
    assert!(wheel.is_empty());
}

#[test]
fn memory_is_bounded_by_the_most_keys_at_once() {
    let mut wheel = wheel_at(NOW, []);
    let mut now = NOW;
    for round in 0..100_000_u32 {
        let key = round % 50;
        wheel.schedule(key, at(now + i64::from(round % 977) * 64));
        if round % 7 == 0 {
            wheel.cancel((key + 25) % 50);
        }
        if round % 11 == 0 {
            now += 640;
            advance(&mut wheel, now);
        }
    }
    assert!(wheel.chains.capacity_used() <= 50, "{} nodes for 50 keys", wheel.chains.capacity_used());
}

/// An instant as a test case names it, since it cannot know where the clock will stand.
#[derive(Clone, Debug)]
enum Aim {
    /// So far from the clock.
    Offset(i64),
    /// So far from the start of the next slot of this level.
    Boundary(u32, i64),
    Instant(i64),
}

impl Aim {
    fn from(&self, now: i64) -> Timestamp {
        at(match *self {
            Self::Offset(offset) => now.saturating_add(offset),
            Self::Boundary(level, offset) => {
                ((now >> (6 * level)) + 1).saturating_mul(1 << (6 * level)).saturating_add(offset)
            }
            Self::Instant(instant) => instant,
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Schedule(u32, Aim),
    Cancel(u32),
    Advance(Aim),
}

fn aim() -> impl Strategy<Value = Aim> {
    prop_oneof![
        4 => (0..8_u32, -2..=2_i64).prop_map(|(level, near)| Aim::Offset((1 << (6 * level)) + near)),
        4 => (0..8_u32, -2..=2_i64).prop_map(|(level, near)| Aim::Boundary(level, near)),
        2 => (0..200_i64).prop_map(Aim::Offset),
        1 => (0..8_u32, -2..=2_i64).prop_map(|(level, near)| Aim::Offset(near - (1 << (6 * level)))),
    ]
}

fn due() -> impl Strategy<Value = Aim> {
    prop_oneof![
        8 => aim(),
        1 => (-2..=2_i64).prop_map(|near| Aim::Instant(Timestamp::MAX.as_millis() + near)),
        1 => any::<i64>().prop_map(Aim::Instant),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..12_u32;
    prop_oneof![
        10 => (key(), due()).prop_map(|(key, due)| Step::Schedule(key, due)),
        2 => key().prop_map(Step::Cancel),
        4 => aim().prop_map(Step::Advance),
        1 => (0..200 * YEAR).prop_map(|jump| Step::Advance(Aim::Offset(jump))),
    ]
}

/// The wheel as a map, which every operation compares it with.
struct Twin {
    wheel: Wheel<u32>,
    /// Due instant and order of schedule.
    map: HashMap<u32, (Timestamp, usize)>,
    schedules: usize,
    /// Whether an entry ever left other than by firing.
    removed: bool,
}

impl Twin {
    fn new(now: i64) -> Self {
        Self { wheel: Wheel::new(at(now)), map: HashMap::new(), schedules: 0, removed: false }
    }

    fn schedule(&mut self, key: u32, due: Timestamp) {
        self.wheel.schedule(key, due);
        self.schedules += 1;
        let entry = self.map.entry(key).or_insert((due, self.schedules));
        if entry.0 != due {
            *entry = (due, self.schedules);
            self.removed = true;
        }
    }

    fn cancel(&mut self, key: u32) {
        let known = self.map.remove(&key).is_some();
        assert_eq!(self.wheel.cancel(key), known);
        self.removed |= known;
    }

    /// Returns whether anything fired.
    fn advance(&mut self, now: Timestamp) -> bool {
        let mut expected: Vec<u32> = self.map.keys().copied().filter(|key| self.map[key].0 <= now).collect();
        expected.sort_by_key(|key| self.map[key]);
        self.map.retain(|_, &mut (due, _)| due > now);
        assert_eq!(advance(&mut self.wheel, now.as_millis()), expected);
        !expected.is_empty()
    }

    fn check(&self) {
        let wheel = &self.wheel;
        assert_eq!(wheel.len(), self.map.len());
        assert_eq!(wheel.is_empty(), self.map.is_empty());
        for (&key, &(due, _)) in &self.map {
            assert_eq!(wheel.due_of(key), Some(due));
            assert_eq!(wheel.chains.chain(wheel.index[&key]), wheel.chain_of(tick(due)), "place of {key}");
        }
        for chain in 0..LATE {
            let occupied = wheel.occupied[chain / SLOTS] >> (chain % SLOTS) & 1 == 1;
            assert_eq!(occupied, !wheel.chains.is_empty(chain), "bit of chain {chain}");
        }
        let first = self.map.values().map(|&(due, _)| due).min();
        assert_eq!(wheel.next_wakeup().is_some(), first.is_some());
        assert!(wheel.next_wakeup() <= first, "wakes at {:?}, due at {first:?}", wheel.next_wakeup());
    }

    /// Sleeps from wake-up to wake-up until all has fired, none of it in more than a step for each level and one.
    fn sleep_through(&mut self) {
        // The floors of `LATE` and `BEYOND` may each be that of an entry no longer there, once.
        let mut spare = if self.removed { 2 } else { 0 };
        let mut steps = 0;
        while let Some(wakeup) = self.wheel.next_wakeup() {
            steps += 1;
            if self.advance(wakeup) {
                steps = 0;
            } else if steps > LEVELS {
                assert!(spare > 0, "{steps} wake-ups and nothing fired");
                spare -= 1;
                steps -= 1;
            }
            self.check();
        }
        assert!(self.map.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn the_wheel_is_a_sorted_map(
        start in prop_oneof![Just(0), Just(NOW), Just(-NOW), (-2..=2_i64).prop_map(|near| EDGE + near)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut twin = Twin::new(start);
        let mut clock = start;
        for step in steps {
            match step {
                Step::Schedule(key, due) => twin.schedule(key, due.from(clock)),
                Step::Cancel(key) => twin.cancel(key),
                Step::Advance(to) => {
                    clock = to.from(clock).as_millis();
                    twin.advance(at(clock));
                }
            }
            twin.check();
        }
        twin.sleep_through();
    }
}
