//! Writes how many tasks will be due by minute, as every transaction counts them (see
//! `forecast_tally.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_core::forecast::Minute;
use punctual_core::lane::Lane;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

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
