//! Tenants and bands share what is claimed: shown by counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Event, transition};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_scheduler::desk::{Ask, Desk, Wants};
use punctual_scheduler::fairness::{Band, BandWeights};
use punctual_scheduler::targets::Targets;
use punctual_testkit::fixtures::{at, task};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, NODE, ask};

const LONG: Duration = Duration::from_secs(30);

fn by_band(tasks: &[Task]) -> [usize; 3] {
    Band::ALL.map(|band| tasks.iter().filter(|task| Band::of(task.lane.key.priority) == band).count())
}

/// Twice as many of each band as will be taken.
async fn flood(bench: &Bench) {
    for (priority, tasks) in [(9, 400), (7, 400), (5, 200), (0, 100)] {
        bench.submit_all((0..tasks).map(|_| task().priority(priority))).await;
    }
}

#[tokio::test]
async fn a_flood_of_high_priority_lets_the_others_progress_at_their_shares() {
    let mut bench = Bench::new();
    flood(&bench).await;
    let mut leased = Vec::new();
    for _ in 0..200 {
        leased.extend(bench.lease("default", 1).await);
    }
    assert_eq!(by_band(&leased), [140, 50, 10]);
}

#[tokio::test]
async fn a_batch_is_shared_between_the_bands_by_their_weights() {
    let mut bench = Bench::new();
    flood(&bench).await;
    assert_eq!(by_band(&bench.lease("default", 100).await), [70, 25, 5]);
    let mut bench = Bench::with(|config| config.fairness.bands = BandWeights::new(2, 1, 1));
    flood(&bench).await;
    assert_eq!(by_band(&bench.lease("default", 100).await), [50, 25, 25]);
}

#[tokio::test]
async fn what_a_band_does_not_use_goes_to_the_others() {
    let mut bench = Bench::new();
    bench.submit_all((0..3).map(|_| task().priority(9))).await;
    bench.submit_all((0..200).map(|_| task().priority(1))).await;
    assert_eq!(by_band(&bench.lease("default", 100).await), [3, 0, 97]);
    assert_eq!(by_band(&bench.lease("default", 50).await), [0, 0, 50]);
}

#[tokio::test]
async fn waiting_raises_the_priority_if_it_is_set_to() {
    for (aging, first) in [(Duration::from_mins(1), "old"), (Duration::ZERO, "urgent")] {
        let mut bench = Bench::with(|config| config.fairness.aging = aging);
        bench.submit_all((0..10).map(|_| task().kind("urgent").priority(9))).await;
        // Nine minutes are worth as much as from 0 to 9.
        bench.submit(task().kind("old").priority(0).due(at(-9 * 60_000))).await;
        assert_eq!(bench.lease("default", 1).await[0].lane.key.kind, first, "{aging:?}");
    }
}

/// Asks as a tenant, and waits.
fn asked(desk: &Desk, tenant: &str, max_tasks: usize) -> JoinHandle<Vec<Task>> {
    let ask = Ask { tenant: tenant.to_owned(), ..ask(Wants::Queues(vec!["default".to_owned()]), max_tasks, LONG) };
    let desk = desk.clone();
    tokio::spawn(async move { desk.lease(ask).await.unwrap() })
}

#[tokio::test]
async fn the_pull_workers_of_tenants_share_by_weight() {
    let mut bench = Bench::with(|config| {
        config.claim_batch = 40;
        config.fairness.tenants = HashMap::from([("heavy".to_owned(), 3)]);
    });
    for tenant in ["heavy", "light"] {
        bench.submit_all((0..1_000).map(|_| task().tenant(tenant))).await;
    }
    let mut got = [0, 0];
    for _ in 0..20 {
        let asked = [asked(&bench.desk, "heavy", 1_000), asked(&bench.desk, "light", 1_000)];
        tokio::task::yield_now().await;
        bench.turns().await;
        for (got, asked) in got.iter_mut().zip(asked) {
            *got += asked.await.unwrap().len();
        }
    }
    assert_eq!(got, [600, 200]);
    // Alone it has everything.
    let asked = asked(&bench.desk, "light", 1_000);
    tokio::task::yield_now().await;
    bench.turns().await;
    assert_eq!(asked.await.unwrap().len(), 40);
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_of_tenants_share_by_weight() {
    let mut bench = Bench::of_many(|config| config.fairness.tenants = HashMap::from([("heavy".to_owned(), 3)]));
    bench.owner.run_once().await.unwrap();
    let mut tenants: HashMap<TaskId, &str> = HashMap::new();
    for tenant in ["heavy", "light"] {
        let tasks = (0..500).map(|_| task().tenant(tenant).push("http://a.example:80"));
        tenants.extend(bench.submit_all(tasks).await.into_iter().map(|id| (id, tenant)));
    }
    let mut published = Vec::new();
    while published.len() < 400 {
        bench.turns().await;
        published.extend(bench.published().await);
    }
    let heavy = published.iter().filter(|id| tenants[id] == "heavy").count();
    let percent = heavy * 100 / published.len();
    assert!((72..=78).contains(&percent), "{heavy} of {}", published.len());
}

#[tokio::test(start_paused = true)]
async fn the_webhooks_of_a_tenant_share_by_band() {
    let mut bench = Bench::of_many(|_| {});
    bench.owner.run_once().await.unwrap();
    let mut bands: HashMap<TaskId, Band> = HashMap::new();
    for (priority, tasks) in [(9, 500), (5, 500), (1, 500)] {
        let tasks = (0..tasks).map(|_| task().priority(priority).push("http://a.example:80"));
        bands.extend(bench.submit_all(tasks).await.into_iter().map(|id| (id, Band::of(priority))));
    }
    let mut published = Vec::new();
    while published.len() < 500 {
        bench.turns().await;
        published.extend(bench.published().await);
    }
    let got = Band::ALL.map(|band| published.iter().filter(|id| bands[id] == band).count());
    let fair = [70, 25, 5].map(|percent| published.len() * percent / 100);
    let is_fair = got.iter().zip(fair).all(|(got, fair)| got.abs_diff(fair) <= 5);
    assert!(is_fair, "{got:?} of {}", published.len());
}

#[tokio::test]
async fn a_tenant_whose_webhooks_hang_leaves_places_to_others() {
    let mut bench = Bench::with_targets(Targets::new(100, 40).with_pools(75, 100), |_| {});
    for target in 0..10 {
        let target = format!("http://{target}.example:80");
        bench.submit_all((0..10).map(|_| task().tenant("greedy").push(&target))).await;
    }
    bench.turns().await;
    let hanging = bench.depth().await;
    assert!((20..=30).contains(&hanging), "{hanging}");
    bench.submit(task().tenant("quiet").push("http://quiet.example:80")).await;
    bench.turns().await;
    assert_eq!(bench.depth().await, hanging + 1, "nobody had to give a place back");
}

#[tokio::test]
async fn one_tenants_lease_does_not_wait_for_anothers() {
    let bench = Bench::new();
    bench.submit_all((0..100).map(|_| task().tenant("busy"))).await;
    bench.submit(task().tenant("quiet")).await;
    let (desk, stop, spy) = (bench.desk.clone(), CancellationToken::new(), Arc::clone(&bench.spy));
    let dispatcher = tokio::spawn(bench.dispatcher.run(stop.clone()));
    spy.hold_claims_over(10);
    let busy = asked(&desk, "busy", 100);
    spy.holds_one().await;
    let quiet = tokio::time::timeout(LONG, asked(&desk, "quiet", 1)).await.expect("it does not wait").unwrap();
    assert_eq!((quiet.len(), busy.is_finished()), (1, false));
    spy.let_go();
    assert_eq!(busy.await.unwrap().len(), 100);
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn what_is_heard_of_a_lane_while_a_claim_is_at_it_is_not_lost() {
    let bench = Bench::new();
    bench.submit_all((0..20).map(|_| task().tenant("busy"))).await;
    let (desk, stop, spy) = (bench.desk.clone(), CancellationToken::new(), Arc::clone(&bench.spy));
    let store = Arc::clone(&bench.store);
    let dispatcher = tokio::spawn(bench.dispatcher.run(stop.clone()));
    spy.hold_claims_over(10);
    let busy = asked(&desk, "busy", 100);
    // The claim is made and its answer, that nothing is left, under way.
    spy.holds_one().await;
    store.insert(vec![task().tenant("busy").build()]).await.unwrap();
    let next = asked(&desk, "busy", 1);
    tokio::task::yield_now().await;
    spy.let_go();
    assert_eq!(busy.await.unwrap().len(), 20);
    // There is no sweep within the hour.
    assert_eq!(tokio::time::timeout(LONG, next).await.expect("it is found").unwrap().len(), 1);
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn a_claim_under_way_is_handed_out_when_the_dispatcher_stops() {
    let bench = Bench::new();
    bench.submit_all((0..20).map(|_| task().tenant("busy"))).await;
    let (desk, stop, spy) = (bench.desk.clone(), CancellationToken::new(), Arc::clone(&bench.spy));
    let dispatcher = tokio::spawn(bench.dispatcher.run(stop.clone()));
    spy.hold_claims_over(10);
    let busy = asked(&desk, "busy", 100);
    spy.holds_one().await;
    stop.cancel();
    tokio::task::yield_now().await;
    spy.let_go();
    assert_eq!(busy.await.unwrap().len(), 20);
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn the_longest_wait_of_a_band_is_right_also_when_nothing_is_claimed() {
    let mut bench = Bench::with(|config| config.sweep_interval = Duration::ZERO);
    let longest = |bench: &Bench| Band::ALL.map(|band| bench.waits.longest(band, bench.clock.now()).as_secs());
    let old = bench.submit(task().priority(2).due(at(-30_000))).await;
    bench.submit(task().priority(2).due(at(-5_000))).await;
    bench.submit(task().priority(8).due(at(10_000))).await;
    bench.turns().await;
    assert_eq!(longest(&bench), [0, 0, 30]);
    bench.clock.advance_millis(12_000);
    bench.turns().await;
    assert_eq!(longest(&bench), [2, 0, 42]);
    // It is cancelled, and nobody asks for anything.
    let position = bench.task(old).await.position;
    let by = By { now: bench.clock.now(), node: NODE, actor: Actor::Scheduler };
    bench.store.apply(vec![(old, transition(&position, Event::Cancel, &by).unwrap())]).await.unwrap();
    bench.turns().await;
    assert_eq!(longest(&bench), [2, 0, 17]);
    assert_eq!(bench.lease("default", 10).await.len(), 2);
    bench.turns().await;
    assert_eq!(longest(&bench), [0, 0, 0]);
}
