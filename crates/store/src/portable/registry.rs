//! The presence of workers and nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_core::ids::NodeId;
use punctual_core::registry::{NodePresence, NodeSession, WorkerPresence};
use punctual_core::time::{Timestamp, signed_millis};
use serde_json::json;

use super::lists::rows_column;
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::{count_column, names, names_column, node_column, node_from_column};

/// Records that workers were seen, each once: one statement writes them all. It writes them in the
/// order of their names, so two nodes cannot deadlock.
pub(crate) async fn record_workers<C: Connection>(
    connection: &mut C,
    presences: &[WorkerPresence],
) -> Result<(), C::Fault> {
    let mut last: BTreeMap<(&str, &str), WorkerPresence> = BTreeMap::new();
    for presence in presences {
        let key = (presence.tenant.as_str(), presence.name.as_str());
        let seen = last.get(&key).map_or_else(|| presence.clone(), |older| presence.clone().following(older));
        last.insert(key, seen);
    }
    if last.is_empty() {
        return Ok(());
    }
    let row = |worker: &WorkerPresence| {
        json!({
            "tenant": worker.tenant,
            "name": worker.name,
            "queues": names_column(&worker.queues),
            "kinds": names_column(&worker.kinds),
            "first_seen_at": worker.first_seen_at.as_millis(),
            "last_seen_at": worker.last_seen_at.as_millis(),
        })
    };
    connection.execute(PortableSql::WorkerSaw, &[&rows_column(last.values().map(row))]).await?;
    Ok(())
}

/// Lists the workers of a tenant by name.
pub(crate) async fn workers<C: Connection>(
    connection: &mut C,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<WorkerPresence>, C::Fault> {
    let rows = connection.query(PortableSql::WorkerList, &[&tenant, &after, &count_column(limit)]).await?;
    let worker = |row: &C::Row| {
        Ok(WorkerPresence {
            tenant: tenant.to_owned(),
            name: row.get(0)?,
            queues: names(&row.get::<String>(1)?),
            kinds: names(&row.get::<String>(2)?),
            first_seen_at: Timestamp::from_millis(row.get(3)?),
            last_seen_at: Timestamp::from_millis(row.get(4)?),
        })
    };
    Ok(rows.iter().map(worker).collect::<Result<_, Corrupt>>()?)
}

/// Records that a node is alive.
pub(crate) async fn record_node<C: Connection>(
    connection: &mut C,
    now: Timestamp,
    node: &NodePresence,
) -> Result<(), C::Fault> {
    let NodePresence { name, address, version, skew_millis, .. } = node;
    let (id, roles) = (node_column(node.id), names_column(&node.roles));
    let lease = node.lease.map_or(0, signed_millis);
    let parameters: [&dyn Parameter; 8] = [&id, name, address, &roles, version, skew_millis, &now.as_millis(), &lease];
    connection.execute(PortableSql::NodeSaw, &parameters).await?;
    Ok(())
}

/// The nodes that were not removed, by the instant they were first seen.
pub(crate) async fn nodes<C: Connection>(connection: &mut C) -> Result<Vec<NodePresence>, C::Fault> {
    let node = |row: &C::Row| {
        Ok(NodePresence {
            id: node_from_column(row.get(0)?),
            name: row.get(1)?,
            address: row.get(2)?,
            roles: names(&row.get::<String>(3)?),
            version: row.get(4)?,
            skew_millis: row.get(5)?,
            first_seen_at: Timestamp::from_millis(row.get(6)?),
            last_seen_at: Timestamp::from_millis(row.get(7)?),
            lease: lease_from_column(row.get(8)?),
            session: session_from_column(row.get(9)?),
            gone_at: row.get::<Option<i64>>(10)?.map(Timestamp::from_millis),
        })
    };
    let rows = connection.query(PortableSql::NodeList, &[]).await?;
    let mut nodes: Vec<NodePresence> = rows.iter().map(node).collect::<Result<_, Corrupt>>()?;
    nodes.sort_unstable_by_key(|node| (node.first_seen_at, node.id));
    Ok(nodes)
}

/// Removes a node that holds nothing.
pub(crate) async fn remove_node<C: Connection>(connection: &mut C, node: NodeId) -> Result<(), C::Fault> {
    connection.execute(PortableSql::NodeBury, &[&node_column(node)]).await?;
    Ok(())
}

/// Zero is the lease of a node that did not say it.
fn lease_from_column(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}

/// The number of the session; zero if it has ended.
fn session_from_column(number: Option<i64>) -> NodeSession {
    match number.and_then(|number| u32::try_from(number).ok()) {
        None => NodeSession::Unknown,
        Some(0) => NodeSession::Ended,
        Some(number) => NodeSession::Open(number),
    }
}
