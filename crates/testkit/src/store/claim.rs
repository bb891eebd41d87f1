//! `claim`: which tasks it takes, in which order, and what it returns.

use std::collections::BTreeMap;

use punctual_core::lane::LaneId;
use punctual_core::state::State;
use punctual_core::store::{Claim, Claimant, Claimed};
use punctual_core::task::{NewTask, Task, limits};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, Step};

use super::{
    GRACE_MILLIS, LEASE_MILLIS, StoreFactory, StoreFixture, VISIBILITY_MILLIS, WORKER, assert_same, complete,
    dispatcher, fail, ids, webhook_worker, worker,
};
use crate::fixtures::{Dice, START, TIMEOUT_MILLIS, at, task};

/// Lanes are served in the given order, tasks by due instant and id, within each limit.
pub async fn claim_takes_what_is_due_in_order(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut batch: Vec<NewTask> = (0..200)
        .map(|n| task().queue(if n % 2 == 0 { "even" } else { "odd" }).due(at(-(n * 7 % 10))).build())
        .collect();
    Dice::new(1).shuffle(&mut batch);
    let stored = fixture.insert(batch).await;
    let in_order = |queue: &str| {
        let mut lane: Vec<&Task> = stored.iter().filter(|task| task.lane.key.queue == queue).collect();
        lane.sort_by_key(|task| task.due_at);
        (lane[0].lane.id, lane.into_iter().map(|task| task.id).collect::<Vec<_>>())
    };
    let ((even, evens), (odd, odds)) = (in_order("even"), in_order("odd"));

    let claim = |lanes, limit, claimant| fixture.claim(Claim { lanes, limit, claimant });
    let first = claim(vec![(odd, 30), (even, 30)], 50, dispatcher()).await;
    assert_eq!(ids(&first.tasks), [&odds[..30], &evens[..20]].concat(), "the odd lane was given first");
    let second = claim(vec![(even, 30), (odd, 5)], 100, worker(WORKER)).await;
    assert_eq!(ids(&second.tasks), [&evens[20..50], &odds[30..35]].concat());
    let none = claim(vec![(even, 10), (odd, 10)], 0, dispatcher()).await;
    assert!(none.tasks.is_empty(), "a limit of zero takes nothing");
    let skipped = claim(vec![(even, 0), (odd, 2)], 10, dispatcher()).await;
    assert_eq!(ids(&skipped.tasks), odds[35..37]);
    let rest = claim(vec![(even, 1_000), (odd, 1_000)], 1_000, dispatcher()).await;
    assert_eq!(ids(&rest.tasks), [&evens[50..], &odds[37..]].concat());
    assert!(claim(vec![(even, 10), (odd, 10)], 10, dispatcher()).await.tasks.is_empty(), "all were taken");
}

/// The limit of each lane and the overall limit both apply over many lanes.
pub async fn claim_keeps_its_limits_over_many_lanes(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let batch = (0..40).flat_map(|lane| task().queue(&format!("q{lane}")).times(10)).collect();
    let stored = fixture.insert(batch).await;
    let lanes: Vec<LaneId> = stored.iter().step_by(10).map(|task| task.lane.id).collect();
    let mut expected: Vec<_> = (0..16).flat_map(|lane| &stored[lane * 10..lane * 10 + 3]).map(|task| task.id).collect();
    expected.extend(ids(&stored[160..162]));
    let limited = Claim { lanes: lanes.iter().map(|lane| (*lane, 3)).collect(), limit: 50, claimant: dispatcher() };
    assert_eq!(ids(&fixture.claim(limited).await.tasks), expected);

    let reversed =
        Claim { lanes: lanes.iter().rev().map(|lane| (*lane, 4)).collect(), limit: 9, claimant: dispatcher() };
    let expected = [&stored[390..394], &stored[380..384], &stored[370..371]].concat();
    assert_eq!(ids(&fixture.claim(reversed).await.tasks), ids(&expected));

    let rest = Claim { lanes: lanes.iter().map(|lane| (*lane, 10)).collect(), limit: 1_000, claimant: dispatcher() };
    assert_eq!(fixture.claim(rest).await.tasks.len(), 400 - 50 - 9);
}

/// A task that is due a millisecond after the store's now stays, for the first attempt and for a
/// retry.
pub async fn claim_takes_nothing_early(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let now = fixture.insert_one(task().due(START)).await;
    let soon = fixture.insert_one(task().due(at(1))).await;
    let late = fixture.insert_one(task().due(Timestamp::MAX)).await;
    let ancient = fixture.insert_one(task().due(Timestamp::from_millis(-62_135_596_800_000))).await;
    let lane = now.lane.id;
    assert_eq!(ids(&fixture.dispatch(lane, 10).await), [ancient.id, now.id]);
    assert!(fixture.dispatch(lane, 10).await.is_empty());
    fixture.advance(1);
    let run = fixture.lease(lane, 10).await.pop().expect("it is due now");
    assert_eq!(run.id, soon.id);
    let retried = fixture.apply(&run, fail(&run)).await;
    assert_eq!(retried.due_at, at(1_001));
    fixture.advance(999);
    assert!(fixture.lease(lane, 10).await.is_empty(), "a retry came early");
    fixture.advance(1);
    assert_eq!(ids(&fixture.lease(lane, 10).await), [soon.id]);
    assert_same(&fixture.get(&late).await, &late);
}

/// A worker's claim that looks ahead takes tasks due by its instant and none later, `RUNNING` from
/// the due instant on. Tasks that are due already are taken now. A claim that does not look ahead
/// takes nothing early, also in the same call.
pub async fn claim_for_a_worker_takes_what_is_nearly_due_if_asked_to(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let due = fixture.insert_one(task().due(START)).await;
    let soon = fixture.insert_one(task().due(at(20))).await;
    let later = fixture.insert_one(task().due(at(21))).await;
    let other = fixture.insert_one(task().queue("other").due(at(20))).await;
    let far = fixture.insert_one(task().queue("far").due(at(60_000))).await;
    let ask = |lane: LaneId, due_by| {
        let claimant = Claimant::Worker { name: WORKER.into(), lease_millis: LEASE_MILLIS, due_by };
        Claim { lanes: vec![(lane, 10)], limit: 10, claimant }
    };
    let claims = vec![ask(other.lane.id, None), ask(due.lane.id, Some(at(20))), ask(far.lane.id, Some(at(60_000)))];
    let mut answers = fixture.store.claim(claims).await.expect("claim answers").into_iter();
    let (none, ahead, bounded) = (answers.next(), answers.next(), answers.next());
    assert!(none.is_some_and(|claimed| claimed.tasks.is_empty()), "this claim does not look ahead");
    assert!(bounded.is_some_and(|claimed| claimed.tasks.is_empty()), "no claim looks this far ahead");
    let ahead = ahead.expect("there are three answers");
    assert_eq!(ids(&ahead.tasks), [due.id, soon.id]);
    assert_eq!(ahead.next_due, [(due.lane.id, Some(later.due_at))]);
    for (task, since) in ahead.tasks.iter().zip([START, at(20)]) {
        let hold = task.hold.as_ref().expect("it is held");
        assert_eq!((hold.since, hold.expires_at), (since, since.plus_millis(60_000)));
        assert_eq!((task.started_at, task.updated_at()), (Some(since), since));
        assert_same(&fixture.get(task).await, task);
    }
    assert!(fixture.lease(other.lane.id, 10).await.is_empty());
    fixture.advance(20);
    assert_eq!(ids(&fixture.lease(other.lane.id, 10).await), [other.id]);
}

/// The run has begun when the claim is written, and is settled like one that came through a broker.
pub async fn claim_for_the_webhook_worker_starts_the_run(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored =
        fixture.insert_one(super::insert::full().push("http://a.test:80").timeout_millis(TIMEOUT_MILLIS)).await;
    fixture.advance(25);
    let claim = Claim { lanes: vec![(stored.lane.id, 10)], limit: 10, claimant: webhook_worker() };
    let claimed = fixture.store.claim(vec![claim]).await.expect("claim answers").remove(0);
    let [started] = claimed.tasks.as_slice() else { panic!("{claimed:?}") };
    assert_eq!((started.state(), started.position.version, started.position.attempts), (State::Running, 3, 1));
    assert_eq!(started.body, stored.body);
    assert_eq!((started.worker.as_deref(), started.started_at), (Some(WORKER), Some(at(25))));
    let hold = started.hold.as_ref().expect("it is held");
    let end = at(25 + i64::try_from(TIMEOUT_MILLIS + GRACE_MILLIS).unwrap());
    assert_eq!((hold.worker.as_str(), hold.node, hold.expires_at), (WORKER, Some(fixture.node), end));
    let step = started.trail.last().unwrap();
    assert_eq!((step.step, step.actor), (Step::Started { attempt: 1 }, Actor::Worker(WORKER.into())));
    assert_same(&fixture.get(&stored).await, started);
    let done = fixture.apply(started, complete(None)).await;
    assert_eq!(done.state(), State::Completed);
}

/// Each visited lane is returned once, with the first due instant that is left in it.
pub async fn claim_returns_when_a_lane_is_due_next(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = |stored: &[Task]| stored[0].lane.id;
    let emptied = fixture.insert(task().queue("emptied").times(2)).await;
    let left = fixture.insert(task().queue("left").due(at(-7)).times(3)).await;
    let mut ahead = fixture.insert(task().queue("ahead").times(1)).await;
    ahead.extend(fixture.insert(task().queue("ahead").due(at(5_000)).times(2)).await);
    let later = fixture.insert(task().queue("later").due(at(60_000)).times(1)).await;
    let unvisited = fixture.insert(task().queue("unvisited").due(at(-1)).times(1)).await;

    let lanes = vec![(lane(&emptied), 5), (lane(&left), 2), (lane(&ahead), 5), (lane(&later), 5)];
    let claimed = fixture.claim(Claim { lanes, limit: 100, claimant: worker(WORKER) }).await;
    assert_eq!(claimed.tasks.len(), 5);
    let expected = BTreeMap::from([
        (lane(&emptied), None),
        (lane(&left), Some(at(-7))),
        (lane(&ahead), Some(at(5_000))),
        (lane(&later), Some(at(60_000))),
    ]);
    assert_eq!(next_due(&claimed), expected);

    // The limit ends the claim in the first lane. An answer about the second, if any, is still
    // true.
    let lanes = vec![(lane(&left), 5), (lane(&unvisited), 5)];
    let claimed = fixture.claim(Claim { lanes, limit: 1, claimant: dispatcher() }).await;
    let found = next_due(&claimed);
    assert_eq!(found[&lane(&left)], None);
    assert!(found.get(&lane(&unvisited)).is_none_or(|due| *due == Some(at(-1))), "{found:?}");

    // A lane without due tasks counts as visited.
    let claimed = fixture.claim(Claim { lanes: vec![(lane(&later), 5)], limit: 5, claimant: dispatcher() }).await;
    assert_eq!(next_due(&claimed), BTreeMap::from([(lane(&later), Some(at(60_000)))]));
}

/// Attempts and version have grown, in the claimant's answer and in every read.
pub async fn claim_counts_the_attempt(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let queued = fixture.insert_one(task().queue("push").push("http://a.test:80")).await;
    let leased = fixture.insert_one(task().queue("pull")).await;
    fixture.advance(10);

    let queued = fixture.dispatch(queued.lane.id, 1).await.pop().expect("it is due");
    assert_eq!((queued.state(), queued.position.version, queued.position.attempts), (State::Queued, 2, 1));
    let hold = queued.hold.as_ref().expect("it is held");
    assert_eq!((hold.node, hold.since, hold.expires_at), (Some(fixture.node), at(10), later(10, VISIBILITY_MILLIS)));
    let steps: Vec<_> = queued.trail.entries().map(|entry| (entry.version, entry.to)).collect();
    assert_eq!(steps, [(1, State::Pending), (2, State::Queued)]);
    let step = queued.trail.last().unwrap();
    assert_eq!((step.at, step.node, step.step), (at(10), fixture.node, Step::Claimed));

    let leased = fixture.lease(leased.lane.id, 1).await.pop().expect("it is due");
    assert_eq!((leased.state(), leased.position.version, leased.position.attempts), (State::Running, 3, 1));
    let hold = leased.hold.as_ref().expect("it is held");
    assert_eq!((hold.worker.as_str(), hold.node, hold.since), (WORKER, None, at(10)));
    assert_eq!((hold.expires_at, hold.lease_millis), (later(10, LEASE_MILLIS), LEASE_MILLIS));
    assert_eq!(hold.deadline_at, later(10, TIMEOUT_MILLIS));
    assert_eq!((leased.worker.as_deref(), leased.started_at), (Some(WORKER), Some(at(10))));
    let steps: Vec<_> = leased.trail.entries().map(|entry| (entry.version, entry.to)).collect();
    assert_eq!(steps, [(1, State::Pending), (2, State::Queued), (3, State::Running)]);
    let step = leased.trail.last().unwrap();
    assert_eq!((step.at, step.step), (at(10), Step::Started { attempt: 1 }));
    assert_eq!(step.actor, Actor::Worker(WORKER.into()));
    let runs = leased.trail.runs(leased.id);
    assert_eq!((runs.len(), runs[0].token, runs[0].worker.as_ref()), (1, 3, WORKER));

    for task in [queued, leased] {
        assert_same(&fixture.get(&task).await, &task);
    }
}

/// The claims of one call are made one after the other, each answered in its place.
pub async fn claim_answers_claims_one_after_the_other(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(10)).await;
    let lane = stored[0].lane.id;
    let claim = |limit, claimant: Claimant| Claim { lanes: vec![(lane, limit)], limit, claimant };
    let claims = vec![
        claim(3, worker("a")),
        claim(4, dispatcher()),
        claim(0, worker("b")),
        claim(9, worker("c")),
        claim(1, worker("d")),
    ];
    let answers = fixture.store.claim(claims).await.expect("claim answers");
    let given: Vec<_> = answers.iter().map(|claimed| ids(&claimed.tasks)).collect();
    let stored = ids(&stored);
    assert_eq!(given, [stored[..3].to_vec(), stored[3..7].to_vec(), vec![], stored[7..].to_vec(), vec![]]);
    let workers: Vec<_> = answers[3].tasks.iter().map(|task| task.worker.as_deref()).collect();
    assert_eq!(workers, [Some("c"); 3]);
    assert!(answers[1].tasks.iter().all(|task| task.state() == State::Queued));
}

/// The claimant gets whole tasks, as `get` returns them.
pub async fn claim_gives_whole_tasks(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for claimant in [dispatcher(), worker("w")] {
        let stored = fixture.insert_one(super::insert::full().due(at(-1)).tenant(&format!("{claimant:?}"))).await;
        let claim = Claim { lanes: vec![(stored.lane.id, 1)], limit: 1, claimant };
        let claimed = fixture.claim(claim).await.tasks.pop().expect("it is due");
        assert_eq!(claimed.body, stored.body);
        assert_eq!((claimed.execute_at, claimed.expires_at), (stored.execute_at, stored.expires_at));
        assert!(claimed.trail.as_bytes().starts_with(stored.trail.as_bytes()), "the trail lost its beginning");
        assert_same(&fixture.get(&stored).await, &claimed);
    }
}

/// An unknown lane counts as an empty one.
pub async fn claim_of_an_unknown_lane_gives_nothing(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert_one(task()).await;
    let lanes = [i64::MAX, 999_999, 0, -1].map(|lane| (LaneId::new(lane), 5)).to_vec();
    let lanes = lanes.into_iter().chain([(stored.lane.id, 5)]).collect();
    let claimed = fixture.claim(Claim { lanes, limit: 5, claimant: dispatcher() }).await;
    assert_eq!(ids(&claimed.tasks), [stored.id]);
    assert!(claimed.next_due.iter().all(|(_, due)| due.is_none()));
}

/// The lanes in the answer of a claim, each once.
pub(super) fn next_due(claimed: &Claimed) -> BTreeMap<LaneId, Option<Timestamp>> {
    let found: BTreeMap<_, _> = claimed.next_due.iter().copied().collect();
    assert_eq!(found.len(), claimed.next_due.len(), "a lane is returned twice: {:?}", claimed.next_due);
    found
}

fn later(from_millis: i64, millis: u64) -> Timestamp {
    at(from_millis + i64::try_from(millis).unwrap())
}

/// A claim of many large tasks stops at its limit of bytes; the rest is left for the next claim.
pub async fn claim_is_bounded_in_bytes(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let size = limits::CLAIM_PAYLOAD / 4;
    let large = || task().payload(&format!("\"{}\"", "x".repeat(size)));
    let stored = fixture.insert(large().times(6)).await;
    let lane = stored[0].lane.id;
    let first = fixture.lease(lane, 100).await;
    assert_eq!(first.len(), 4, "four of them reach the limit of a claim");
    assert_eq!(fixture.lease(lane, 100).await.len(), 2);
    let huge = fixture.insert_one(task().queue("huge").payload(&format!("\"{}\"", "x".repeat(5 * size)))).await;
    assert_eq!(ids(&fixture.lease(huge.lane.id, 100).await), [huge.id], "one task is always taken");
}
