//! The rules of the homes, one by one. `model` checks all of them together.

use punctual_core::breakers::{BreakerKey, OpenBreaker, Runs};

use super::*;

mod model;

pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A lane of tenant `t`; an empty target means that it is pulled.
pub(super) fn lane_of(number: i64, queue: &str, priority: u8, target: &str) -> Arc<Lane> {
    let route = if target.is_empty() { Route::Pull } else { Route::Push(target.to_owned()) };
    let key = LaneKey { tenant: "t".into(), queue: queue.into(), kind: "k".into(), priority, route };
    Arc::new(Lane { id: LaneId::new(number), key })
}

fn lane(number: i64, priority: u8) -> Arc<Lane> {
    lane_of(number, "q", priority, "")
}

fn id(number: i64) -> LaneId {
    LaneId::new(number)
}

pub(super) fn open(keys: &[BreakerKey]) -> Arc<OpenBreakers> {
    let mut open = OpenBreakers::default();
    for key in keys {
        open.insert(OpenBreaker {
            key: key.clone(),
            opened_at: at(0),
            next_probe_at: at(0),
            runs: Runs::default(),
            reason: String::new(),
            half_open: false,
            probe: None,
            overtaken: Vec::new(),
            last_probe: None,
        });
    }
    Arc::new(open)
}

fn ready(lanes: &Lanes) -> Vec<i64> {
    let queue = PollKey::Queue("t".into(), "q".into());
    lanes.ready().pulled(&queue).into_iter().flatten().map(|rank| rank.lane.number()).collect()
}

fn pushed(lanes: &Lanes) -> Vec<i64> {
    lanes.ready().pushed().tenants().values().flatten().map(|rank| rank.lane.number()).collect()
}

#[test]
fn a_lane_is_ready_from_its_due_instant_on() {
    let mut lanes = Lanes::new(1_000, 0);
    lanes.note(&lane(1, 5), at(500), at(0));
    assert_eq!(lanes.next_wakeup(), Some(at(500)));
    lanes.make_due_ready(at(499));
    assert!(ready(&lanes).is_empty());
    lanes.make_due_ready(at(500));
    assert_eq!((ready(&lanes), lanes.next_wakeup()), (vec![1], None));
    assert_eq!(lanes.take_newly_ready().len(), 2);
}

#[test]
fn only_lanes_that_are_pulled_are_ready_ahead() {
    let mut lanes = Lanes::new(1_000, 20);
    lanes.note(&lane(1, 5), at(500), at(0));
    lanes.note(&lane_of(2, "q", 5, "a"), at(500), at(0));
    lanes.make_due_ready(at(479));
    assert!(ready(&lanes).is_empty());
    lanes.make_due_ready(at(480));
    assert_eq!((ready(&lanes), pushed(&lanes)), (vec![1], vec![]));
    lanes.make_due_ready(at(500));
    assert_eq!((ready(&lanes), pushed(&lanes)), (vec![1], vec![2]));
    lanes.correct(id(1), Some(at(520)), at(500));
    assert_eq!(ready(&lanes), [1], "what is due next is nearly due as well");
}

#[test]
fn the_more_urgent_and_then_the_older_comes_first() {
    let mut lanes = Lanes::new(1_000, 0);
    for (number, priority, due) in [(1, 5, 10), (2, 9, 90), (3, 5, 5), (4, 0, 0)] {
        lanes.note(&lane(number, priority), at(due), at(100));
        lanes.note(&lane_of(number + 4, "q", priority, "a"), at(due), at(100));
    }
    assert_eq!(ready(&lanes), [2, 3, 1, 4]);
    let levels = by_priority(&lanes.ready().pushed().tenants()["t"]);
    let levels: Vec<Vec<i64>> = levels.map(|level| level.map(|rank| rank.lane.number()).collect()).collect();
    assert_eq!(levels, [vec![6], vec![7, 5], vec![8]]);
}

#[test]
fn a_hint_makes_a_head_earlier_and_a_claim_corrects_it() {
    let mut lanes = Lanes::new(1_000, 0);
    lanes.note(&lane(1, 5), at(100), at(0));
    lanes.note(&lane(1, 5), at(200), at(0));
    assert_eq!(lanes.next_wakeup(), Some(at(100)));
    lanes.note(&lane(1, 5), at(50), at(0));
    assert_eq!(lanes.next_wakeup(), Some(at(50)));
    lanes.make_due_ready(at(60));
    lanes.correct(id(1), Some(at(300)), at(60));
    assert_eq!(lanes.home(id(1)), Some(Home::Waiting { head: at(300), ready_at: at(300) }));
    lanes.make_due_ready(at(300));
    assert_eq!(ready(&lanes), [1]);
    lanes.correct(id(1), None, at(300));
    assert_eq!(lanes.home(id(1)), None);
}

#[test]
fn the_sweep_makes_ready_lanes_later_and_forgets_empty_ones() {
    let mut lanes = Lanes::new(1_000, 0);
    for number in 1..=4 {
        lanes.note(&lane(number, 5), at(0), at(0));
    }
    lanes.note_swept(&lane(1, 5), at(500), at(0));
    lanes.note_swept(&lane(2, 5), at(0), at(0));
    assert_eq!(ready(&lanes), [2, 3, 4]);
    let (found, claim) = (HashSet::from([id(1), id(2)]), ClaimScope::Pull(vec!["t".into()]));
    lanes.begin_claim(&claim);
    lanes.forget_unswept(None, None, &found);
    assert_eq!(ready(&lanes), [2, 3, 4], "lanes in a claim are spared");
    lanes.end_claim(&claim);
    lanes.forget_unswept(None, None, &found);
    assert_eq!(ready(&lanes), [2]);
    lanes.make_due_ready(at(500));
    assert_eq!(ready(&lanes), [2, 1]);
}

#[test]
fn lanes_due_beyond_the_window_are_left_to_the_sweep() {
    let mut lanes = Lanes::new(1_000, 0);
    lanes.note(&lane(1, 5), at(1_001), at(0));
    assert_eq!(lanes.home(id(1)), None);
    lanes.note(&lane(1, 5), at(1_000), at(0));
    assert!(lanes.home(id(1)).is_some());
}

#[test]
fn the_oldest_head_of_each_band_is_known() {
    let mut lanes = Lanes::new(1_000, 0);
    lanes.note(&lane(1, 5), at(100), at(0));
    assert_eq!(lanes.waits_since(Band::Normal), None, "not due yet");
    lanes.make_due_ready(at(200));
    lanes.note(&lane(2, 6), at(50), at(200));
    lanes.note_backlog(&lane_of(3, "q", 0, "a"), at(150));
    let since = |lanes: &Lanes| Band::ALL.map(|band| lanes.waits_since(band).map(Timestamp::as_millis));
    assert_eq!(since(&lanes), [None, Some(50), Some(150)]);
    lanes.correct(id(2), Some(at(300)), at(200));
    lanes.correct_backlog(id(3), None, Some(at(200)), at(200));
    assert_eq!(since(&lanes), [None, Some(100), None]);
}

#[test]
fn a_lane_has_a_backlog_beside_its_home() {
    let (mut lanes, both) = (Lanes::new(1_000, 0), lane_of(1, "q", 5, "a"));
    lanes.note(&both, at(10), at(100));
    lanes.note_backlog(&both, at(10));
    lanes.correct(id(1), None, at(100));
    assert_eq!(lanes.home(id(1)), Some(Home::Backlog), "nothing came due since");
    lanes.note(&both, at(100), at(100));
    assert_eq!((lanes.home(id(1)), lanes.has_backlog(id(1))), (Some(Home::Ready { head: at(100) }), true));
    lanes.correct_backlog(id(1), Some(at(20)), Some(at(50)), at(100));
    assert!(lanes.has_backlog(id(1)), "more of it was due before this node owned the lane");
    lanes.correct_backlog(id(1), Some(at(60)), Some(at(50)), at(100));
    assert_eq!((lanes.home(id(1)), lanes.has_backlog(id(1))), (Some(Home::Ready { head: at(60) }), false));
}

#[test]
fn a_limited_lane_is_tried_again_after_a_second_at_the_latest() {
    let mut lanes = Lanes::new(10_000, 0);
    for (number, until) in [(1, Some(at(130))), (2, None), (3, Some(at(99_000)))] {
        lanes.note(&lane(number, 5), at(number), at(100));
        lanes.limit(id(number), until, at(100));
    }
    assert_eq!((ready(&lanes), lanes.next_wakeup()), (vec![], Some(at(130))));
    lanes.release_limited(false, [], at(129));
    assert!(ready(&lanes).is_empty());
    lanes.release_limited(false, [], at(130));
    assert_eq!((ready(&lanes), lanes.next_wakeup()), (vec![1], Some(at(1_100))));
    lanes.release_limited(false, [], at(1_100));
    assert_eq!(ready(&lanes), [1, 2, 3]);
}

#[test]
fn a_change_of_limits_releases_the_lanes_of_its_queue() {
    let mut lanes = Lanes::new(10_000, 0);
    for (number, queue) in [(1, "q"), (2, "other"), (3, "q")] {
        lanes.note(&lane_of(number, queue, 5, ""), at(50), at(100));
        lanes.limit(id(number), None, at(100));
    }
    lanes.note(&lane(3, 5), at(20), at(100));
    lanes.note(&lane(3, 5), at(30), at(100));
    lanes.release_limited(false, [("t".into(), "q".into())], at(100));
    assert_eq!(ready(&lanes), [3, 1]);
    assert!(matches!(lanes.home(id(2)), Some(Home::Limited { .. })));
    lanes.release_limited(true, [], at(100));
    assert_eq!(lanes.home(id(2)), Some(Home::Ready { head: at(50) }));
}

#[test]
fn a_change_of_limits_during_a_claim_holds_for_its_answer_too() {
    let (mut lanes, claim) = (Lanes::new(10_000, 0), ClaimScope::Pull(vec!["t".into()]));
    lanes.note(&lane(1, 5), at(50), at(100));
    lanes.begin_claim(&claim);
    lanes.release_limited(false, [("t".into(), "q".into())], at(100));
    lanes.end_claim(&claim);
    lanes.limit(id(1), None, at(100));
    lanes.release_limited(false, [], at(100));
    assert_eq!(ready(&lanes), [1]);
    lanes.limit(id(1), None, at(100));
    lanes.release_limited(false, [], at(100));
    assert_eq!(ready(&lanes), [] as [i64; 0], "no claim was under way any more");
}

#[test]
fn a_hint_waits_for_the_answer_of_the_claim_at_its_lane() {
    let (mut lanes, claim) = (Lanes::new(10_000, 0), ClaimScope::Push);
    lanes.begin_claim(&claim);
    assert!(!lanes.defer(&lane(1, 5), at(50)), "it is pulled");
    assert!(lanes.defer(&lane_of(2, "q", 5, "a"), at(50)) && lanes.defer(&lane_of(2, "q", 5, "a"), at(40)));
    lanes.end_claim(&claim);
    let deferred: Vec<_> = lanes.take_deferred().map(|(lane, due_at)| (lane.id, due_at)).collect();
    assert_eq!(deferred, [(id(2), at(40))]);
    assert!(!lanes.defer(&lane_of(2, "q", 5, "a"), at(50)));
}

fn under(lanes: &Lanes, key: &BreakerKey, now: i64) -> Vec<i64> {
    let mut numbers: Vec<i64> = lanes.probe_candidates(key, at(now)).iter().map(|lane| lane.id.number()).collect();
    numbers.sort_unstable();
    numbers
}

/// A pulled lane, two of target `a` and one of target `b`, under the tenant's breaker.
fn under_a_breaker() -> Lanes {
    let mut lanes = Lanes::new(10_000, 0);
    for (number, target) in [(1, ""), (2, "a"), (3, "a"), (4, "b")] {
        lanes.note(&lane_of(number, "q", 5, target), at(number * 10), at(0));
    }
    lanes.set_breakers(open(&[BreakerKey::of_tenant("t")]), at(0));
    lanes
}

#[test]
fn a_tenants_breaker_is_over_all_its_lanes() {
    let lanes = under_a_breaker();
    assert_eq!(under(&lanes, &BreakerKey::of_tenant("t"), 100), [1, 2, 3, 4]);
    assert_eq!(under(&lanes, &BreakerKey::of_tenant("t"), 25), [1, 2], "the others are not due");
    assert_eq!(under(&lanes, &BreakerKey::new("t", "a"), 100), [2, 3]);
    assert_eq!(under(&lanes, &BreakerKey::new("u", "b"), 100), [] as [i64; 0]);
}

#[test]
fn a_probe_corrects_the_head_of_its_lane() {
    let mut lanes = under_a_breaker();
    lanes.note(&lane_of(3, "q", 5, "a"), at(5), at(0));
    lanes.note(&lane_of(3, "q", 5, "a"), at(50), at(0));
    assert_eq!(under(&lanes, &BreakerKey::new("t", "a"), 5), [3]);
    lanes.correct(id(3), Some(at(70)), at(0));
    assert_eq!(under(&lanes, &BreakerKey::new("t", "a"), 5), [3], "an older claim does not");
    lanes.correct_probed(id(3), Some(at(40)), at(0));
    assert_eq!(under(&lanes, &BreakerKey::new("t", "a"), 39), [2]);
    lanes.correct_probed(id(3), None, at(0));
    assert_eq!(lanes.home(id(3)), None);
}

#[test]
fn lanes_are_released_when_their_breaker_closes() {
    let mut lanes = under_a_breaker();
    lanes.set_breakers(open(&[BreakerKey::new("t", "a")]), at(100));
    assert_eq!((ready(&lanes), pushed(&lanes)), (vec![1], vec![4]));
    assert_eq!(under(&lanes, &BreakerKey::new("t", "a"), 100), [2, 3]);
    lanes.set_breakers(Arc::default(), at(100));
    assert_eq!(pushed(&lanes), [2, 3, 4]);
}

#[test]
fn a_limited_lane_goes_under_its_breaker_when_it_is_released() {
    let mut lanes = Lanes::new(10_000, 0);
    lanes.note(&lane(1, 5), at(50), at(100));
    lanes.limit(id(1), None, at(100));
    lanes.set_breakers(open(&[BreakerKey::of_tenant("t")]), at(100));
    lanes.note(&lane(1, 5), at(40), at(100));
    assert!(matches!(lanes.home(id(1)), Some(Home::Limited { .. })));
    lanes.release_limited(true, [], at(100));
    assert_eq!(lanes.home(id(1)), Some(Home::UnderBreaker { head: at(40) }));
}

#[test]
fn probes_avoid_a_queue_at_its_limit_for_a_while() {
    let mut lanes = under_a_breaker();
    lanes.note(&lane_of(6, "other", 5, ""), at(60), at(0));
    let (of_tenant, full) = (BreakerKey::of_tenant("t"), lane(1, 5).key.clone());
    lanes.avoid_in_probes(&full, Some(at(130)), at(100));
    assert_eq!(under(&lanes, &of_tenant, 129), [6]);
    assert_eq!(under(&lanes, &of_tenant, 130), [1, 2, 3, 4, 6]);
    lanes.avoid_in_probes(&full, None, at(100));
    assert_eq!((under(&lanes, &of_tenant, 1_099), under(&lanes, &of_tenant, 1_100).len()), (vec![6], 5));
    assert!(!lanes.release_limited(false, [("t".into(), "other".into())], at(100)), "they did not avoid it");
    assert!(lanes.release_limited(false, [("t".into(), "q".into())], at(100)));
    assert_eq!(under(&lanes, &of_tenant, 100).len(), 5);
    lanes.avoid_in_probes(&full, Some(at(99_000)), at(100));
    assert!(lanes.release_limited(true, [], at(100)) && !lanes.release_limited(true, [], at(100)));
}

#[test]
fn lanes_that_concern_the_node_no_more_are_forgotten() {
    let mut lanes = under_a_breaker();
    lanes.note_backlog(&lane_of(7, "q", 6, "u"), at(0));
    lanes.retain(|key| key.route != Route::Pull && key.priority == 5);
    assert_eq!(lanes.home(id(7)), None);
    assert_eq!(under(&lanes, &BreakerKey::of_tenant("t"), 100), [2, 3, 4]);
    assert!(lanes.backlog().is_empty());
}
