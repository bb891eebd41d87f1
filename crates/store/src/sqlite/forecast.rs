//! Writes how many tasks will be due by minute, as every transaction counts them (see
//! `forecast_tally.rs`), and removes past minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::forecast::Minute;
use punctual_core::lane::Lane;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::upkeep::Pruned;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use crate::columns::count_column;
use crate::write_queue::Weight;

impl SqliteStore {
    /// Removes some past minutes. A reader checks first whether there are any: often there are none.
    pub(super) async fn prune_minutes(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError> {
        let minute = Minute::of(now).number();
        let check = move |session: &mut Session<'_>| Ok(session.statements.get(Sql::ForecastPast)?.exists([minute])?);
        if !self.readers().call(check).await? {
            return Ok(Pruned::default());
        }
        let work = move |session: &mut Session<'_>| {
            let removed = session.statements.get(Sql::ForecastPrune)?.execute((minute, count_column(limit)))?;
            Ok(Pruned { removed: removed as u64, more: removed >= limit })
        };
        self.writer().call(WriteClass::Progress, Weight { rows: limit, ..Weight::SMALL }, work).await
    }
}

/// Writes how the transaction changes the forecast.
pub(super) fn write(session: &mut Session<'_>) -> Result<(), Fault> {
    let mut changed: Vec<(Arc<Lane>, Minute, i64)> = Vec::new();
    for (lane, minute, tasks) in session.tally.forecast.take() {
        if let Some(lane) = session.lanes.get(session.connection, lane)? {
            changed.push((lane, minute, tasks));
        }
    }
    let mut of_tenants: BTreeMap<(&str, Minute), i64> = BTreeMap::new();
    for (lane, minute, tasks) in &changed {
        *of_tenants.entry((&lane.key.tenant, *minute)).or_default() += tasks;
    }
    for ((tenant, minute), tasks) in of_tenants {
        session.statements.get(Sql::ForecastAdd)?.execute((tenant, minute.number(), tasks))?;
    }
    Ok(())
}
