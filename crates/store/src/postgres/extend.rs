//! Extends the holds of workers that show signs of life.

use std::collections::{BTreeMap, HashMap};

use punctual_core::json::Json;
use punctual_core::state::State;
use punctual_core::store::Beat;
use punctual_core::task::Hold;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use super::writer::Writer;
use super::{quarantine, row};
use crate::columns::{Unreadable, json_column, node_column, number_column};

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
        match held(row) {
            Ok(Some(held)) => drop(running.insert(id, held)),
            Ok(None) => {}
            Err(bad) => unreadable.push((id, bad.0)),
        }
    }
    let now = writer.now();
    let mut extended: BTreeMap<Uuid, ExtendedHold<'_>> = BTreeMap::new();
    let mut answers = Vec::with_capacity(beats.len());
    for beat in beats {
        let id = beat.id.uuid();
        let own = |held: &&mut RunningHold| lanes.get(&held.lane).is_some_and(|lane| lane.key.tenant == beat.tenant);
        let hold = running.get_mut(&id).filter(own).and_then(|held| held.extend(beat, now));
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

/// A run that may be extended.
struct RunningHold {
    lane: i64,
    version: u64,
    timeout_millis: i64,
    hold: Hold,
}

/// Reads a run that may be extended. None: it does not run, or was asked to stop.
fn held(row: &Row) -> Result<Option<RunningHold>, Unreadable> {
    let asked_to_stop: bool = row::get(row, 4, "cancel_requested")?;
    if row::state(row, 2)? != State::Running || asked_to_stop {
        return Ok(None);
    }
    let hold = row::hold(row, 7, row::get(row, 6, "worker")?)?.ok_or(Unreadable("lease_expires_at"))?;
    let version = row::number(row, 3, "version")?;
    Ok(Some(RunningHold { lane: row.get(1), version, timeout_millis: row.get(5), hold }))
}

impl RunningHold {
    /// The hold after a beat; none if its token does not hold the task, or the hold has run out.
    fn extend(&mut self, beat: &Beat, now: Timestamp) -> Option<Hold> {
        let hold = &mut self.hold;
        // A hold that ran out is lost, even if the reaper has not taken the task back yet.
        if self.version != beat.token || now >= hold.expires_at {
            return None;
        }
        // Never past the deadline and never shorter than before: a clock that went back takes
        // nothing away.
        let asked = now.plus_millis(number_column(hold.lease_millis));
        hold.expires_at = asked.min(hold.deadline_at).max(hold.expires_at);
        if beat.detach {
            hold.node = None;
            hold.deadline_at = hold.since.plus_millis(self.timeout_millis).min(hold.deadline_at);
            hold.expires_at = hold.deadline_at;
        }
        Some(hold.clone())
    }
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
    session.execute(Sql::HoldExtend, &[&id, &until, &deadline, &node, &progress, &checkpoint]).await?;
    Ok(())
}
