//! Breaks a cluster: its nodes, its database, and the connections between them.

use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::proxy::CutCommit;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{Cluster, ClusterPlan};
use crate::workload::Scene;

/// Under the load a node commits many times within this time.
const COMMITS_WITHIN: Duration = Duration::from_secs(20);

/// With a bug that makes nodes slow, a task of the load is overdue within this time.
const OVERDUE_WITHIN: Duration = Duration::from_secs(20);

/// A fault of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterFault {
    /// A node is killed, and started again after a while.
    Kill,
    /// A node is frozen until the others declare it dead, and then continues as if nothing had
    /// happened.
    FreezeNode,
    /// The database is stopped at once, and started again.
    RestartDatabase,
    /// The database is frozen.
    FreezeDatabase,
    /// All connections of a node are cut.
    Cut,
    /// The connections of a node are cut before its next commit arrives.
    CutBeforeCommit,
    /// The connections of a node are cut before it gets the answer to its next commit.
    CutAfterCommit,
    /// A node cannot reach the database for a while, and does not notice.
    BlackHole,
    /// Every node is shut down gracefully and started again, one after the other.
    RollingRestart,
    /// The database is lost for good, and its standby takes over.
    Promotion,
}

impl ClusterFault {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Kill,
        Self::FreezeNode,
        Self::RestartDatabase,
        Self::FreezeDatabase,
        Self::Cut,
        Self::CutBeforeCommit,
        Self::CutAfterCommit,
        Self::BlackHole,
        Self::RollingRestart,
        Self::Promotion,
    ];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::FreezeNode => "freeze-node",
            Self::RestartDatabase => "restart-database",
            Self::FreezeDatabase => "freeze-database",
            Self::Cut => "cut",
            Self::CutBeforeCommit => "cut-before-commit",
            Self::CutAfterCommit => "cut-after-commit",
            Self::BlackHole => "black-hole",
            Self::RollingRestart => "rolling-restart",
            Self::Promotion => "promotion",
        }
    }

    /// The fault with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

/// Breaks a cluster, and repairs it.
pub(super) struct Nemesis {
    scene: Scene,
    dice: StdRng,
    faults: Vec<ClusterFault>,
    freeze: Duration,
    patience: Duration,
}

impl Nemesis {
    pub(super) fn new(scene: Scene, plan: &ClusterPlan) -> Self {
        let dice = StdRng::seed_from_u64(plan.seed ^ 0x636c_7573);
        // A correct cluster has no overdue tasks. With a bug there will be some, and the fault must
        // hit the node that owns one.
        let patience = plan.bug.map_or(Duration::ZERO, |_| OVERDUE_WITHIN);
        Self { scene, dice, faults: plan.faults.clone(), freeze: plan.freeze, patience }
    }

    /// One cycle: lets the cluster work, breaks something, and repairs it.
    pub(super) async fn strike(&mut self, cluster: &mut Cluster, cycle: usize) {
        let drawn = ClusterFault::ALL[self.dice.random_range(0..ClusterFault::ALL.len())];
        let fault = self.faults.get(cycle).copied().unwrap_or(drawn);
        let node = self.dice.random_range(0..cluster.nodes.len());
        self.scene.caller.recorder().act(format!("cycle {cycle}, {fault:?} of {node}"));
        self.wait(500).await;
        match fault {
            ClusterFault::Kill => {
                cluster.nodes[node].kill();
                self.wait(4_000).await;
                cluster.nodes[node].start().await;
            }
            ClusterFault::FreezeNode => {
                let node = cluster.overdue_owner(self.patience).await.unwrap_or(node);
                cluster.nodes[node].freeze();
                cluster.taken_over(node).await;
                cluster.nodes[node].thaw();
            }
            ClusterFault::RestartDatabase => {
                cluster.postgres.stop_immediately().await;
                self.wait(1_000).await;
                cluster.postgres.start_again().await;
            }
            ClusterFault::FreezeDatabase => {
                cluster.postgres.freeze().await;
                tokio::time::sleep(self.freeze).await;
                cluster.postgres.thaw();
            }
            ClusterFault::Cut => cluster.proxies[node].cut().await,
            ClusterFault::CutBeforeCommit => self.cut_commit(cluster, node, CutCommit::Before).await,
            ClusterFault::CutAfterCommit => self.cut_commit(cluster, node, CutCommit::After).await,
            ClusterFault::BlackHole => {
                cluster.proxies[node].black_hole();
                tokio::time::sleep(self.freeze).await;
                cluster.proxies[node].flow();
                cluster.proxies[node].cut().await;
            }
            ClusterFault::RollingRestart => {
                for machine in &mut cluster.nodes {
                    machine.stop().await;
                    machine.start().await;
                }
            }
            ClusterFault::Promotion => self.promote(cluster).await,
        }
    }

    /// Makes a standby that has everything acknowledged, kills the database, and promotes the
    /// standby. The nodes reach it through their proxies.
    async fn promote(&mut self, cluster: &mut Cluster) {
        let mut standby = cluster.postgres.standby().await;
        cluster.postgres.wait_for_standby(&standby).await;
        self.wait(1_000).await;
        if self.dice.random() {
            cluster.postgres.kill().await;
        } else {
            cluster.postgres.stop_immediately().await;
        }
        self.wait(1_000).await;
        standby.promote().await;
        for proxy in &cluster.proxies {
            proxy.lead_to(standby.address());
            proxy.cut().await;
        }
        cluster.postgres = standby;
    }

    /// Cuts the next commit of a node, which the load brings about.
    async fn cut_commit(&self, cluster: &Cluster, node: usize, cut: CutCommit) {
        let proxy = &cluster.proxies[node];
        let before = proxy.commits_cut();
        proxy.cut_next_commit(cut);
        eventually("a commit is cut", COMMITS_WITHIN, async || match proxy.commits_cut() {
            after if after > before => Ok(()),
            after => Err(format!("{after} cut so far")),
        })
        .await;
    }

    /// Lets a random time pass.
    async fn wait(&mut self, most_millis: u64) {
        tokio::time::sleep(Duration::from_millis(self.dice.random_range(0..most_millis))).await;
    }
}
