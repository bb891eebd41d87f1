//! The presence of workers, as the writer records it, and what a new process forgets. The rest is in
//! `portable/registry.rs`.

use punctual_core::workers::WorkerSighting;

use crate::columns::{names_column, node_column};

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
