//! Tenants and bands share what is claimed: shown by counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Event, transition};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_scheduler::fairness::{Band, BandWeights};
use punctual_scheduler::polls::{PollFilter, PollQueue, PollRequest};
use punctual_scheduler::targets::Targets;
use punctual_testkit::fixtures::{at, task};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::harness::{Harness, NODE, request};

const WAIT_MAX: Duration = Duration::from_secs(30);

fn by_band(tasks: &[Task]) -> [usize; 3] {
    Band::ALL.map(|band| tasks.iter().filter(|task| Band::of(task.lane.key.priority) == band).count())
}

/// Twice as many of each band as will be taken.
async fn flood(harness: &Harness) {
    for (priority, tasks) in [(9, 400), (7, 400), (5, 200), (0, 100)] {
        harness.submit_all((0..tasks).map(|_| task().priority(priority))).await;
    }
}

#[tokio::test]
async fn a_flood_of_high_priority_leaves_the_others_their_shares() {
    let mut harness = Harness::new();
    flood(&harness).await;
    let mut leased = Vec::new();
    for _ in 0..200 {
        leased.extend(harness.lease("default", 1).await);
    }
    assert_eq!(by_band(&leased), [140, 50, 10]);
}

#[tokio::test]
async fn a_batch_is_shared_between_the_bands_by_their_weights() {
    let mut harness = Harness::new();
    flood(&harness).await;
    assert_eq!(by_band(&harness.lease("default", 100).await), [70, 25, 5]);
    let mut harness = Harness::with(|config| config.fairness.bands = BandWeights::new(2, 1, 1));
    flood(&harness).await;
    assert_eq!(by_band(&harness.lease("default", 100).await), [50, 25, 25]);
}

#[tokio::test]
async fn a_share_that_a_band_does_not_use_goes_to_the_others() {
    let mut harness = Harness::new();
    harness.submit_all((0..3).map(|_| task().priority(9))).await;
    harness.submit_all((0..200).map(|_| task().priority(1))).await;
    assert_eq!(by_band(&harness.lease("default", 100).await), [3, 0, 97]);
    assert_eq!(by_band(&harness.lease("default", 50).await), [0, 0, 50]);
}

#[tokio::test]
async fn waiting_raises_the_priority_if_aging_is_set() {
    for (aging, first) in [(Duration::from_mins(1), "old"), (Duration::ZERO, "urgent")] {
        let mut harness = Harness::with(|config| config.fairness.aging = aging);
        harness.submit_all((0..10).map(|_| task().kind("urgent").priority(9))).await;
        // Nine minutes are worth as much as from 0 to 9.
        harness.submit(task().kind("old").priority(0).due(at(-9 * 60_000))).await;
        assert_eq!(harness.lease("default", 1).await[0].lane.key.kind, first, "{aging:?}");
    }
}

/// Polls as a tenant, and waits.
fn polled(polls: &PollQueue, tenant: &str, max_tasks: usize) -> JoinHandle<Vec<Task>> {
    let request = PollRequest {
        tenant: tenant.to_owned(),
        ..request(PollFilter::Queues(vec!["default".to_owned()]), max_tasks, WAIT_MAX)
    };
    let polls = polls.clone();
    tokio::spawn(async move { polls.poll(request).await.unwrap() })
}

#[tokio::test]
async fn the_pull_workers_of_tenants_share_by_weight() {
    let mut harness = Harness::with(|config| {
        config.claim_batch = 40;
        config.fairness.tenants = HashMap::from([("heavy".to_owned(), 3)]);
    });
    for tenant in ["heavy", "light"] {
        harness.submit_all((0..1_000).map(|_| task().tenant(tenant))).await;
    }
    let mut got = [0, 0];
    for _ in 0..20 {
        let polled = [polled(&harness.polls, "heavy", 1_000), polled(&harness.polls, "light", 1_000)];
        tokio::task::yield_now().await;
        harness.passes().await;
        for (got, polled) in got.iter_mut().zip(polled) {
            *got += polled.await.unwrap().len();
        }
    }
    assert_eq!(got, [600, 200]);
    // Alone it has everything.
    let polled = polled(&harness.polls, "light", 1_000);
    tokio::task::yield_now().await;
    harness.passes().await;
    assert_eq!(polled.await.unwrap().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_of_tenants_share_by_weight() {
    let mut harness = Harness::of_many(|config| config.fairness.tenants = HashMap::from([("heavy".to_owned(), 3)]));
    harness.owner.run_once().await.unwrap();
    let mut tenants: HashMap<TaskId, &str> = HashMap::new();
    for tenant in ["heavy", "light"] {
        let tasks = (0..500).map(|_| task().tenant(tenant).push("http://a.example:80"));
        tenants.extend(harness.submit_all(tasks).await.into_iter().map(|id| (id, tenant)));
    }
    let mut published = Vec::new();
    while published.len() < 400 {
        harness.passes().await;
        published.extend(harness.published().await);
    }
    let heavy = published.iter().filter(|id| tenants[id] == "heavy").count();
    let percent = heavy * 100 / published.len();
    assert!((72..=78).contains(&percent), "{heavy} of {}", published.len());
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_of_a_tenant_share_by_band() {
    let mut harness = Harness::of_many(|_| {});
    harness.owner.run_once().await.unwrap();
    let mut bands: HashMap<TaskId, Band> = HashMap::new();
    for (priority, tasks) in [(9, 500), (5, 500), (1, 500)] {
        let tasks = (0..tasks).map(|_| task().priority(priority).push("http://a.example:80"));
        bands.extend(harness.submit_all(tasks).await.into_iter().map(|id| (id, Band::of(priority))));
    }
    let mut published = Vec::new();
    while published.len() < 500 {
        harness.passes().await;
        published.extend(harness.published().await);
    }
    let got = Band::ALL.map(|band| published.iter().filter(|id| bands[id] == band).count());
    let fair = [70, 25, 5].map(|percent| published.len() * percent / 100);
    let is_fair = got.iter().zip(fair).all(|(got, fair)| got.abs_diff(fair) <= 5);
    assert!(is_fair, "{got:?} of {}", published.len());
}

#[tokio::test]
async fn a_tenant_whose_webhooks_hang_leaves_slots_to_others() {
    let mut harness = Harness::with_targets(Targets::new(100, 40).with_percents(75, 100), |_| {});
    for target in 0..10 {
        let target = format!("http://{target}.example:80");
        harness.submit_all((0..10).map(|_| task().tenant("greedy").push(&target))).await;
    }
    harness.passes().await;
    let hanging = harness.depth().await;
    assert!((20..=30).contains(&hanging), "{hanging}");
    harness.submit(task().tenant("quiet").push("http://quiet.example:80")).await;
    harness.passes().await;
    assert_eq!(harness.depth().await, hanging + 1, "no tenant had to give a slot back");
}

#[tokio::test]
async fn one_tenants_lease_does_not_wait_for_anothers() {
    let harness = Harness::new();
    harness.submit_all((0..100).map(|_| task().tenant("busy"))).await;
    harness.submit(task().tenant("quiet")).await;
    let (polls, stop, spy) = (harness.polls.clone(), CancellationToken::new(), Arc::clone(&harness.spy));
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    spy.hold_claims_over(10);
    let busy = polled(&polls, "busy", 100);
    spy.holds_one().await;
    let quiet = tokio::time::timeout(WAIT_MAX, polled(&polls, "quiet", 1)).await.expect("it does not wait").unwrap();
    assert_eq!((quiet.len(), busy.is_finished()), (1, false));
    spy.let_go();
    assert_eq!(busy.await.unwrap().len(), 100);
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn a_hint_during_a_claim_at_its_lane_is_not_lost() {
    let harness = Harness::new();
    harness.submit_all((0..20).map(|_| task().tenant("busy"))).await;
    let (polls, stop, spy) = (harness.polls.clone(), CancellationToken::new(), Arc::clone(&harness.spy));
    let store = Arc::clone(&harness.store);
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    spy.hold_claims_over(10);
    let busy = polled(&polls, "busy", 100);
    // The claim is made and its answer, that nothing is left, under way.
    spy.holds_one().await;
    store.insert(vec![task().tenant("busy").build()]).await.unwrap();
    let next = polled(&polls, "busy", 1);
    tokio::task::yield_now().await;
    spy.let_go();
    assert_eq!(busy.await.unwrap().len(), 20);
    // There is no sweep within the hour.
    assert_eq!(tokio::time::timeout(WAIT_MAX, next).await.expect("it is found").unwrap().len(), 1);
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn a_claim_under_way_is_granted_when_the_dispatcher_stops() {
    let harness = Harness::new();
    harness.submit_all((0..20).map(|_| task().tenant("busy"))).await;
    let (polls, stop, spy) = (harness.polls.clone(), CancellationToken::new(), Arc::clone(&harness.spy));
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    spy.hold_claims_over(10);
    let busy = polled(&polls, "busy", 100);
    spy.holds_one().await;
    stop.cancel();
    tokio::task::yield_now().await;
    spy.let_go();
    assert_eq!(busy.await.unwrap().len(), 20);
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn the_longest_wait_of_a_band_grows_without_claims() {
    let mut harness = Harness::with(|config| config.sweep_interval = Duration::ZERO);
    let longest = |harness: &Harness| Band::ALL.map(|band| harness.waits.longest(band, harness.clock.now()).as_secs());
    let old = harness.submit(task().priority(2).due(at(-30_000))).await;
    harness.submit(task().priority(2).due(at(-5_000))).await;
    harness.submit(task().priority(8).due(at(10_000))).await;
    harness.passes().await;
    assert_eq!(longest(&harness), [0, 0, 30]);
    harness.clock.advance_millis(12_000);
    harness.passes().await;
    assert_eq!(longest(&harness), [2, 0, 42]);
    // It is cancelled, and no worker polls.
    let position = harness.task(old).await.position;
    let by = By { now: harness.clock.now(), node: NODE, actor: Actor::Scheduler };
    harness.store.apply(vec![(old, transition(&position, Event::Cancel, &by).unwrap())]).await.unwrap();
    harness.passes().await;
    assert_eq!(longest(&harness), [2, 0, 17]);
    assert_eq!(harness.lease("default", 10).await.len(), 2);
    harness.passes().await;
    assert_eq!(longest(&harness), [0, 0, 0]);
}
