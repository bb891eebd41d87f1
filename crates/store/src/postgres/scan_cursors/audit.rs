//! The audit of the scan cursors: looks at the fronts of lanes for tasks that a cursor has passed.
//!
//! It runs in the background from the opening of the store to its end. Such a look may have to
//! walk over many dead entries. So no caller waits for it, it has a connection of its own, and it
//! takes no more than its share of the time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use crate::postgres::connection::Session;
use crate::postgres::connection::SharedConnections;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;
use crate::postgres::writer::WriterShared;

/// How often to see whether a look is due.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Lanes that are looked at in one statement.
const LANES_PER_AUDIT_MAX: usize = 256;

/// Looks until it is aborted.
pub(crate) async fn run(shared: Arc<WriterShared>, connections: SharedConnections) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK_INTERVAL) => {}
            () = shared.cursors.wait_for_doubt() => {}
        }
        for lanes in shared.cursors.to_look_at(LANES_PER_AUDIT_MAX) {
            let began = Instant::now();
            if let Err(fault) = connections.call(async |session| look(session, &shared, &lanes).await).await {
                debug!(%fault, "cannot audit the scan cursors; trying again later");
            }
            shared.cursors.looked_at(&lanes, began.elapsed());
        }
    }
}

async fn look(session: &Session, shared: &WriterShared, lanes: &[i64]) -> Result<(), Fault> {
    for row in session.query(Sql::LaneFront, &[&lanes]).await? {
        shared.cursors.found(row.get(0), (row.get(1), row.get(2)));
    }
    Ok(())
}
