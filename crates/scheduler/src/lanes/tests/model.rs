//! Random operations against a model that keeps a plain map for each home.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use punctual_core::breakers::BreakerKey;
use punctual_core::lane::{Lane, LaneId, Route};
use punctual_core::time::Timestamp;

use super::{at, lane_of, open};
use crate::lanes::{Home, Lanes};

const WINDOW: i64 = 1_000;
const AHEAD: i64 = 20;
const LANES: usize = 8;

#[derive(Clone, Debug)]
enum Step {
    Note(usize, i64),
    Found(usize, i64),
    FoundOnly(Vec<usize>),
    Correct(usize, Option<i64>),
    CorrectProbed(usize, Option<i64>),
    NoteBacklog(usize, i64),
    CorrectBacklog(usize, Option<i64>, Option<i64>),
    Limit(usize, Option<i64>),
    Release(bool, Vec<usize>),
    Breakers(Vec<usize>),
    Retain(Vec<usize>),
    Advance(i64),
}

/// Instants are offsets from the clock: within the window, beyond it, and in the past.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![-300_i64..300, 900_i64..1_100]
}

fn step() -> impl Strategy<Value = Step> {
    let lane = || 0..LANES;
    let some = || proptest::collection::vec(0..LANES, 0..LANES);
    let maybe = || proptest::option::weighted(0.7, offset());
    prop_oneof![
        6 => (lane(), offset()).prop_map(|(lane, due)| Step::Note(lane, due)),
        2 => (lane(), offset()).prop_map(|(lane, due)| Step::Found(lane, due)),
        1 => some().prop_map(Step::FoundOnly),
        4 => (lane(), maybe()).prop_map(|(lane, head)| Step::Correct(lane, head)),
        2 => (lane(), maybe()).prop_map(|(lane, head)| Step::CorrectProbed(lane, head)),
        3 => (lane(), -300_i64..0).prop_map(|(lane, due)| Step::NoteBacklog(lane, due)),
        3 => (lane(), maybe(), proptest::option::of(-300_i64..300))
            .prop_map(|(lane, head, since)| Step::CorrectBacklog(lane, head, since)),
        3 => (lane(), maybe()).prop_map(|(lane, until)| Step::Limit(lane, until)),
        2 => (any::<bool>(), some()).prop_map(|(all, lanes)| Step::Release(all, lanes)),
        2 => some().prop_map(Step::Breakers),
        1 => some().prop_map(Step::Retain),
        4 => (0_i64..400).prop_map(Step::Advance),
    ]
}

/// Half of the lanes are pulled; each has a queue, and if it is pushed a target, of its own.
fn lane(number: usize) -> Arc<Lane> {
    let target = if number.is_multiple_of(2) { String::new() } else { number.to_string() };
    lane_of(i64::try_from(number).unwrap(), &number.to_string(), 5, &target)
}

/// A map for each home. Timed are the lanes that wait or are ready.
#[derive(Default)]
struct Model {
    now: i64,
    timed: BTreeMap<usize, i64>,
    backlog: BTreeMap<usize, i64>,
    limited: BTreeMap<usize, (i64, i64)>,
    under_breaker: BTreeMap<usize, i64>,
    open: HashSet<usize>,
}

impl Model {
    fn place(&mut self, lane: usize, head: i64) {
        if head > self.now + WINDOW {
            self.timed.remove(&lane);
        } else {
            self.timed.insert(lane, head);
        }
    }

    fn note(&mut self, lane: usize, due: i64) {
        if let Some((head, _)) = self.limited.get_mut(&lane) {
            *head = due.min(*head);
        } else if let Some(head) = self.under_breaker.get_mut(&lane) {
            *head = due.min(*head);
        } else if self.open.contains(&lane) {
            if due <= self.now + WINDOW {
                self.under_breaker.insert(lane, due);
            }
        } else if self.timed.get(&lane).is_none_or(|head| due < *head) {
            self.place(lane, due);
        }
    }

    fn correct(&mut self, lane: usize, head: Option<i64>) {
        match (self.timed.contains_key(&lane), head) {
            (true, Some(head)) => self.place(lane, head),
            (true, None) => drop(self.timed.remove(&lane)),
            (false, _) => {}
        }
    }

    fn correct_backlog(&mut self, lane: usize, head: Option<i64>, since: Option<i64>) {
        if !self.backlog.contains_key(&lane) {
            return;
        }
        match (head, since) {
            (Some(head), Some(since)) if head < since => drop(self.backlog.insert(lane, head)),
            (Some(head), Some(_)) => {
                self.backlog.remove(&lane);
                self.place(lane, head);
            }
            _ => {
                self.backlog.remove(&lane);
                self.correct(lane, head);
            }
        }
    }

    fn limit(&mut self, lane: usize, until: Option<i64>) {
        let heads = [self.timed.remove(&lane), self.backlog.remove(&lane)];
        let Some(head) = heads.into_iter().flatten().min() else { return };
        if head > self.now {
            self.place(lane, head);
        } else {
            let latest = self.now + 1_000;
            self.limited.insert(lane, (head, until.unwrap_or(latest).min(latest)));
        }
    }

    fn release(&mut self, all: bool, queues: &[usize]) {
        let now = self.now;
        let is_free = |lane: &usize, until: i64| all || queues.contains(lane) || until <= now;
        let free: Vec<(usize, i64)> = self
            .limited
            .iter()
            .filter(|(lane, (_, until))| is_free(lane, *until))
            .map(|(lane, (head, _))| (*lane, *head))
            .collect();
        for (lane, head) in free {
            self.limited.remove(&lane);
            self.note(lane, head);
        }
    }

    fn set_breakers(&mut self, open: HashSet<usize>) {
        self.open = open;
        for lane in self.open.iter().filter(|lane| !self.limited.contains_key(lane)) {
            let heads = [self.timed.remove(lane), self.backlog.remove(lane), self.under_breaker.remove(lane)];
            if let Some(head) = heads.into_iter().flatten().min() {
                self.under_breaker.insert(*lane, head);
            }
        }
        let closed: Vec<(usize, i64)> = self
            .under_breaker
            .iter()
            .filter(|(lane, _)| !self.open.contains(lane))
            .map(|(lane, head)| (*lane, *head))
            .collect();
        for (lane, head) in closed {
            self.under_breaker.remove(&lane);
            self.place(lane, head);
        }
    }

    fn is_ready(&self, number: usize) -> bool {
        let ahead = if lane(number).key.route == Route::Pull { AHEAD } else { 0 };
        self.timed.get(&number).is_some_and(|head| head - ahead <= self.now)
    }

    fn found_only(&mut self, found: &[usize]) {
        let gone: Vec<usize> = (0..LANES).filter(|lane| self.is_ready(*lane) && !found.contains(lane)).collect();
        self.timed.retain(|lane, _| !gone.contains(lane));
    }

    fn retain(&mut self, kept: &[usize]) {
        self.timed.retain(|lane, _| kept.contains(lane));
        self.backlog.retain(|lane, _| kept.contains(lane));
        self.limited.retain(|lane, _| kept.contains(lane));
        self.under_breaker.retain(|lane, _| kept.contains(lane));
    }

    /// Where the model says a lane is.
    fn home(&self, number: usize) -> Option<Home> {
        let ahead = if lane(number).key.route == Route::Pull { AHEAD } else { 0 };
        let is_ready = self.is_ready(number);
        let waiting = |head: i64| Home::Waiting { head: at(head), ready_at: at(head - ahead) };
        let placed = |head: i64| if is_ready { Home::Ready { head: at(head) } } else { waiting(head) };
        let timed = self.timed.get(&number).copied().map(placed);
        let limited =
            self.limited.get(&number).map(|(head, until)| Home::Limited { head: at(*head), until: at(*until) });
        let under_breaker = self.under_breaker.get(&number).map(|head| Home::UnderBreaker { head: at(*head) });
        let homes: Vec<Home> = [timed, limited, under_breaker].into_iter().flatten().collect();
        assert!(homes.len() <= 1, "the model has lane {number} at {homes:?}");
        homes.first().copied().or_else(|| self.backlog.contains_key(&number).then_some(Home::Backlog))
    }
}

fn run(step: Step, lanes: &mut Lanes, model: &mut Model) {
    let at_offset = |offset: i64| model.now + offset;
    let (now, id) = (at(model.now), |number: usize| LaneId::new(i64::try_from(number).unwrap()));
    match step {
        Step::Note(number, due) => {
            let due = at_offset(due);
            lanes.note(&lane(number), at(due), now);
            model.note(number, due);
        }
        Step::Found(number, due) => {
            let due = at_offset(due);
            lanes.note_swept(&lane(number), at(due), now);
            if model.is_ready(number) {
                model.place(number, due);
            } else {
                model.note(number, due);
            }
        }
        Step::FoundOnly(found) => {
            lanes.forget_unswept(None, None, &found.iter().map(|number| id(*number)).collect());
            model.found_only(&found);
        }
        Step::Correct(number, head) => {
            let head = head.map(at_offset);
            lanes.correct(id(number), head.map(at), now);
            model.correct(number, head);
        }
        Step::CorrectProbed(number, head) => {
            let head = head.map(at_offset);
            lanes.correct_probed(id(number), head.map(at), now);
            match (model.under_breaker.contains_key(&number), head) {
                (true, Some(head)) => drop(model.under_breaker.insert(number, head)),
                (true, None) => drop(model.under_breaker.remove(&number)),
                (false, _) => model.correct(number, head),
            }
        }
        Step::NoteBacklog(number, due) => {
            // The push side finds backlogs in ready lanes only.
            if model.is_ready(number) {
                let due = at_offset(due);
                lanes.note_backlog(&lane(number), at(due));
                model.backlog.insert(number, due);
            }
        }
        Step::CorrectBacklog(number, head, since) => {
            let (head, since) = (head.map(at_offset), since.map(at_offset));
            lanes.correct_backlog(id(number), head.map(at), since.map(at), now);
            model.correct_backlog(number, head, since);
        }
        Step::Limit(number, until) => {
            let until = until.map(at_offset);
            lanes.limit(id(number), until.map(at), now);
            model.limit(number, until);
        }
        Step::Release(all, queues) => {
            lanes.release_limited(all, queues.iter().map(|queue| ("t".to_owned(), queue.to_string())), now);
            model.release(all, &queues);
        }
        Step::Breakers(targets) => {
            let targets: HashSet<usize> = targets.into_iter().filter(|number| !number.is_multiple_of(2)).collect();
            let keys: Vec<BreakerKey> =
                targets.iter().map(|number| BreakerKey::new("t", &number.to_string())).collect();
            lanes.set_breakers(open(&keys), now);
            model.set_breakers(targets);
        }
        Step::Retain(kept) => {
            lanes.retain(|key| kept.iter().any(|number| number.to_string() == key.queue));
            model.retain(&kept);
        }
        Step::Advance(millis) => {
            model.now += millis;
            lanes.make_due_ready(at(model.now));
        }
    }
}

/// All answers of the structure agree with the model.
fn check(lanes: &Lanes, model: &Model) {
    let mut wakeups: Vec<Timestamp> = Vec::new();
    for number in 0..LANES {
        let id = LaneId::new(i64::try_from(number).unwrap());
        assert_eq!(lanes.home(id), model.home(number), "home of {number}");
        assert_eq!(lanes.has_backlog(id), model.backlog.contains_key(&number), "backlog of {number}");
        wakeups.extend(match model.home(number) {
            Some(Home::Waiting { ready_at, .. }) => Some(ready_at),
            Some(Home::Limited { until, .. }) => Some(until),
            _ => None,
        });
    }
    assert_eq!(lanes.next_wakeup(), wakeups.into_iter().min());
    let ready: usize = (0..LANES).filter(|number| model.is_ready(*number)).count();
    assert_eq!(lanes.ready().len(), ready);
    let backlog: Vec<i64> = lanes.backlog().tenants().values().flatten().map(|rank| rank.due_at.as_millis()).collect();
    let mut expected: Vec<i64> = model.backlog.values().copied().collect();
    expected.sort_unstable();
    assert_eq!(backlog, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn every_lane_has_the_home_that_the_model_says(steps in proptest::collection::vec(step(), 1..120)) {
        let (mut lanes, mut model) = (Lanes::new(WINDOW, AHEAD), Model::default());
        for step in steps {
            run(step, &mut lanes, &mut model);
            check(&lanes, &model);
        }
    }
}
