//! The conformance suite of [`punctual_core::breakers::Breakers`]: each sentence of its contract is
//! a function here, of the same name.

use std::sync::Arc;

use punctual_core::breakers::{
    BreakerChange, BreakerEvent, BreakerKey, FailedProbe, IntervalCounts, OpenBreaker, Runs,
};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Prunable;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::store::{StoreFactory, StoreFixture};

const TENANT: &str = "acme";
const TARGET: &str = "https://example.com:443";

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! breakers_conformance {
    ($factory:expr) => {
        $crate::stamp! { breakers, $factory;
            counts_of_nodes_are_added_together,
            counts_that_are_reported_again_replace_the_first,
            counts_of_open_breakers_are_not_listed,
            old_counts_are_pruned,
            opening_succeeds_once,
            breakers_are_listed_in_order,
            the_breaker_over_a_target_is_found,
            a_probe_is_permitted_to_one,
            a_permission_can_be_returned,
            only_its_probes_close_a_breaker,
            an_overtaken_probe_still_counts,
            a_failed_probe_leaves_it_open,
            a_probe_that_is_given_back_does_not_count,
            closing_forgets_the_counts,
            a_reset_closes_any_breaker,
            breakers_outlive_the_process,
        }
    };
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn runs(ok: u64, failed: u64) -> Runs {
    Runs { ok, failed }
}

fn counted(key: BreakerKey, slot_at: Timestamp, runs: Runs) -> IntervalCounts {
    IntervalCounts { key, slot_at, runs }
}

fn key() -> BreakerKey {
    BreakerKey::new(TENANT, TARGET)
}

async fn record(fixture: &StoreFixture<'_>, node: u64, counts: Vec<IntervalCounts>) {
    fixture.database.record_counts(NodeId::new(node), counts).await.expect("counts can be recorded");
}

async fn sums(fixture: &StoreFixture<'_>, since: Timestamp) -> Vec<(BreakerKey, Runs)> {
    fixture.database.counts_since(since).await.expect("counts can be read")
}

fn breaker(key: BreakerKey) -> OpenBreaker {
    OpenBreaker {
        key,
        opened_at: at(100),
        next_probe_at: at(160),
        runs: runs(1, 99),
        reason: "99 of 100 runs failed".to_owned(),
        half_open: false,
        probe: None,
        overtaken: Vec::new(),
        last_probe: None,
    }
}

async fn open(fixture: &StoreFixture<'_>, key: BreakerKey) -> bool {
    fixture.database.open_breaker(breaker(key)).await.expect("a breaker can be opened")
}

async fn all(fixture: &StoreFixture<'_>) -> Vec<OpenBreaker> {
    fixture.database.list_breakers(None, 1_000).await.expect("breakers can be listed")
}

async fn only(fixture: &StoreFixture<'_>) -> OpenBreaker {
    let mut all = all(fixture).await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

async fn change(fixture: &StoreFixture<'_>, event: BreakerEvent) -> BreakerChange {
    fixture.database.change_breaker(&key(), event).await.expect("a breaker can be changed")
}

async fn permit(fixture: &StoreFixture<'_>, now: i64, next: i64) -> BreakerChange {
    change(fixture, BreakerEvent::RequestProbe { now: at(now), next: at(next) }).await
}

async fn name(fixture: &StoreFixture<'_>, next: i64, probe: Result<TaskId, Timestamp>) {
    let next = at(next);
    change(
        fixture,
        match probe {
            Ok(task) => BreakerEvent::NameProbe { next, task },
            Err(again_at) => BreakerEvent::NoProbe { next, again_at },
        },
    )
    .await;
}

async fn close(fixture: &StoreFixture<'_>, probe: TaskId) -> bool {
    change(fixture, BreakerEvent::Succeeded(probe)).await == BreakerChange::Closed
}

async fn fail(fixture: &StoreFixture<'_>, probe: TaskId, seconds: i64, error: &str) {
    change(fixture, BreakerEvent::Failed(probe, FailedProbe::new(at(seconds), error))).await;
}

async fn give_back(fixture: &StoreFixture<'_>, task: TaskId, again_at: i64) {
    change(fixture, BreakerEvent::GivenBack { task, again_at: at(again_at) }).await;
}

async fn reset(fixture: &StoreFixture<'_>, key: &BreakerKey) -> bool {
    let reset = fixture.database.change_breaker(key, BreakerEvent::Reset).await;
    reset.expect("a breaker can be reset") == BreakerChange::Closed
}

/// A task that is the probe from `now` on; the next one is made at `next`.
async fn probe(fixture: &StoreFixture<'_>, now: i64, next: i64) -> TaskId {
    assert_eq!(permit(fixture, now, next).await, BreakerChange::Changed);
    let probe = TaskId::new();
    name(fixture, next, Ok(probe)).await;
    probe
}

/// Sums the counts of all nodes and intervals of the window, in the order of keys.
pub async fn counts_of_nodes_are_added_together(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(sums(&fixture, at(0)).await, []);
    let of_tenant = BreakerKey::of_tenant(TENANT);
    let first = vec![counted(key(), at(60), runs(1, 2)), counted(key(), at(120), runs(0, 4))];
    record(&fixture, 1, first).await;
    let second = vec![counted(of_tenant.clone(), at(120), runs(9, 0)), counted(key(), at(120), runs(3, 8))];
    record(&fixture, u64::MAX, second).await;
    record(&fixture, 1, vec![counted(BreakerKey::new("other", TARGET), at(120), runs(0, 5))]).await;
    record(&fixture, 1, Vec::new()).await;
    let other = (BreakerKey::new("other", TARGET), runs(0, 5));
    assert_eq!(sums(&fixture, at(60)).await, [(of_tenant.clone(), runs(9, 0)), (key(), runs(4, 14)), other.clone()]);
    assert_eq!(sums(&fixture, at(61)).await, [(of_tenant, runs(9, 0)), (key(), runs(3, 12)), other]);
    assert_eq!(sums(&fixture, at(121)).await, []);
}

/// A node may report any number of times, also smaller counts.
pub async fn counts_that_are_reported_again_replace_the_first(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    record(&fixture, 2, vec![counted(key(), at(60), runs(0, 1))]).await;
    for shown in [runs(1, 2), runs(1, 2), runs(5, 7), runs(0, 0)] {
        record(&fixture, 1, vec![counted(key(), at(60), shown)]).await;
        assert_eq!(sums(&fixture, at(60)).await, [(key(), shown.plus(runs(0, 1)))]);
    }
}

/// The breaker of a tenant hides all counts of the tenant.
pub async fn counts_of_open_breakers_are_not_listed(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let keys = [
        BreakerKey::of_tenant(TENANT),
        key(),
        BreakerKey::new(TENANT, "https://other:443"),
        BreakerKey::new("other", TARGET),
    ];
    record(&fixture, 1, keys.iter().map(|key| counted(key.clone(), at(60), runs(0, 1))).collect()).await;
    open(&fixture, key()).await;
    let shown = async || sums(&fixture, at(60)).await.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(shown().await, [keys[0].clone(), keys[2].clone(), keys[3].clone()]);
    open(&fixture, BreakerKey::of_tenant(TENANT)).await;
    assert_eq!(shown().await, [keys[3].clone()]);
}

/// The interval that begins at the instant stays.
pub async fn old_counts_are_pruned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let intervals = [59, 60, 61].map(|interval| counted(key(), at(interval), runs(0, 1)));
    record(&fixture, 1, intervals.to_vec()).await;
    fixture.database.prune(Prunable::BreakerCounts, at(60), 1).await.expect("counts can be pruned");
    assert_eq!(sums(&fixture, at(0)).await, [(key(), runs(0, 2))]);
}

/// Many nodes open a breaker at once; one succeeds.
pub async fn opening_succeeds_once(factory: &dyn StoreFactory) {
    const NODES: usize = 16;
    let fixture = StoreFixture::open(factory).await;
    let together = Arc::new(Barrier::new(NODES));
    let mut nodes = JoinSet::new();
    for _ in 0..NODES {
        let (breakers, together) = (Arc::clone(&fixture.database), Arc::clone(&together));
        nodes.spawn(async move {
            together.wait().await;
            breakers.open_breaker(breaker(key())).await.expect("a breaker can be opened")
        });
    }
    assert_eq!(nodes.join_all().await.into_iter().filter(|opened| *opened).count(), 1);
    let later = OpenBreaker { opened_at: at(200), reason: "another".to_owned(), ..breaker(key()) };
    assert!(!fixture.database.open_breaker(later).await.expect("it answers"));
    assert_eq!(only(&fixture).await, breaker(key()));
}

/// Keys are ordered by bytes.
pub async fn breakers_are_listed_in_order(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut keys = Vec::new();
    for tenant in ["a", "B", "acme", "\u{e9}"] {
        for target in ["https://z:1", "", "http://a:80", "https://Z:1"] {
            keys.push(BreakerKey::new(tenant, target));
        }
    }
    for key in &keys {
        open(&fixture, key.clone()).await;
    }
    keys.sort_unstable();
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = fixture.database.list_breakers(after.clone(), 5).await.expect("breakers can be listed");
        assert!(page.len() <= 5);
        listed.extend(page.iter().map(|breaker| breaker.key.clone()));
        if page.is_empty() {
            break;
        }
        after = listed.last().cloned();
    }
    assert_eq!(listed, keys);
}

/// The target's own breaker has precedence.
pub async fn the_breaker_over_a_target_is_found(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let over = async |tenant: &str, target: &str| {
        let found = fixture.database.breaker_over(tenant, target).await.expect("breakers can be read");
        found.map(|breaker| breaker.key)
    };
    open(&fixture, key()).await;
    assert_eq!(over(TENANT, TARGET).await, Some(key()));
    assert_eq!(over(TENANT, "https://other:443").await, None);
    assert_eq!(over(TENANT, "").await, None);
    assert_eq!(over("other", TARGET).await, None);
    open(&fixture, BreakerKey::of_tenant(TENANT)).await;
    assert_eq!(over(TENANT, TARGET).await, Some(key()));
    for target in ["https://other:443", ""] {
        assert_eq!(over(TENANT, target).await, Some(BreakerKey::of_tenant(TENANT)), "{target}");
    }
    assert_eq!(over("other", "").await, None);
}

/// One node is permitted to make a probe each time one is due.
pub async fn a_probe_is_permitted_to_one(factory: &dyn StoreFactory) {
    const NODES: usize = 16;
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(permit(&fixture, 160, 220).await, BreakerChange::NotOpen);
    open(&fixture, key()).await;
    assert_eq!(permit(&fixture, 159, 220).await, BreakerChange::Kept);
    let together = Arc::new(Barrier::new(NODES));
    let mut nodes = JoinSet::new();
    for _ in 0..NODES {
        let (breakers, together) = (Arc::clone(&fixture.database), Arc::clone(&together));
        nodes.spawn(async move {
            together.wait().await;
            let ask = BreakerEvent::RequestProbe { now: at(160), next: at(220) };
            breakers.change_breaker(&key(), ask).await.expect("a permission can be asked for")
        });
    }
    let answers = nodes.join_all().await;
    assert_eq!(answers.iter().filter(|answer| **answer == BreakerChange::Changed).count(), 1, "{answers:?}");
    assert!(!answers.contains(&BreakerChange::NotOpen));
    let expected = OpenBreaker { half_open: true, next_probe_at: at(220), ..breaker(key()) };
    assert_eq!(only(&fixture).await, expected);
    assert_eq!(permit(&fixture, 219, 280).await, BreakerChange::Kept);
    // The probe of the first has not ended, and may never end.
    assert_eq!(permit(&fixture, 220, 280).await, BreakerChange::Changed);
}

/// A node that found no task has not made a probe.
pub async fn a_permission_can_be_returned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    open(&fixture, key()).await;
    permit(&fixture, 160, 220).await;
    name(&fixture, 220, Err(at(161))).await;
    assert_eq!(only(&fixture).await, OpenBreaker { next_probe_at: at(161), ..breaker(key()) });
    assert_eq!(permit(&fixture, 161, 221).await, BreakerChange::Changed);
    name(&fixture, 220, Err(at(162))).await;
    let probe = TaskId::new();
    name(&fixture, 221, Ok(probe)).await;
    name(&fixture, 221, Err(at(162))).await;
    let expected = OpenBreaker { half_open: true, next_probe_at: at(221), probe: Some(probe), ..breaker(key()) };
    assert_eq!(only(&fixture).await, expected, "an old or used permission is not returned");
}

/// A success of another task does not close it.
pub async fn only_its_probes_close_a_breaker(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    open(&fixture, key()).await;
    assert!(!close(&fixture, TaskId::new()).await);
    let (first, late) = (probe(&fixture, 160, 220).await, TaskId::new());
    permit(&fixture, 220, 280).await;
    name(&fixture, 220, Ok(late)).await;
    assert_eq!(only(&fixture).await.probe, None, "an earlier permission names no probe");
    let second = TaskId::new();
    name(&fixture, 280, Ok(second)).await;
    for other in [late, TaskId::new()] {
        assert!(!close(&fixture, other).await);
    }
    assert!(close(&fixture, second).await);
    assert!(!close(&fixture, second).await);
    assert_eq!(all(&fixture).await, []);
    open(&fixture, key()).await;
    for before in [first, second] {
        assert!(!close(&fixture, before).await, "the breaker was opened again since");
    }
}

/// The run of a probe may last longer than the time until the next one.
pub async fn an_overtaken_probe_still_counts(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    open(&fixture, key()).await;
    let mut probes = Vec::new();
    for made in 0..i64::try_from(OpenBreaker::OVERTAKEN_MAX).expect("it is small") + 2 {
        probes.insert(0, probe(&fixture, 160 + made, 161 + made).await);
    }
    let breaker = only(&fixture).await;
    assert_eq!((breaker.half_open, breaker.probe), (true, Some(probes[0])));
    let mut kept = probes[1..].to_vec();
    let forgotten = kept.remove(OpenBreaker::OVERTAKEN_MAX / 2);
    assert_eq!(breaker.overtaken, kept, "the latest ones, newest first, and the very first");
    assert!(!close(&fixture, forgotten).await);
    fail(&fixture, forgotten, 500, "forgotten").await;
    assert_eq!(only(&fixture).await, breaker);
    fail(&fixture, probes[2], 501, "refused").await;
    let after = only(&fixture).await;
    assert_eq!((after.half_open, after.probe), (true, Some(probes[0])), "the last probe is still under way");
    assert_eq!(after.last_probe, Some(FailedProbe { at: at(501), error: "refused".to_owned() }));
    assert!(!after.overtaken.contains(&probes[2]));
    assert_eq!(after.overtaken.len(), OpenBreaker::OVERTAKEN_MAX - 1);
    assert!(!close(&fixture, probes[2]).await);
    // A permission without a task yet stays, whatever happens to earlier probes.
    permit(&fixture, 300, 360).await;
    fail(&fixture, probes[3], 502, "refused").await;
    let after = only(&fixture).await;
    assert_eq!((after.half_open, after.probe, after.overtaken[0]), (true, None, probes[0]));
    assert!(close(&fixture, probes[4]).await);
    assert_eq!(all(&fixture).await, []);
    open(&fixture, key()).await;
    assert_eq!(only(&fixture).await.overtaken, []);
}

/// Neither it nor another task proves anything. An overtaken probe does not move the next one.
pub async fn a_probe_that_is_given_back_does_not_count(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    open(&fixture, key()).await;
    let first = probe(&fixture, 160, 220).await;
    give_back(&fixture, TaskId::new(), 165).await;
    assert_eq!(permit(&fixture, 165, 225).await, BreakerChange::Kept);
    give_back(&fixture, first, 165).await;
    assert_eq!(only(&fixture).await, OpenBreaker { next_probe_at: at(165), ..breaker(key()) });
    assert!(!close(&fixture, first).await);
    let (second, third) = (probe(&fixture, 165, 225).await, probe(&fixture, 225, 285).await);
    give_back(&fixture, second, 230).await;
    let expected = (true, Some(third), at(285));
    let after = only(&fixture).await;
    assert_eq!((after.half_open, after.probe, after.next_probe_at), expected);
    assert_eq!(after.overtaken, [], "it has ended");
    give_back(&fixture, third, 900).await;
    assert_eq!(only(&fixture).await.next_probe_at, at(285), "the next probe is not delayed");
}

/// The next probe may be made at its time. A breaker that opens again has forgotten the failure.
pub async fn a_failed_probe_leaves_it_open(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    open(&fixture, key()).await;
    let first = probe(&fixture, 160, 220).await;
    fail(&fixture, TaskId::new(), 161, "another").await;
    let under_way = only(&fixture).await;
    assert_eq!((under_way.half_open, under_way.last_probe), (true, None));
    fail(&fixture, first, 162, "br\u{f6}ken\0").await;
    let last_probe = Some(FailedProbe { at: at(162), error: "br\u{f6}ken ".to_owned() });
    let expected = OpenBreaker { next_probe_at: at(220), last_probe: last_probe.clone(), ..breaker(key()) };
    assert_eq!(only(&fixture).await, expected);
    assert_eq!(fixture.database.breaker_over(TENANT, TARGET).await.expect("it answers"), Some(expected));
    assert!(!close(&fixture, first).await);
    let second = probe(&fixture, 220, 280).await;
    assert_eq!(only(&fixture).await.last_probe, last_probe, "it is shown until the next one has failed");
    fail(&fixture, second, 221, "refused").await;
    let last_probe = FailedProbe { at: at(221), error: "refused".to_owned() };
    assert_eq!(only(&fixture).await.last_probe, Some(last_probe));
    assert!(reset(&fixture, &key()).await);
    open(&fixture, key()).await;
    assert_eq!(only(&fixture).await, breaker(key()));
}

/// Old counts would open the breaker again at once.
pub async fn closing_forgets_the_counts(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (of_tenant, other) = (BreakerKey::of_tenant(TENANT), BreakerKey::new("other", TARGET));
    let keys = [of_tenant.clone(), key(), BreakerKey::new(TENANT, "https://other:443"), other.clone()];
    let shown: Vec<IntervalCounts> = keys.iter().map(|key| counted(key.clone(), at(60), runs(0, 1))).collect();
    record(&fixture, 1, shown.clone()).await;
    record(&fixture, 2, shown).await;
    let left = async || sums(&fixture, at(0)).await.into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    open(&fixture, key()).await;
    permit(&fixture, 160, 220).await;
    let probe = TaskId::new();
    name(&fixture, 220, Ok(probe)).await;
    assert!(close(&fixture, probe).await);
    assert_eq!(left().await, [keys[0].clone(), keys[2].clone(), other.clone()]);
    open(&fixture, of_tenant.clone()).await;
    assert!(reset(&fixture, &of_tenant).await);
    assert_eq!(left().await, [other]);
}

/// A probe under way does not matter. Other breakers stay open.
pub async fn a_reset_closes_any_breaker(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let reset = async |key: BreakerKey| reset(&fixture, &key).await;
    assert!(!reset(key()).await);
    open(&fixture, key()).await;
    open(&fixture, BreakerKey::of_tenant(TENANT)).await;
    permit(&fixture, 160, 220).await;
    name(&fixture, 220, Ok(TaskId::new())).await;
    assert!(reset(key()).await);
    assert!(!reset(key()).await);
    assert_eq!(only(&fixture).await.key, BreakerKey::of_tenant(TENANT));
    assert!(reset(BreakerKey::of_tenant(TENANT)).await);
    assert_eq!(all(&fixture).await, []);
}

/// The next process finds the breaker unchanged, with its probe under way.
pub async fn breakers_outlive_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    open(&fixture, key()).await;
    permit(&fixture, 160, 220).await;
    let probe = TaskId::new();
    name(&fixture, 220, Ok(probe)).await;
    record(&fixture, 1, vec![counted(BreakerKey::of_tenant(TENANT), at(60), runs(2, 3))]).await;
    let fixture = fixture.reopen().await;
    let expected = OpenBreaker { half_open: true, next_probe_at: at(220), probe: Some(probe), ..breaker(key()) };
    assert_eq!(only(&fixture).await, expected);
    assert_eq!(sums(&fixture, at(0)).await, [(BreakerKey::of_tenant(TENANT), runs(2, 3))]);
    assert!(close(&fixture, probe).await);
}
