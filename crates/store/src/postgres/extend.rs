//! Extends the holds of workers that show signs of life.

use std::collections::{BTreeMap, HashMap};

use punctual_core::json::Json;
use punctual_core::store::Beat;
use punctual_core::task::Hold;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::quarantine;
use super::statements::Sql;
use super::writer::Writer;
use crate::beats::RunningHold;
use crate::columns::{json_column, node_column};
use crate::found_tasks::is_of;

/// Extends holds; answers in order.
pub(crate) async fn extend(writer: &mut Writer, beats: &[Beat]) -> Result<Vec<Option<Hold>>, Fault> {
    let mut ids: Vec<Uuid> = beats.iter().map(|beat| beat.id.uuid()).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = writer.session.begin(Sql::HoldLook, &[&ids]).await?;
    let lanes = writer.shared.lanes.get(&writer.session, rows.iter().map(|row| row.get(1))).await?;
    let (mut running, mut unreadable) = (HashMap::with_capacity(rows.len()), Vec::new());
    for row in &rows {
        let id: Uuid = row.get(0);
        match RunningHold::read(row) {
            Ok(Some(hold)) => drop(running.insert(id, (row.get::<_, i64>(1), hold))),
            Ok(None) => {}
            Err(bad) => unreadable.push((id, bad.0)),
        }
    }
    let now = writer.now();
    let mut extended: BTreeMap<Uuid, ExtendedHold<'_>> = BTreeMap::new();
    let mut answers = Vec::with_capacity(beats.len());
    for beat in beats {
        let id = beat.id.uuid();
        let own = running.get_mut(&id).filter(|(lane, _)| is_of(lanes.get(lane), &beat.tenant));
        let hold = own.and_then(|(_, hold)| hold.extend(beat, now));
        if let Some(hold) = &hold {
            let entry =
                extended.entry(id).or_insert(ExtendedHold { hold: hold.clone(), progress: None, checkpoint: None });
            entry.hold = hold.clone();
            entry.progress = beat.progress.as_ref().or(entry.progress);
            entry.checkpoint = beat.checkpoint.as_ref().or(entry.checkpoint);
        }
        answers.push(hold);
    }
    let (written, committed) = tokio::join!(biased; write(&writer.session, &extended), writer.session.run("COMMIT"));
    written?;
    committed?;
    writer.shared.low_watermarks.wrote([], extended.values().map(|extended| extended.hold.expires_at));
    drop(extended);
    quarantine::put_away(writer, &unreadable).await?;
    Ok(answers)
}

/// A hold after its signs of life.
struct ExtendedHold<'a> {
    hold: Hold,
    progress: Option<&'a Json>,
    checkpoint: Option<&'a Json>,
}

async fn write(session: &Session, extended: &BTreeMap<Uuid, ExtendedHold<'_>>) -> Result<(), Fault> {
    if extended.is_empty() {
        return Ok(());
    }
    let id: Vec<Uuid> = extended.keys().copied().collect();
    let holds = || extended.values().map(|extended| &extended.hold);
    let until: Vec<i64> = holds().map(|hold| hold.expires_at.as_millis()).collect();
    let deadline: Vec<i64> = holds().map(|hold| hold.deadline_at.as_millis()).collect();
    let node: Vec<Option<i64>> = holds().map(|hold| hold.node.map(node_column)).collect();
    let progress: Vec<Option<&str>> = extended.values().map(|extended| json_column(extended.progress)).collect();
    let checkpoint: Vec<Option<&str>> = extended.values().map(|extended| json_column(extended.checkpoint)).collect();
    let changed = session.execute(Sql::HoldExtend, &[&id, &until, &deadline, &node, &progress, &checkpoint]).await?;
    debug_assert_eq!(changed, id.len() as u64, "the rows are locked");
    Ok(())
}
