//! The audit of the scan cursors: reads the fronts of lanes for tasks that a cursor has passed.
//!
//! It runs in the background while the store is open. An audit may walk over many dead entries. So
//! no caller waits for it, it has a connection of its own, and it takes a bounded share of the
//! time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::postgres::connection::Session;
use crate::postgres::connection::SharedConnections;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;
use crate::postgres::writer::WriterShared;

/// How often due audits are looked for.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum number of lanes in one statement.
const LANES_PER_AUDIT_MAX: usize = 256;

/// Audits until it is aborted.
pub(crate) async fn run(shared: Arc<WriterShared>, connections: SharedConnections) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK_INTERVAL) => {}
            () = shared.cursors.wait_for_doubt() => {}
        }
        for lanes in shared.cursors.to_audit(LANES_PER_AUDIT_MAX) {
            let began = Instant::now();
            let audited = connections.call(async |session| audit(session, &shared, &lanes).await).await;
            let took = audited.unwrap_or_else(|fault| {
                debug!(error = %fault, "cannot audit the scan cursors; trying again later");
                began.elapsed()
            });
            shared.cursors.audited(&lanes, took);
        }
    }
}

/// Returns how long the statement took. A wait for a connection costs the database nothing.
async fn audit(session: &Session, shared: &WriterShared, lanes: &[i64]) -> Result<Duration, Fault> {
    let began = Instant::now();
    let rows = session.query(Sql::LaneFront, &[&lanes]).await?;
    let took = began.elapsed();
    for row in rows {
        shared.cursors.found(row.get(0), (row.get(1), row.get(2)));
    }
    Ok(took)
}
