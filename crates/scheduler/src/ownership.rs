//! Which partitions this node owns, and the loop that keeps them.
//!
//! The dispatcher asks [`Owned`] before it dispatches what is pushed. A node that could not
//! renew counts what it owned as lost when two thirds of the time are over, by its own
//! monotonic clock, so that it has stopped before anybody else begins.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use punctual_core::ids::NodeId;
use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::{Partition, Partitions};
use punctual_core::store::StoreError;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How partitions are owned.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many there are: the same on every node.
    pub count: u16,
    /// For how long a silent node stays the owner.
    pub lease: Duration,
    /// How often it renews.
    pub renewal: Duration,
}

/// What this node owns.
#[derive(Debug)]
pub struct Owned {
    count: u16,
    state: RwLock<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    terms: HashMap<Partition, u64>,
    good_until: Instant,
    /// Grows whenever the partitions change, also by running out.
    generation: u64,
}

impl Owned {
    /// Nothing, of `count` partitions.
    pub fn nothing(count: u16) -> Self {
        let state = State { terms: HashMap::new(), good_until: Instant::now(), generation: 0 };
        Self { count, state: RwLock::new(state), changed: Notify::new() }
    }

    /// Everything, for ever: for a node that shares its store with nobody.
    pub fn everything() -> Self {
        let state = State {
            terms: HashMap::from([(Partition::new(0), 1)]),
            good_until: Instant::now() + Duration::from_hours(100 * 366 * 24),
            generation: 0,
        };
        Self { count: 1, state: RwLock::new(state), changed: Notify::new() }
    }

    /// The partition of a lane, and the term in which this node owns it.
    pub fn term_of(&self, lane: &LaneKey) -> Option<(Partition, u64)> {
        let partition = Partition::of(lane, self.count);
        let state = self.state.read();
        let term = state.terms.get(&partition).copied().filter(|_| Instant::now() < state.good_until)?;
        Some((partition, term))
    }

    /// Whether tasks of this lane are given out by this node: to whoever asks it, or because it owns them.
    pub fn concerns(&self, lane: &LaneKey) -> bool {
        lane.route == Route::Pull || self.term_of(lane).is_some()
    }

    /// A number that grows whenever other lanes concern this node than before.
    pub fn generation(&self) -> u64 {
        let mut state = self.state.write();
        if !state.terms.is_empty() && Instant::now() >= state.good_until {
            state.terms.clear();
            state.generation += 1;
        }
        state.generation
    }

    /// Returns once other partitions are owned than before.
    pub async fn wait(&self) {
        self.changed.notified().await;
    }

    fn set(&self, terms: HashMap<Partition, u64>, good_until: Instant) {
        let mut state = self.state.write();
        state.good_until = good_until;
        if state.terms != terms {
            state.terms = terms;
            state.generation += 1;
            drop(state);
            self.changed.notify_one();
        }
    }
}

/// Keeps this node's share of the partitions (see the module).
pub struct Owner {
    partitions: Arc<dyn Partitions>,
    owned: Arc<Owned>,
    node: NodeId,
    config: Config,
}

impl Owner {
    /// An owner for this node; what it owns is told to `owned`.
    pub fn new(partitions: Arc<dyn Partitions>, owned: Arc<Owned>, node: NodeId, config: Config) -> Self {
        Self { partitions, owned, node, config }
    }

    /// Takes turns until told to stop; then gives everything up.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut failing = false;
        while !shutdown.is_cancelled() {
            let turn = self.run_once().await;
            if let (Err(error), false) = (&turn, failing) {
                tracing::warn!(error = %error, "could not renew the ownership of partitions");
            }
            failing = turn.is_err();
            // Nobody's turns should fall together for long.
            let pause = self.config.renewal.mul_f64(0.75 + rand::random::<f64>() / 4.0);
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.owned.set(HashMap::new(), Instant::now());
        if let Err(error) = self.partitions.leave(self.node).await {
            tracing::debug!(error = %error, "could not give up the partitions; they will run out");
        }
    }

    /// One turn: renews, gives up, takes.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        let lease = u64::try_from(self.config.lease.as_millis()).unwrap_or(u64::MAX);
        let owned = self.partitions.take_turn(self.node, self.config.count, lease).await?;
        let terms = owned.iter().map(|row| (row.partition, row.term)).collect();
        self.owned.set(terms, asked_at + self.config.lease.mul_f64(2.0 / 3.0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use parking_lot::Mutex;
    use punctual_core::partitions::{Ownership, turn};
    use punctual_core::time::Timestamp;

    use super::*;

    /// Partitions in memory, at a time that does not pass.
    #[derive(Default)]
    struct Table {
        rows: Mutex<Vec<Ownership>>,
        members: Mutex<Vec<NodeId>>,
        broken: Mutex<bool>,
    }

    #[async_trait]
    impl Partitions for Table {
        async fn take_turn(&self, node: NodeId, count: u16, _: u64) -> Result<Vec<Ownership>, StoreError> {
            if *self.broken.lock() {
                return Err(StoreError::Unavailable("broken".into()));
            }
            let (mut rows, mut members) = (self.rows.lock(), self.members.lock());
            let (now, later) = (Timestamp::from_millis(1), Timestamp::from_millis(2));
            for number in u16::try_from(rows.len()).unwrap()..count {
                rows.push(Ownership { partition: Partition::new(number), owner: None, term: 0, expires_at: now });
            }
            if !members.contains(&node) {
                members.push(node);
            }
            for change in turn(node, &rows, &members, now, later) {
                rows[usize::from(change.partition.number())] = change;
            }
            Ok(rows.iter().filter(|row| row.owner == Some(node)).copied().collect())
        }

        async fn leave(&self, node: NodeId) -> Result<(), StoreError> {
            self.members.lock().retain(|member| *member != node);
            for row in self.rows.lock().iter_mut().filter(|row| row.owner == Some(node)) {
                row.owner = None;
            }
            Ok(())
        }

        async fn ownership(&self) -> Result<Vec<Ownership>, StoreError> {
            Ok(self.rows.lock().clone())
        }
    }

    const CONFIG: Config = Config { count: 64, lease: Duration::from_secs(3), renewal: Duration::from_secs(1) };

    fn owner(table: &Arc<Table>, number: u64) -> (Owner, Arc<Owned>) {
        let owned = Arc::new(Owned::nothing(CONFIG.count));
        (Owner::new(Arc::clone(table) as _, Arc::clone(&owned), NodeId::new(number), CONFIG), owned)
    }

    fn lane(queue: usize, route: Route) -> LaneKey {
        LaneKey { tenant: "t".into(), queue: format!("q{queue}"), kind: "k".into(), priority: 5, route }
    }

    fn pushed(queue: usize) -> LaneKey {
        lane(queue, Route::Push("http://127.0.0.1:1".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn every_pushed_lane_concerns_one_node_and_every_pulled_one_all() {
        let table = Arc::new(Table::default());
        let ((first, a), (second, b)) = (owner(&table, 1), owner(&table, 2));
        first.run_once().await.unwrap();
        assert!((0..100).all(|queue| a.concerns(&pushed(queue)) && !b.concerns(&pushed(queue))));
        for _ in 0..2 {
            first.run_once().await.unwrap();
            second.run_once().await.unwrap();
        }
        assert!((0..100).all(|queue| a.concerns(&pushed(queue)) != b.concerns(&pushed(queue))));
        assert!((0..100).all(|queue| [&a, &b].iter().all(|owned| owned.concerns(&lane(queue, Route::Pull)))));
    }

    #[tokio::test(start_paused = true)]
    async fn who_cannot_renew_stops_before_the_lease_is_over() {
        let table = Arc::new(Table::default());
        let (owner, owned) = owner(&table, 1);
        owner.run_once().await.unwrap();
        let before = owned.generation();
        *table.broken.lock() = true;
        tokio::time::advance(CONFIG.lease.mul_f64(0.6)).await;
        assert!(owner.run_once().await.is_err());
        assert!(owned.concerns(&pushed(1)));
        tokio::time::advance(CONFIG.lease.mul_f64(0.1)).await;
        assert!(!owned.concerns(&pushed(1)));
        assert!(owned.generation() > before, "whoever keeps lanes must hear of it");
        *table.broken.lock() = false;
        owner.run_once().await.unwrap();
        assert!(owned.concerns(&pushed(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_stopped_node_leaves() {
        let table = Arc::new(Table::default());
        let (owner, owned) = owner(&table, 1);
        let stop = CancellationToken::new();
        let running = tokio::spawn(owner.run(stop.clone()));
        owned.wait().await;
        stop.cancel();
        running.await.unwrap();
        assert!(!owned.concerns(&pushed(1)));
        assert!(table.ownership().await.unwrap().iter().all(|row| row.owner.is_none()));
    }
}
