//! Works off the notes about concurrency keys: wakes as many parked tasks as places are free.
//!
//! A commit that comes later than what is read here leaves a note of its own: it frees a place, or
//! parks a task.

use std::collections::{BTreeMap, HashMap};

use punctual_core::upkeep::Resolved;
use uuid::Uuid;

use super::super::fault::Fault;
use super::super::statements::Sql;
use super::super::writer::Writer;
use super::announce;
use crate::columns::count_column;
use crate::places::{WAKE_MAX, WakeRequest};

/// Notes that are worked off at once.
const NOTES: i64 = 1_000;

/// Works off some notes.
pub(super) async fn resolve(writer: &mut Writer) -> Result<Resolved, Fault> {
    let Some(from) = writer.shared.outbox.places.begin() else { return Ok(Resolved::default()) };
    let resolved = work_off(writer, from).await;
    if resolved.is_err() {
        writer.shared.outbox.places.note(from);
    }
    resolved
}

async fn work_off(writer: &mut Writer, from: i64) -> Result<Resolved, Fault> {
    let notes = writer.session.begin(Sql::PlaceNotes, &[&from, &NOTES]).await?;
    if notes.is_empty() {
        writer.session.run("ROLLBACK").await?;
        return Ok(Resolved::default());
    }
    let mut requests: BTreeMap<Uuid, WakeRequest> = BTreeMap::new();
    for row in &notes {
        let request = WakeRequest::of_column(row.get(2));
        requests.entry(row.get(1)).and_modify(|sum| *sum = sum.and(request)).or_insert(request);
    }
    let woken = wake(writer, &requests).await?;
    let mut more = i64::try_from(notes.len()).is_ok_and(|count| count == NOTES);
    for (key, tasks) in &woken {
        if tasks.len() == WAKE_MAX {
            writer.notes.places(*key, None);
            more = true;
        }
    }
    writer.commit().await?;
    if more && let Some(last) = notes.iter().map(|row| row.get::<_, i64>(0)).max() {
        writer.shared.outbox.places.note(last + 1);
    }
    let waiting: Vec<(i64, i64)> = woken.into_values().flatten().collect();
    Ok(Resolved { tasks: waiting.len(), waiting: announce(writer, &waiting).await?, more })
}

/// Wakes tasks of these keys. Returns their lanes and due instants, by key.
async fn wake(
    writer: &Writer,
    requests: &BTreeMap<Uuid, WakeRequest>,
) -> Result<HashMap<Uuid, Vec<(i64, i64)>>, Fault> {
    let keys: Vec<Uuid> = requests.keys().copied().collect();
    let (mut names, mut counts) = (Vec::new(), Vec::new());
    for row in writer.session.query(Sql::PlaceLimits, &[&keys]).await? {
        let (key, most): (Uuid, Option<i64>) = (row.get(0), row.get(1));
        let most = most.map(|most| u64::try_from(most).unwrap_or(0));
        let count = requests[&key].count(most, u64::try_from(row.get::<_, i64>(2)).unwrap_or(0));
        if count > 0 {
            names.push(key);
            counts.push(count_column(count));
        }
    }
    let mut woken: HashMap<Uuid, Vec<(i64, i64)>> = HashMap::new();
    if !names.is_empty() {
        let now = writer.now().as_millis();
        for row in writer.session.query(Sql::PlaceWake, &[&names, &counts, &now]).await? {
            woken.entry(row.get(0)).or_default().push((row.get(1), row.get(2)));
        }
    }
    Ok(woken)
}
