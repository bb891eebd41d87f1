//! The loop that keeps this node's share of the partitions.
//!
//! A turn every renewal, and one at once when the node is told that partitions are free or that
//! it has too many. Whatever it owns is told to [`Owned`]; nobody else changes that, except to
//! forget what the store says is lost.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::partitions::Ownership;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Owned;

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

/// Keeps this node's share of the partitions (see the module).
pub struct Owner {
    coordinator: Arc<dyn Coordinator>,
    owned: Arc<Owned>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
}

/// Between two turns, however often it is asked for one.
const BREATH: Duration = Duration::from_millis(10);
/// When a turn that failed is tried again, at the latest.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a node that ends tries to give up what it owns.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

impl Owner {
    /// An owner for this node; what it owns is told to `owned`.
    pub fn new(
        coordinator: Arc<dyn Coordinator>,
        owned: Arc<Owned>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        config: Config,
    ) -> Self {
        Self { coordinator, owned, clock, node, config }
    }

    /// Takes turns until told to stop; then gives everything up.
    pub async fn run(self, shutdown: CancellationToken) {
        let (mut failing, mut is_due) = (false, true);
        let mut told = false;
        while !shutdown.is_cancelled() {
            let turn = self.run_once();
            tokio::pin!(turn);
            let turn = tokio::select! {
                turn = &mut turn => turn,
                () = shutdown.cancelled() => {
                    // A turn that the store is at must not come after the leaving.
                    drop(tokio::time::timeout(LEAVES_WITHIN, turn).await);
                    break;
                }
            };
            if let (Err(error), false) = (&turn, failing) {
                tracing::warn!(error = %error, "could not renew the ownership of partitions");
            }
            failing = turn.is_err();
            if is_due {
                told = self.look_around(told).await;
            }
            // Nobody's turns should fall together for long.
            let pause = if failing { self.config.renewal.min(AGAIN) } else { self.config.renewal };
            let pause = pause.mul_f64(0.75 + rand::random::<f64>() / 4.0);
            is_due = tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(pause) => true,
                () = self.owned.asked.notified() => false,
            };
            if !is_due {
                tokio::time::sleep(BREATH).await;
            }
        }
        self.owned.set(&[], self.config.lease, Instant::now());
        match tokio::time::timeout(LEAVES_WITHIN, self.coordinator.leave(self.node)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = %error, "could not give up the partitions; they will run out"),
            Err(_) => tracing::debug!("could not give up the partitions in time; they will run out"),
        }
    }

    /// One turn: renews, gives up, takes.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        let asked_at = Instant::now();
        let lease = u64::try_from(self.config.lease.as_millis()).unwrap_or(u64::MAX);
        let owned = self.coordinator.take_share(self.node, self.config.count, lease).await?;
        self.owned.set(&owned, self.config.lease, asked_at + self.config.lease.mul_f64(2.0 / 3.0));
        Ok(())
    }

    /// Says so, once, when another node counts more partitions; answers whether one does. The node that counts fewer
    /// notices, since the other one owns what is beyond.
    async fn look_around(&self, was_told: bool) -> bool {
        // The next turn must not be late for it.
        let asked = tokio::time::timeout(self.config.renewal / 4, self.coordinator.ownership());
        let Ok(Ok(rows)) = asked.await else { return was_told };
        let beyond = beyond(&rows, self.config.count, self.clock.now());
        if let (Some(row), false) = (beyond, was_told) {
            tracing::error!(
                partitions = self.config.count,
                beyond = row.partition.number(),
                owner = row.owner.map(tracing::field::display),
                "scheduler.partitions is not the same on all nodes: another node owns a partition beyond those that this \
                 one counts. Webhooks of some queues are dispatched by nobody until it is one number on all of them"
            );
        }
        beyond.is_some()
    }
}

/// How many partitions the nodes count that own some at `now`, if that is not `count`: what is beyond it is owned, or
/// what is below it never was.
pub fn another_count(rows: &[Ownership], count: u16, now: Timestamp) -> Option<usize> {
    let owned =
        rows.iter().filter(|row| row.owner_at(now).is_some()).map(|row| usize::from(row.partition.number()) + 1);
    let (last, ever, count) = (owned.max()?, rows.len(), usize::from(count));
    if last > count { Some(last) } else { (ever < count).then_some(ever) }
}

/// A partition beyond the first `count` that somebody owns.
pub(super) fn beyond(rows: &[Ownership], count: u16, now: Timestamp) -> Option<&Ownership> {
    rows.iter().find(|row| row.partition.number() >= count && row.owner_at(now).is_some())
}
