//! The loop that keeps this node's share of the partitions.
//!
//! It runs at every renewal, when the right of another node ends, and at once when partitions may
//! be free or this node may have too many. So the partitions of a silent node are taken when its
//! lease ends, not at the next renewal. It records what this node owns in [`OwnedPartitions`].
//! Invariant: only this loop adds partitions there; the dispatcher only removes those that another
//! node owns.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::partitions::Ownership;
use punctual_core::store::StoreError;
use punctual_core::time::{Timestamp, millis};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::OwnedPartitions;

/// How partitions are owned.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How many there are: the same on every node.
    pub count: u16,
    /// How long a node that does not renew stays the owner.
    pub lease: Duration,
    /// How often a node renews.
    pub renewal: Duration,
}

/// Keeps this node's share of the partitions (see the module).
pub struct OwnershipLoop {
    coordinator: Arc<dyn Coordinator>,
    owned: Arc<OwnedPartitions>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
}

/// The least pause between two passes, however often one is requested.
const PASS_PAUSE_MIN: Duration = Duration::from_millis(10);
/// The least pause before a pass because another node's right ends. A node with a longer lease than
/// others looks that often at most.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(100);
/// A pass that failed is retried after this, or after the renewal if that is shorter.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long a node that shuts down tries to give up its partitions.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

impl OwnershipLoop {
    /// A loop for this node that records what it owns in `owned`.
    pub fn new(
        coordinator: Arc<dyn Coordinator>,
        owned: Arc<OwnedPartitions>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        config: Config,
    ) -> Self {
        Self { coordinator, owned, clock, node, config }
    }

    /// Runs until the shutdown; then gives everything up.
    pub async fn run(self, shutdown: CancellationToken) {
        let (mut failing, mut is_due) = (false, true);
        let mut was_logged = false;
        while !shutdown.is_cancelled() {
            let pass = self.run_once();
            tokio::pin!(pass);
            let pass = tokio::select! {
                pass = &mut pass => pass,
                () = shutdown.cancelled() => {
                    // A pass that is under way in the store must not come after the leaving.
                    drop(tokio::time::timeout(LEAVE_TIMEOUT, pass).await);
                    break;
                }
            };
            if let (Err(error), false) = (&pass, failing) {
                tracing::warn!(error = %error, "cannot renew the ownership of partitions; retrying within a second");
            }
            failing = pass.is_err();
            let pause = pass.map_or_else(|_| self.retry_pause(), |look_again_at| self.pause(look_again_at));
            let next_at = Instant::now() + pause;
            if is_due {
                let check = tokio::time::timeout_at(next_at, self.check_count(was_logged));
                was_logged = check.await.unwrap_or(was_logged);
            }
            is_due = tokio::select! {
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep_until(next_at) => true,
                () = self.owned.pass_requested.notified() => false,
            };
            if !is_due {
                tokio::time::sleep(PASS_PAUSE_MIN).await;
            }
        }
        self.owned.set(&[], self.config.lease, Instant::now());
        match tokio::time::timeout(LEAVE_TIMEOUT, self.coordinator.leave(self.node)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(error = %error, "cannot give up the partitions; they will run out"),
            Err(_) => tracing::debug!("cannot give up the partitions in time; they will run out"),
        }
    }

    /// One pass: renews, gives up, takes. Returns when the right of another node ends.
    pub async fn run_once(&self) -> Result<Option<Timestamp>, StoreError> {
        let asked_at = Instant::now();
        let lease = millis(self.config.lease);
        let share = self.coordinator.take_share(self.node, self.config.count, lease).await?;
        self.owned.set(&share.owned, self.config.lease, asked_at + self.config.lease.mul_f64(2.0 / 3.0));
        Ok(share.look_again_at)
    }

    /// The pause after a pass: until the next renewal, or until the right of another node ends.
    fn pause(&self, look_again_at: Option<Timestamp>) -> Duration {
        let renewal = spread(self.config.renewal);
        let until = |at: Timestamp| at.duration_from(self.clock.now()).max(LOOK_PAUSE_MIN);
        look_again_at.map_or(renewal, |at| renewal.min(until(at)))
    }

    fn retry_pause(&self) -> Duration {
        spread(self.config.renewal.min(RETRY_INTERVAL))
    }

    /// Logs, once, that another node counts more partitions; returns whether one does. The node
    /// that counts fewer notices, since the other one owns partitions beyond its count.
    async fn check_count(&self, was_logged: bool) -> bool {
        // The next pass must not be late because of this.
        let asked = tokio::time::timeout(self.config.renewal / 4, self.coordinator.ownership());
        let Ok(Ok(rows)) = asked.await else { return was_logged };
        let beyond = beyond(&rows, self.config.count, self.clock.now());
        if let (Some(row), false) = (beyond, was_logged) {
            tracing::error!(
                partitions = self.config.count,
                beyond = row.partition.number(),
                owner = row.owner.map(tracing::field::display),
                "scheduler.partitions is not the same on all nodes: another node owns a partition beyond those that this \
                 one counts. No node dispatches the webhooks of some queues until it is one number on all of them"
            );
        }
        beyond.is_some()
    }
}

/// Spreads the passes of the nodes, so that they do not coincide for long.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(0.75 + rand::random::<f64>() / 4.0)
}

/// How many partitions the nodes count that own some at `now`, if that is not `count`. Then a
/// partition beyond it is owned, or a partition below it never was.
pub fn another_count(rows: &[Ownership], count: u16, now: Timestamp) -> Option<usize> {
    let owned =
        rows.iter().filter(|row| row.owner_at(now).is_some()).map(|row| usize::from(row.partition.number()) + 1);
    let (last, ever, count) = (owned.max()?, rows.len(), usize::from(count));
    if last > count { Some(last) } else { (ever < count).then_some(ever) }
}

/// A partition beyond the first `count` that a node owns.
pub(super) fn beyond(rows: &[Ownership], count: u16, now: Timestamp) -> Option<&Ownership> {
    rows.iter().find(|row| row.partition.number() >= count && row.owner_at(now).is_some())
}
