//! Elects one node to run the leader's loops.
//!
//! Every node with the role `leader` runs an elector. A node that does not lead asks again when the
//! lease of the leader ends, when it is woken because the lease may be free, and sometimes before:
//! the wake may be lost. The leader holds a lease with a term and renews it well before it expires.
//! A leader that cannot renew stops after two thirds of the lease, by its own monotonic clock. So
//! it has stopped before another node can start, unless it was declared gone: then its term fences
//! it. Its loops write as the holder of the lease. The store refuses the writes of an older term; a
//! loop that is refused ends, and the leadership ends with it.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::Clock;
use punctual_core::coordinator::{Coordinator, LEADER, LeaderLease};
use punctual_core::ids::NodeId;
use punctual_core::time::millis;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How leadership is held.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a silent leader stays leader.
    pub lease: Duration,
    /// How often it renews.
    pub renewal: Duration,
}

/// The least pause before this node asks again for a lease that has just ended.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The pause before it asks because it was woken, however often it is.
const WAKE_PAUSE: Duration = Duration::from_millis(10);

/// Runs the leader's loops while this node leads (see the module).
pub struct Elector {
    coordinator: Arc<dyn Coordinator>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    config: Config,
    freed: Arc<Notify>,
}

impl Elector {
    /// An elector for this node. `clock` is the coordinator's.
    pub fn new(coordinator: Arc<dyn Coordinator>, clock: Arc<dyn Clock>, node: NodeId, config: Config) -> Self {
        Self { coordinator, clock, node, config, freed: Arc::default() }
    }

    /// The same, and asks at once when `freed` is notified: the lease may be free.
    #[must_use]
    pub fn woken_by(self, freed: Arc<Notify>) -> Self {
        Self { freed, ..self }
    }

    /// Runs `lead` whenever this node leads, until `shutdown`. `lead` must end soon after its
    /// token is cancelled, and ends by itself when another node leads.
    pub async fn run<F, Fut>(self, lead: F, shutdown: CancellationToken)
    where
        F: Fn(LeaderLease, CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        while !shutdown.is_cancelled() {
            let asked_at = Instant::now();
            let mut pause = self.config.renewal.mul_f64(0.5 + rand::random::<f64>() / 2.0);
            match self.coordinator.acquire(LEADER, self.node, millis(self.config.lease)).await {
                Ok(Some(lease)) => self.lead(&lease, asked_at, &lead, &shutdown).await,
                Ok(None) => pause = pause.min(self.rest_of_lease().await),
                Err(error) => {
                    tracing::warn!(error = %error, "cannot ask for the leader's lease; retrying at the next renewal");
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                () = self.freed.notified() => tokio::time::sleep(WAKE_PAUSE).await,
            }
        }
    }

    /// How long the lease of the leader lasts unless it is renewed.
    async fn rest_of_lease(&self) -> Duration {
        match self.coordinator.holder(LEADER).await {
            Ok(Some(held)) => held.expires_at.duration_from(self.clock.now()).max(PAUSE_MIN),
            Ok(None) => PAUSE_MIN,
            Err(_) => Duration::MAX,
        }
    }

    async fn lead<F, Fut>(&self, lease: &LeaderLease, acquired_at: Instant, lead: &F, shutdown: &CancellationToken)
    where
        F: Fn(LeaderLease, CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        tracing::info!(leader.term = lease.term, "this node leads now");
        let stop = CancellationToken::new();
        let work = lead(lease.clone(), stop.clone());
        tokio::pin!(work);
        let has_ended = tokio::select! {
            () = &mut work => true,
            () = self.keep(lease, acquired_at) => false,
            () = shutdown.cancelled() => false,
        };
        if !shutdown.is_cancelled() {
            tracing::warn!(leader.term = lease.term, "this node does not lead any more; another node may take over");
        }
        stop.cancel();
        if !has_ended {
            work.await;
        }
        if let Err(error) = self.coordinator.release(lease).await {
            tracing::debug!(error = %error, "cannot release the leader's lease; it will expire");
        }
    }

    /// Renews the lease; returns when it is lost or may be.
    async fn keep(&self, lease: &LeaderLease, acquired_at: Instant) {
        let trusted = self.config.lease.mul_f64(2.0 / 3.0);
        let mut good_until = acquired_at + trusted;
        loop {
            let next = (Instant::now() + self.config.renewal).min(good_until);
            tokio::time::sleep_until(next).await;
            let asked_at = Instant::now();
            match tokio::time::timeout_at(good_until, self.coordinator.renew(lease, millis(self.config.lease))).await {
                Ok(Ok(true)) => good_until = asked_at + trusted,
                Ok(Err(error)) => {
                    tracing::warn!(error = %error, "cannot renew the leader's lease; retrying until it is no longer safe");
                }
                Ok(Ok(false)) | Err(_) => return,
            }
            if Instant::now() >= good_until {
                return;
            }
        }
    }
}
