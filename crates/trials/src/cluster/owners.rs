//! Which node owns what, by the database. The nemesis stops the node whose loss matters most, until
//! the others have taken over.

use std::time::Duration;

use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::Partition;
use punctual_testkit::eventually::{eventually, look};
use punctual_testkit::postgres;

use super::{Cluster, NODES};

/// How long the others may take to declare a node dead and take its partitions, on a busy machine.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(40);

/// If a webhook has been due for this long, the owner of its queue is working on it.
const DUE_SINCE_MILLIS: u32 = 300;

impl Cluster {
    /// The owner of the queue of an overdue webhook, if there is one within this time.
    pub(super) async fn overdue_owner(&self, within: Duration) -> Option<usize> {
        let overdue = format!(
            "SELECT l.tenant, l.queue FROM punctual.tasks AS t JOIN punctual.lanes AS l ON l.id = t.lane
            WHERE t.state = 1 AND t.has_turn AND l.target <> ''
                AND t.due_at < extract(epoch FROM clock_timestamp()) * 1000 - {DUE_SINCE_MILLIS}
            ORDER BY t.due_at LIMIT 1"
        );
        let found = look(within, async || {
            let rows = postgres::execute(&self.url(), &overdue).await;
            let Some([Some(tenant), Some(queue)]) = rows.first().map(Vec::as_slice) else { return Err(()) };
            self.owner_of(tenant, queue).await.ok_or(())
        });
        found.await.ok()
    }

    async fn owner_of(&self, tenant: &str, queue: &str) -> Option<usize> {
        let (tenant, queue) = (tenant.to_owned(), queue.to_owned());
        let lane = LaneKey { tenant, queue, kind: String::new(), priority: 0, route: Route::Pull };
        let count = postgres::execute(&self.url(), "SELECT count(*) FROM punctual.partitions").await;
        let count = count.first()?.first()?.as_deref()?.parse().ok()?;
        let owner = format!(
            "SELECT n.name FROM punctual.partitions AS p JOIN punctual.nodes AS n ON n.id = p.owner WHERE p.number = {}",
            Partition::of(&lane, count).number()
        );
        let rows = postgres::execute(&self.url(), &owner).await;
        let name = rows.first()?.first()?.as_deref()?;
        NODES.iter().position(|node| *node == name)
    }

    /// Waits until a stopped node owns nothing and no longer leads.
    pub(super) async fn taken_over(&self, node: usize) {
        let ids = format!("SELECT id FROM punctual.nodes WHERE name = '{}'", NODES[node]);
        let rows = postgres::execute(&self.url(), &ids).await;
        let ids: Vec<&str> = rows.iter().filter_map(|row| row.first()?.as_deref()).collect();
        // By its number: it may be removed before another node has taken its last partition.
        let owned = format!(
            "SELECT number::text FROM punctual.partitions WHERE owner IN ({0})
            UNION ALL SELECT name FROM punctual.leases WHERE holder IN ({0})",
            ids.join(", ")
        );
        eventually("the other nodes have taken over", TAKEN_OVER_WITHIN, async || {
            match postgres::execute(&self.url(), &owned).await.len() {
                0 => Ok(()),
                left => Err(format!("{left} still belong to {}", NODES[node])),
            }
        })
        .await;
    }
}
