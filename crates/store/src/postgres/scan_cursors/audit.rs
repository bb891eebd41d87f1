//! Looks at the fronts of the lanes from which was taken, for tasks that the cursors have passed by.
//!
//! What was claimed leaves dead entries at the front of a lane, over which such a look has to
//! walk while somebody keeps an old transaction open: so it is nobody's who waits for it, has
//! a connection of its own, and takes no more than its share of the time.

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
const TICK: Duration = Duration::from_millis(250);

/// Lanes that are looked at in one statement.
const TOGETHER: usize = 256;

/// Looks until it is aborted.
pub(crate) async fn run(shared: Arc<WriterShared>, connections: SharedConnections) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = shared.cursors.wait_for_doubt() => {}
        }
        for lanes in shared.cursors.to_look_at(TOGETHER) {
            let began = Instant::now();
            if let Err(fault) = connections.call(async |session| look(session, &shared, &lanes).await).await {
                debug!(%fault, "the fronts of lanes could not be looked at");
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
