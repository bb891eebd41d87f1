//! The conformance suite of [`punctual_core::coordinator::Coordinator`]: each sentence of
//! its contract is a function here of the same name.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::clock::ManualClock;
use punctual_core::coordinator::{Coordinator, LeaderLease};
use punctual_core::ids::NodeId;
use punctual_core::store::Store;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::fixtures::START;
use crate::store::StoreFactory;

const TTL: u64 = 10_000;

/// A place for leases, empty at first. Every test makes its own.
#[async_trait]
pub trait CoordinatorFactory: Send + Sync {
    /// Opens the coordinator over this place, after the previous one is shut down.
    async fn open(&self) -> Arc<dyn Coordinator>;

    /// Lets this much time pass by the coordinator's clock.
    async fn pass(&self, millis: u64);
}

/// The leases that a store keeps.
pub struct OverStore<F> {
    factory: F,
    clock: Arc<ManualClock>,
    opened: Mutex<Option<Arc<dyn Store>>>,
}

impl<F: StoreFactory> OverStore<F> {
    /// The leases of the store that `factory` opens.
    pub fn new(factory: F) -> Self {
        Self { factory, clock: Arc::new(ManualClock::new(START)), opened: Mutex::new(None) }
    }
}

#[async_trait]
impl<F: StoreFactory> CoordinatorFactory for OverStore<F> {
    async fn open(&self) -> Arc<dyn Coordinator> {
        let mut opened = self.opened.lock().await;
        if let Some(store) = opened.take() {
            store.close().await.expect("a store closes");
        }
        let database = self.factory.open(Arc::clone(&self.clock), NodeId::random()).await;
        *opened = Some(database.clone());
        database
    }

    async fn pass(&self, millis: u64) {
        self.clock.advance_millis(i64::try_from(millis).expect("a test lasts less than ages"));
    }
}

/// Stamps the suite. `$factory` is an expression that returns a `CoordinatorFactory` with a fresh
/// place.
#[macro_export]
macro_rules! coordinator_conformance {
    ($factory:expr) => {
        $crate::stamp! { coordinator, $factory;
            one_holder_at_a_time,
            terms_grow,
            renew_keeps_the_term,
            an_expired_lease_is_free,
            release_frees_at_once,
            every_node_can_read_the_holder,
            only_a_node_whose_session_ended_is_gone,

            a_lease_is_won_by_one,
        }
    };
}

/// The second node is refused as long as the lease lasts. Other names are other leases.
pub async fn one_holder_at_a_time(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let (a, b) = (NodeId::random(), NodeId::new(u64::MAX >> 1));
    let held = acquire(&coordinator, "leader", a).await.expect("it is free");
    assert_eq!((held.name.as_str(), held.holder), ("leader", a));
    for _ in 0..3 {
        assert_eq!(acquire(&coordinator, "leader", b).await, None);
        factory.pass(TTL / 4).await;
    }
    for name in ["Leader", "leader ", "lead", "wähler/🗳", ""] {
        let other = acquire(&coordinator, name, b).await.unwrap_or_else(|| panic!("{name:?} is free"));
        assert_eq!((other.name.as_str(), other.holder), (name, b));
    }
    assert!(renew(&coordinator, &held).await, "the holder was not disturbed");
}

/// If many nodes try at once, one gets it, each time.
pub async fn a_lease_is_won_by_one(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let mut last = 0;
    for _ in 0..5 {
        let mut candidates = JoinSet::new();
        for _ in 0..30 {
            let coordinator = Arc::clone(&coordinator);
            candidates.spawn(async move { acquire(&coordinator, "leader", NodeId::random()).await });
        }
        let won: Vec<LeaderLease> = candidates.join_all().await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "{won:?} all hold it");
        assert!(won[0].term > last);
        last = won[0].term;
        factory.pass(TTL + 1).await;
    }
}

/// Every new holder's term is greater than all before: after a release, an expiry and a restart.
pub async fn terms_grow(factory: &dyn CoordinatorFactory) {
    let mut coordinator = factory.open().await;
    let mut last = 0;
    for round in 0..12 {
        let lease = acquire(&coordinator, "leader", NodeId::random()).await.expect("it is free");
        assert!(lease.term > last, "term {} after {last} in round {round}", lease.term);
        last = lease.term;
        assert!(renew(&coordinator, &lease).await);
        if round % 2 == 0 {
            coordinator.release(&lease).await.expect("it is released");
        } else {
            factory.pass(TTL + 1).await;
        }
        if round % 3 == 2 {
            drop(coordinator);
            coordinator = factory.open().await;
        }
    }
}

/// Renewing extends the lease under its term. A node that lost it, or never had it, renews nothing.
pub async fn renew_keeps_the_term(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let (a, b) = (NodeId::random(), NodeId::random());
    let first = acquire(&coordinator, "leader", a).await.expect("it is free");
    for _ in 0..5 {
        factory.pass(TTL - 1).await;
        assert!(renew(&coordinator, &first).await);
        assert_eq!(acquire(&coordinator, "leader", b).await, None, "it was renewed");
    }
    let forged = [
        LeaderLease { term: first.term + 1, ..first.clone() },
        LeaderLease { term: first.term - 1, ..first.clone() },
        LeaderLease { holder: b, ..first.clone() },
        LeaderLease { name: "other".into(), ..first.clone() },
    ];
    for lease in &forged {
        assert!(!renew(&coordinator, lease).await, "{lease:?} was renewed");
    }
    factory.pass(TTL + 1).await;
    let second = acquire(&coordinator, "leader", b).await.expect("it expired");
    assert!(!renew(&coordinator, &first).await, "an old lease was renewed");
    assert!(renew(&coordinator, &second).await);
    coordinator.release(&second).await.expect("it is released");
    assert!(!renew(&coordinator, &second).await, "a released lease was renewed");

    let again = acquire(&coordinator, "leader", a).await.expect("it is free");
    assert!(!renew(&coordinator, &first).await, "the same holder, but an older term");
    assert!(renew(&coordinator, &again).await);
}

/// A lease that expires is free without a call, and its holder has lost it.
pub async fn an_expired_lease_is_free(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let (a, b) = (NodeId::random(), NodeId::random());
    let held = acquire(&coordinator, "leader", a).await.expect("it is free");
    factory.pass(TTL - 1).await;
    assert_eq!(acquire(&coordinator, "leader", b).await, None, "it lasts a millisecond more");
    factory.pass(2).await;
    assert!(!renew(&coordinator, &held).await, "an expired lease was renewed");
    let taken = acquire(&coordinator, "leader", b).await.expect("it expired");
    assert!(taken.term > held.term);
    factory.pass(TTL + 1).await;
    let own = acquire(&coordinator, "leader", b).await.expect("the last holder may come back");
    assert!(own.term > taken.term, "under a new term");
}

/// A release frees the lease at once; a release by a former holder frees nothing.
pub async fn release_frees_at_once(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let (a, b) = (NodeId::random(), NodeId::random());
    let first = acquire(&coordinator, "leader", a).await.expect("it is free");
    coordinator.release(&first).await.expect("it is released");
    let second = acquire(&coordinator, "leader", b).await.expect("it was released");
    coordinator.release(&first).await.expect("a late release is allowed");
    coordinator
        .release(&LeaderLease { term: second.term + 1, ..second.clone() })
        .await
        .expect("a forged release is allowed");
    assert_eq!(acquire(&coordinator, "leader", a).await, None, "the release of another term freed it");
    assert!(renew(&coordinator, &second).await);
    coordinator.release(&second).await.expect("it is released");
    coordinator.release(&second).await.expect("a second release is allowed");
    assert!(acquire(&coordinator, "leader", a).await.is_some());
}

/// Every node sees the holder, the term and how long it lasts, and no holder after the lease has
/// run out or was given up.
pub async fn every_node_can_read_the_holder(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let (a, b) = (NodeId::random(), NodeId::new(u64::MAX >> 1));
    let held = async |name: &str| coordinator.holder(name).await.expect("holder answers");
    let holder = async |name: &str| held(name).await.map(|held| held.lease);
    assert_eq!(holder("leader").await, None);
    let first = acquire(&coordinator, "leader", a).await.expect("it is free");
    assert_eq!(holder("leader").await.as_ref(), Some(&first));
    assert_eq!(holder("Leader").await, None, "of another name");
    let until = held("leader").await.expect("it is held").expires_at;
    factory.pass(TTL - 1).await;
    assert_eq!(holder("leader").await.as_ref(), Some(&first));
    assert!(renew(&coordinator, &first).await);
    let renewed = held("leader").await.expect("it is held").expires_at;
    assert!(renewed.millis_since(until) >= i64::try_from(TTL - 1).expect("a short time"), "it was renewed");
    factory.pass(TTL - 1).await;
    assert_eq!(holder("leader").await.as_ref(), Some(&first), "it was renewed");
    factory.pass(1).await;
    assert_eq!(holder("leader").await, None, "it has run out");
    let second = acquire(&coordinator, "leader", b).await.expect("it expired");
    assert_eq!(holder("leader").await.as_ref(), Some(&second));
    coordinator.release(&second).await.expect("it is released");
    assert_eq!(holder("leader").await, None, "it was given up");
}

/// A node that the coordinator knows only by its rights keeps them.
pub async fn only_a_node_whose_session_ended_is_gone(factory: &dyn CoordinatorFactory) {
    let coordinator = factory.open().await;
    let (a, b) = (NodeId::random(), NodeId::random());
    let held = acquire(&coordinator, "leader", a).await.expect("it is free");
    let owned = coordinator.take_share(a, 4, TTL).await.expect("take_share answers").owned;
    assert_eq!(owned.len(), 4);
    for node in [a, b] {
        assert!(!coordinator.declare_gone(node).await.expect("declare_gone answers"));
    }
    assert_eq!(acquire(&coordinator, "leader", b).await, None);
    assert!(renew(&coordinator, &held).await);
    assert_eq!(coordinator.ownership().await.expect("ownership answers"), owned);
}

async fn acquire(coordinator: &Arc<dyn Coordinator>, name: &str, holder: NodeId) -> Option<LeaderLease> {
    coordinator.acquire(name, holder, TTL).await.expect("acquire answers")
}

async fn renew(coordinator: &Arc<dyn Coordinator>, lease: &LeaderLease) -> bool {
    coordinator.renew(lease, TTL).await.expect("renew answers")
}
