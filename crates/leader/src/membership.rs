//! This node's sign of life, so that others can tell when it is dead, and what it says of itself.
//! With each it looks who else is there, and logs who came and who is gone.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::NodeId;
use punctual_core::workers::{NodeSighting, Registry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How far this node's wall clock is ahead of the store's at the moment, in milliseconds.
pub type Skew = Arc<dyn Fn() -> i64 + Send + Sync>;

/// When a sign that could not be given is given again, at the latest: before a leader that is back
/// with the store takes this node for dead.
const AGAIN: Duration = Duration::from_secs(1);

/// How steadily this node itself is seen: whoever was out of sight must not take others for dead
/// that were out of sight for the same reason, and are not back yet.
#[derive(Debug)]
pub struct Pulse {
    lease: Duration,
    /// Signs of life that are further apart are not steady.
    gap: Duration,
    beats: Mutex<Option<Beats>>,
}

/// Signs of life without a gap: the first and the last.
#[derive(Clone, Copy, Debug)]
struct Beats {
    first: Instant,
    last: Instant,
}

impl Pulse {
    /// Of a node that has not been seen yet. Nodes are to give a sign every `renewal`, and are dead
    /// when they were silent for `lease`. A gap that others may have survived by less than it takes
    /// them to come back counts as one.
    pub fn new(lease: Duration, renewal: Duration) -> Self {
        Self { lease, gap: renewal + lease / 6, beats: Mutex::new(None) }
    }

    /// Whether the node has been seen steadily for so long that whoever lives was seen meanwhile.
    pub fn is_steady(&self) -> bool {
        let now = Instant::now();
        let is_steady = |beats: Beats| now - beats.last <= self.gap && now - beats.first >= self.lease;
        self.beats.lock().is_some_and(is_steady)
    }

    /// The registry has taken a sign of life.
    pub fn beat(&self) {
        let now = Instant::now();
        let mut beats = self.beats.lock();
        let first = beats.filter(|beats| now - beats.last <= self.gap).map_or(now, |beats| beats.first);
        *beats = Some(Beats { first, last: now });
    }
}

/// Tells the registry that this node lives.
pub struct Membership {
    registry: Arc<dyn Registry>,
    me: NodeSighting,
    skew: Skew,
    interval: Duration,
    pulse: Arc<Pulse>,
}

impl Membership {
    /// A sign of life every `interval`, with what `me` says of this node; the instants in it are
    /// the registry's to fill in, and its skew is asked for anew each time. `pulse` hears of those
    /// that were taken.
    pub fn new(
        registry: Arc<dyn Registry>,
        me: NodeSighting,
        skew: Skew,
        interval: Duration,
        pulse: Arc<Pulse>,
    ) -> Self {
        Self { registry, me, skew, interval, pulse }
    }

    /// Gives signs of life until told to stop. The first is given before anything else is done.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut others = Others::default();
        while !shutdown.is_cancelled() {
            let sighting = NodeSighting { skew_millis: (self.skew)(), ..self.me.clone() };
            let mut pause = self.interval;
            match self.registry.record_node(sighting).await {
                Ok(()) => self.pulse.beat(),
                Err(error) => {
                    tracing::warn!(error = %error, "could not give a sign of life");
                    pause = pause.min(AGAIN);
                }
            }
            // Meanwhile, so that the next sign is not late for it.
            let look_around = async {
                if let Ok(Ok(nodes)) = tokio::time::timeout(pause, self.registry.nodes()).await {
                    others.take_in(nodes.into_iter().filter(|node| node.id != self.me.id));
                }
            };
            tokio::select! {
                () = shutdown.cancelled() => {}
                _ = async { tokio::join!(tokio::time::sleep(pause), look_around) } => {}
            }
        }
    }
}

/// The other nodes, as they were when it was last looked.
#[derive(Default)]
struct Others(Option<HashMap<NodeId, String>>);

impl Others {
    /// These are there now: logs who came and who is gone, and gives how many of each. Whoever was
    /// there before the first look is no news.
    fn take_in(&mut self, nodes: impl Iterator<Item = NodeSighting>) -> (usize, usize) {
        let now: HashMap<NodeId, NodeSighting> = nodes.map(|node| (node.id, node)).collect();
        let names = now.iter().map(|(id, node)| (*id, node.name.clone())).collect();
        let Some(before) = self.0.replace(names) else { return (0, 0) };
        let (mut came, mut gone) = (0, 0);
        for node in now.values().filter(|node| !before.contains_key(&node.id)) {
            came += 1;
            tracing::info!(node.id = %node.id, node.name, node.address, node.version, "a node has joined");
        }
        for (id, name) in before.iter().filter(|(id, _)| !now.contains_key(id)) {
            gone += 1;
            tracing::info!(node.id = %id, node.name = name, "a node is gone: it has ended or died, and was silent since");
        }
        (came, gone)
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::time::Timestamp;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const RENEWAL: Duration = Duration::from_secs(10);

    async fn beat_for(pulse: &Pulse, times: u32) {
        for _ in 0..times {
            pulse.beat();
            tokio::time::advance(RENEWAL).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pulse_is_steady_after_a_lease_without_a_gap() {
        let pulse = Pulse::new(LEASE, RENEWAL);
        assert!(!pulse.is_steady());
        beat_for(&pulse, 2).await;
        assert!(!pulse.is_steady(), "two thirds of a lease are not enough");
        beat_for(&pulse, 1).await;
        assert!(pulse.is_steady());
    }

    #[test]
    fn who_comes_and_who_is_gone_is_told_once() {
        let node = |number: u64| NodeSighting {
            id: NodeId::new(number),
            name: format!("n{number}"),
            address: String::new(),
            roles: Vec::new(),
            version: String::new(),
            skew_millis: 0,
            first_seen_at: Timestamp::from_millis(0),
            last_seen_at: Timestamp::from_millis(0),
        };
        let mut others = Others::default();
        let mut told = |numbers: &[u64]| others.take_in(numbers.iter().copied().map(node));
        assert_eq!(told(&[1, 2]), (0, 0), "they were there before");
        assert_eq!(told(&[1, 2]), (0, 0));
        assert_eq!(told(&[2, 3, 4]), (2, 1));
        assert_eq!(told(&[2, 3, 4]), (0, 0), "once");
        assert_eq!(told(&[]), (0, 3));
        assert_eq!(told(&[1]), (1, 0), "it is back");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_begins_it_anew() {
        let pulse = Pulse::new(LEASE, RENEWAL);
        beat_for(&pulse, 4).await;
        tokio::time::advance(RENEWAL).await;
        assert!(!pulse.is_steady(), "it is out of sight");
        beat_for(&pulse, 1).await;
        assert!(!pulse.is_steady(), "the others may not be back yet");
        beat_for(&pulse, 2).await;
        assert!(pulse.is_steady());
    }
}
