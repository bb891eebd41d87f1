//! The presence of workers and nodes. Each call is one statement.

use std::collections::BTreeMap;

use punctual_core::ids::NodeId;
use punctual_core::time::Timestamp;
use punctual_core::workers::{NodeSighting, WorkerSighting};

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{names, names_column, node_column, node_from_column};

/// Records that workers were seen. Of one that was seen several times the last wishes count; they
/// come sorted, so that nobody waits in a circle.
pub(crate) async fn record_workers(session: &Session, sightings: &[WorkerSighting]) -> Result<(), Fault> {
    let mut last: BTreeMap<(&str, &str), WorkerSighting> = BTreeMap::new();
    for sighting in sightings {
        let key = (sighting.tenant.as_str(), sighting.name.as_str());
        let seen = last.get(&key).map_or_else(|| sighting.clone(), |older| sighting.clone().following(older));
        last.insert(key, seen);
    }
    if last.is_empty() {
        return Ok(());
    }
    let tenants: Vec<&str> = last.keys().map(|(tenant, _)| *tenant).collect();
    let worker_names: Vec<&str> = last.keys().map(|(_, name)| *name).collect();
    let queues: Vec<String> = last.values().map(|sighting| names_column(&sighting.queues)).collect();
    let kinds: Vec<String> = last.values().map(|sighting| names_column(&sighting.kinds)).collect();
    let first: Vec<i64> = last.values().map(|sighting| sighting.first_seen_at.as_millis()).collect();
    let latest: Vec<i64> = last.values().map(|sighting| sighting.last_seen_at.as_millis()).collect();
    session.execute(Sql::WorkerSaw, &[&tenants, &worker_names, &queues, &kinds, &first, &latest]).await?;
    Ok(())
}

/// Lists the workers of a tenant by name.
pub(crate) async fn workers(
    session: &Session,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<WorkerSighting>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.query(Sql::WorkerList, &[&tenant, &after, &limit]).await?;
    let worker = |row: &tokio_postgres::Row| WorkerSighting {
        tenant: tenant.to_owned(),
        name: row.get(0),
        queues: names(row.get(1)),
        kinds: names(row.get(2)),
        first_seen_at: Timestamp::from_millis(row.get(3)),
        last_seen_at: Timestamp::from_millis(row.get(4)),
    };
    Ok(rows.iter().map(worker).collect())
}

/// Records that a node lives.
pub(crate) async fn record_node(session: &Session, now: Timestamp, node: &NodeSighting) -> Result<(), Fault> {
    let NodeSighting { name, address, version, skew_millis, .. } = node;
    let (id, roles) = (node_column(node.id), names_column(&node.roles));
    session.execute(Sql::NodeSaw, &[&id, name, address, &roles, version, skew_millis, &now.as_millis()]).await?;
    Ok(())
}

/// The nodes that were not removed, by the instant they were first seen.
pub(crate) async fn nodes(session: &Session) -> Result<Vec<NodeSighting>, Fault> {
    let node = |row: &tokio_postgres::Row| NodeSighting {
        id: node_from_column(row.get(0)),
        name: row.get(1),
        address: row.get(2),
        roles: names(row.get(3)),
        version: row.get(4),
        skew_millis: row.get(5),
        first_seen_at: Timestamp::from_millis(row.get(6)),
        last_seen_at: Timestamp::from_millis(row.get(7)),
    };
    Ok(session.query(Sql::NodeList, &[]).await?.iter().map(node).collect())
}

/// Nodes last seen before the cutoff.
pub(crate) async fn dead_nodes(session: &Session, before: Timestamp) -> Result<Vec<NodeId>, Fault> {
    let rows = session.query(Sql::NodeSilent, &[&before.as_millis()]).await?;
    Ok(rows.iter().map(|row| node_from_column(row.get(0))).collect())
}

/// Removes a node that holds nothing.
pub(crate) async fn remove_node(session: &Session, node: NodeId) -> Result<(), Fault> {
    session.execute(Sql::NodeBury, &[&node_column(node)]).await?;
    Ok(())
}
