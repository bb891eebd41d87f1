//! Bulk operations. A row is the operation as JSON, beside the columns that statements ask for.

use std::collections::HashMap;

use punctual_core::bulk::{BulkOperation, BulkState};
use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::OperationId;
use punctual_core::time::Timestamp;
use uuid::Uuid;

use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::{count_column, node_column, number_column};

/// The oldest running operations that are looked at. A tenant may have a few only, so that these
/// are of many tenants.
const RUNNING_READ: usize = 1_000;

/// Stores a new operation.
pub(crate) async fn insert<C: Connection>(connection: &mut C, operation: &BulkOperation) -> Result<(), C::Fault> {
    let (id, body, ended) = columns(operation);
    let revision = number_column(operation.revision);
    let parameters: [&dyn Parameter; 5] = [&id, &operation.tenant(), &revision, &ended, &body];
    connection.execute(PortableSql::OperationInsert, &parameters).await?;
    Ok(())
}

/// Writes an operation at the revision before. Returns whether it was there.
pub(crate) async fn write<C: Connection>(connection: &mut C, operation: &BulkOperation) -> Result<bool, C::Fault> {
    let (id, body, ended) = columns(operation);
    let (revision, before) = (number_column(operation.revision), number_column(operation.revision.saturating_sub(1)));
    Ok(connection.execute(PortableSql::OperationWrite, &[&id, &before, &revision, &ended, &body]).await? > 0)
}

/// The same, if the lease is still that of its last holder.
pub(crate) async fn advance<C: Connection>(
    connection: &mut C,
    lease: &LeaderLease,
    operation: &BulkOperation,
) -> Result<bool, C::Fault> {
    let (id, body, ended) = columns(operation);
    let (revision, before) = (number_column(operation.revision), number_column(operation.revision.saturating_sub(1)));
    let (holder, term) = (node_column(lease.holder), number_column(lease.term));
    let parameters: [&dyn Parameter; 8] = [&id, &before, &revision, &ended, &body, &lease.name, &holder, &term];
    Ok(connection.execute(PortableSql::OperationAdvance, &parameters).await? > 0)
}

/// An operation of a tenant.
pub(crate) async fn get<C: Connection>(
    connection: &mut C,
    tenant: &str,
    id: OperationId,
) -> Result<Option<BulkOperation>, C::Fault> {
    let rows = connection.query(PortableSql::OperationGet, &[&tenant, &id.uuid()]).await?;
    Ok(rows.first().map(operation).transpose()?)
}

/// The operations of a tenant before one, newest first.
pub(crate) async fn list<C: Connection>(
    connection: &mut C,
    tenant: &str,
    after: Option<OperationId>,
    limit: usize,
) -> Result<Vec<BulkOperation>, C::Fault> {
    let after = after.map_or(Uuid::max(), OperationId::uuid);
    let rows = connection.query(PortableSql::OperationList, &[&tenant, &after, &count_column(limit)]).await?;
    Ok(rows.iter().map(operation).collect::<Result<_, Corrupt>>()?)
}

/// The running operations, the tenants in turn.
pub(crate) async fn running<C: Connection>(connection: &mut C, limit: usize) -> Result<Vec<BulkOperation>, C::Fault> {
    let rows = connection.query(PortableSql::OperationRunning, &[&count_column(RUNNING_READ)]).await?;
    let operations: Vec<BulkOperation> = rows.iter().map(operation).collect::<Result<_, Corrupt>>()?;
    Ok(in_turn(operations, limit))
}

/// The first operation of every tenant, then the second of every tenant, and so on.
fn in_turn(operations: Vec<BulkOperation>, limit: usize) -> Vec<BulkOperation> {
    let mut of_tenant: HashMap<String, usize> = HashMap::new();
    let mut placed: Vec<(usize, BulkOperation)> = Vec::with_capacity(operations.len());
    for operation in operations {
        let place = of_tenant.entry(operation.tenant().to_owned()).or_default();
        placed.push((*place, operation));
        *place += 1;
    }
    // Stable: within a round the oldest stays first.
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().take(limit).map(|(_, operation)| operation).collect()
}

/// Removes operations that ended before an instant.
pub(crate) async fn prune<C: Connection>(connection: &mut C, before: Timestamp, limit: usize) -> Result<u64, C::Fault> {
    connection.execute(PortableSql::OperationPrune, &[&before.as_millis(), &count_column(limit)]).await
}

/// Its id, its body, and when it ended.
fn columns(operation: &BulkOperation) -> (Uuid, String, Option<i64>) {
    let body = serde_json::to_string(operation).expect("invariant: an operation can be written as JSON");
    let ended = operation.finished_at.filter(|_| operation.state != BulkState::Running);
    (operation.id.uuid(), body, ended.map(Timestamp::as_millis))
}

fn operation(row: &impl Row) -> Result<BulkOperation, Corrupt> {
    let body: String = row.get(0)?;
    serde_json::from_str(&body).map_err(|error| Corrupt(format!("a bulk operation cannot be read: {error}")))
}
