//! The presence of workers, recorded by one statement. The rest is in `portable/registry.rs`.

use std::collections::BTreeMap;

use punctual_core::workers::WorkerSighting;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::names_column;

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
