//! Watches the database itself: holders, writers, and leftovers.
//!
//! The checker gets the result as a [`Witness`]. The servers know nothing of it; a few triggers
//! slow them down.

use std::time::Duration;

use punctual_client::{NodePage, PartitionPage};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::{LaneKey, Route};
use punctual_core::partitions::Partition;
use punctual_testkit::eventually::look;
use punctual_testkit::postgres;

use super::Cluster;
use crate::dump::page;
use crate::history::{Term, Witness, WitnessedWrite};
use crate::machine::Machine;

/// Holds that ran out three seconds ago, though the leader checks twice a second.
const HELD: &str =
    "SELECT 'task ' || id || ' is held by ' || coalesce(worker, holder, '') || ' until ' || lease_expires_at
    FROM punctual.tasks
    WHERE state >= 2 AND lease_expires_at < extract(epoch FROM clock_timestamp()) * 1000 - 3000";

/// Leftovers that are wrong while servers run: their work takes far less than five seconds.
const LEFT: &str = "SELECT 'a transaction since ' || xact_start || ', ' || state || ': ' || query FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
      AND xact_start < clock_timestamp() - interval '5 seconds'
    UNION ALL
    SELECT 'partition ' || number || ' is unowned since ' || expires_at FROM punctual.partitions
    WHERE owner IS NULL OR expires_at < extract(epoch FROM clock_timestamp()) * 1000
    UNION ALL
    SELECT 'partition ' || number || ' belongs to an unknown node: ' || owner FROM punctual.partitions
    WHERE owner NOT IN (SELECT id FROM punctual.nodes)
    UNION ALL
    SELECT 'the key ' || key || ' has no task: ' || task_id FROM punctual.idempotency
    WHERE NOT EXISTS (SELECT 1 FROM punctual.tasks WHERE id = task_id)
      AND NOT EXISTS (SELECT 1 FROM punctual.history WHERE id = task_id)";

/// Leftovers that are wrong after the servers have ended.
const LEFT_IN_THE_END: &str = "SELECT 'an advisory lock: ' || pid FROM pg_locks WHERE locktype = 'advisory'
    UNION ALL
    SELECT 'a session in state ' || state || ': ' || query FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";

/// Begins to watch a schema that is not in use yet.
pub(super) async fn begin(url: &str) {
    postgres::execute(url, &format!("BEGIN; {} COMMIT", include_str!("witness.sql"))).await;
}

impl Cluster {
    /// The leftovers after a quiet time, while the servers still run: in the tables, and as each
    /// node reports them.
    pub(super) async fn leftovers(&self) -> Witness {
        let url = self.url();
        let (held, mut left) = (held(&url, self.quiet).await, left(&url, self.quiet).await);
        for node in &self.nodes {
            left.extend(look(self.quiet, async || unowned(node).await).await.err().unwrap_or_default());
        }
        Witness { held, left, ..Witness::default() }
    }

    /// Everything that was seen, once the servers have ended. `witness` has the earlier leftovers.
    pub(super) async fn witness(&self, mut witness: Witness) -> Witness {
        let url = self.url();
        witness.left.extend(left_in_the_end(&url, self.quiet).await);
        let terms = postgres::execute(&url, "SELECT moment, resource, holder, term FROM trials.terms").await;
        witness.terms = terms.into_iter().map(|row| term(&row)).collect();
        let partitions = postgres::execute(&url, "SELECT count(*) FROM punctual.partitions").await;
        let count = number(partitions.first().and_then(|row| row[0].as_deref()));
        let writes = "SELECT moment, task, version, tenant, queue FROM trials.writes JOIN punctual.lanes ON lane = id";
        let writes = postgres::execute(&url, writes).await;
        witness.writes = writes.into_iter().map(|row| write(&row, count)).collect();
        witness
    }
}

/// The holds that ran out and are still there after the quiet time.
pub async fn held(url: &str, quiet: Duration) -> Vec<String> {
    still_there(url, HELD, quiet).await
}

/// The other leftovers after the quiet time, while servers run.
pub async fn left(url: &str, quiet: Duration) -> Vec<String> {
    still_there(url, LEFT, quiet).await
}

/// The leftovers when all servers have ended.
pub async fn left_in_the_end(url: &str, quiet: Duration) -> Vec<String> {
    still_there(url, LEFT_IN_THE_END, quiet).await
}

/// The rows that a query still finds when the quiet time is over.
async fn still_there(url: &str, sql: &str, quiet: Duration) -> Vec<String> {
    let found = look(quiet, async || {
        let rows = postgres::execute(url, sql).await;
        if rows.is_empty() { Ok(()) } else { Err(rows) }
    });
    let rows = found.await.err().unwrap_or_default();
    rows.into_iter().map(|mut row| row.remove(0).unwrap_or_default()).collect()
}

/// The partitions without an owner that the node knows, as it reports them.
async fn unowned(node: &Machine) -> Result<(), Vec<String>> {
    let api = node.door().borrow().clone().ok_or_else(|| vec!["a node is down in the end".to_owned()])?;
    let nodes: NodePage = page(&api, "/v1/admin/nodes").await;
    let partitions: PartitionPage = page(&api, "/v1/admin/partitions").await;
    let known = |owner: &String| nodes.items.iter().any(|node| node.id == *owner);
    let unowned = partitions.items.iter().filter(|partition| !partition.owner.as_ref().is_some_and(known));
    let none = partitions.items.is_empty().then(|| "a node reports no partitions".to_owned());
    let shown: Vec<String> = unowned.map(|partition| format!("a node reports {partition:?}")).chain(none).collect();
    if shown.is_empty() { Ok(()) } else { Err(shown) }
}

fn term(row: &[Option<String>]) -> Term {
    let column = |place: usize| row[place].as_deref();
    let holder = column(2).map(|holder| NodeId::new(number(Some(holder))).to_string());
    Term { moment: number(column(0)), resource: text(column(1)), holder, term: number(column(3)) }
}

fn write(row: &[Option<String>], partitions: u16) -> WitnessedWrite {
    let column = |place: usize| row[place].as_deref();
    let (tenant, queue) = (text(column(3)), text(column(4)));
    // The partition depends only on tenant and queue.
    let lane = LaneKey { tenant, queue, kind: String::new(), priority: 0, route: Route::Pull };
    let task = format!("{}{}", TaskId::PREFIX, text(column(1)));
    WitnessedWrite {
        moment: number(column(0)),
        task: task.parse().unwrap_or_else(|error| panic!("{task}: {error}")),
        version: number(column(2)),
        partition: format!("partition {}", Partition::of(&lane, partitions).number()),
    }
}

fn text(column: Option<&str>) -> String {
    column.unwrap_or_default().to_owned()
}

fn number<N: std::str::FromStr>(column: Option<&str>) -> N {
    column.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{column:?} is no number"))
}
