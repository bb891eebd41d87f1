//! The presence of workers and nodes.

use punctual_core::ids::NodeId;
use punctual_core::time::Timestamp;
use punctual_core::workers::{NodeSighting, WorkerSighting};

use crate::columns::{names, names_column, node_column, node_from_column};

use super::fault::Fault;
use super::overdue::holders;
use super::session::Session;
use super::statements::Sql;

/// Records that workers were seen.
pub(crate) fn record_workers(session: &mut Session<'_>, sightings: &[WorkerSighting]) -> Result<(), Fault> {
    let saw = session.statements.get(Sql::WorkerSaw)?;
    for sighting in sightings {
        saw.execute((
            &sighting.tenant,
            &sighting.name,
            names_column(&sighting.queues),
            names_column(&sighting.kinds),
            sighting.first_seen_at.as_millis(),
            sighting.last_seen_at.as_millis(),
        ))?;
    }
    Ok(())
}

/// Lists the workers of a tenant by name.
pub(crate) fn workers(
    session: &mut Session<'_>,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<WorkerSighting>, Fault> {
    let query = session.statements.get(Sql::WorkerList)?;
    let mut rows = query.query((tenant, after, i64::try_from(limit).unwrap_or(i64::MAX)))?;
    let mut workers = Vec::new();
    while let Some(row) = rows.next()? {
        workers.push(WorkerSighting {
            tenant: tenant.to_owned(),
            name: row.get(0)?,
            queues: names(&row.get::<_, String>(1)?),
            kinds: names(&row.get::<_, String>(2)?),
            first_seen_at: Timestamp::from_millis(row.get(3)?),
            last_seen_at: Timestamp::from_millis(row.get(4)?),
        });
    }
    Ok(workers)
}

/// Records that a node lives.
pub(crate) fn record_node(session: &mut Session<'_>, node: &NodeSighting) -> Result<(), Fault> {
    let now = session.now().as_millis();
    let (id, roles) = (node_column(node.id), names_column(&node.roles));
    let saw = session.statements.get(Sql::NodeSaw)?;
    saw.execute((id, &node.name, &node.address, roles, &node.version, node.skew_millis, now))?;
    Ok(())
}

/// The nodes that were not removed, by the instant they were first seen.
pub(crate) fn nodes(session: &mut Session<'_>) -> Result<Vec<NodeSighting>, Fault> {
    let mut rows = session.statements.get(Sql::NodeList)?.query([])?;
    let mut nodes = Vec::new();
    while let Some(row) = rows.next()? {
        nodes.push(NodeSighting {
            id: node_from_column(row.get(0)?),
            name: row.get(1)?,
            address: row.get(2)?,
            roles: names(&row.get::<_, String>(3)?),
            version: row.get(4)?,
            skew_millis: row.get(5)?,
            first_seen_at: Timestamp::from_millis(row.get(6)?),
            last_seen_at: Timestamp::from_millis(row.get(7)?),
        });
    }
    nodes.sort_unstable_by_key(|node| (node.first_seen_at, node.id));
    Ok(nodes)
}

/// Nodes last seen before the cutoff.
pub(crate) fn dead_nodes(session: &mut Session<'_>, before: Timestamp) -> Result<Vec<NodeId>, Fault> {
    let query = session.statements.get(Sql::NodeSilent)?;
    let nodes = query.query_map([before.as_millis()], |row| row.get(0).map(node_from_column))?;
    Ok(nodes.collect::<Result<_, _>>()?)
}

/// Removes a node that holds nothing.
pub(crate) fn remove_node(session: &mut Session<'_>, node: NodeId) -> Result<(), Fault> {
    let bury = session.statements.get(Sql::NodeBury)?;
    bury.execute([node_column(node)])?;
    Ok(())
}

/// Declares every other node that holds something dead, and frees every lease and every partition.
/// Whoever opens the store has the lock of its directory: no process that took any of it before is
/// alive, and nothing need run out first.
pub(crate) fn forget_the_past(session: &mut Session<'_>) -> Result<(), Fault> {
    let own = node_column(session.node);
    for node in holders(session)?.into_iter().flatten().filter(|node| *node != own) {
        session.statements.get(Sql::NodeDied)?.execute([node])?;
    }
    session.statements.run(Sql::LeaseFreeAll)?;
    session.statements.run(Sql::PartitionFreeAll)?;
    session.statements.run(Sql::PartitionMemberLeaveAll)
}
