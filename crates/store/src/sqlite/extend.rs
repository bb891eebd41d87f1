//! Extends the holds of workers that show signs of life.

use punctual_core::store::Beat;
use punctual_core::task::Hold;

use crate::beats::RunningHold;
use crate::columns::{Unreadable, json_column, node_column};
use crate::found_tasks::is_of;

use super::fault::Fault;
use super::quarantine;
use super::session::Session;
use super::statements::Sql;

/// Extends holds; answers in order.
pub(crate) fn extend(session: &mut Session<'_>, beats: &[Beat]) -> Result<Vec<Option<Hold>>, Fault> {
    beats.iter().map(|beat| extend_one(session, beat)).collect()
}

fn extend_one(session: &mut Session<'_>, beat: &Beat) -> Result<Option<Hold>, Fault> {
    let Some((seq, lane, running)) = look(session, beat)? else { return Ok(None) };
    if !is_of(session.lanes.get(session.connection, lane)?.as_ref(), &beat.tenant) {
        return Ok(None);
    }
    let extended = match running {
        Ok(running) => running.and_then(|mut running| running.extend(beat, session.now())),
        Err(Unreadable(column)) => {
            quarantine::put_away(session, seq, column)?;
            None
        }
    };
    let Some(hold) = extended else { return Ok(None) };
    let changed = session.statements.get(Sql::HoldExtend)?.execute((
        seq,
        hold.expires_at.as_millis(),
        json_column(beat.progress.as_ref()),
        json_column(beat.checkpoint.as_ref()),
        hold.node.map(node_column),
        hold.deadline_at.as_millis(),
    ))?;
    debug_assert_eq!(changed, 1, "a beat changes the row that was read");
    Ok(Some(hold))
}

type HoldRow = (i64, i64, Result<Option<RunningHold>, Unreadable>);

/// The number and the lane of the task that a beat names, and its hold if it runs.
fn look(session: &mut Session<'_>, beat: &Beat) -> Result<Option<HoldRow>, Fault> {
    let query = session.statements.get(Sql::HoldLook)?;
    let mut rows = query.query([beat.id.uuid().as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some((row.get(0)?, row.get(1)?, RunningHold::read(row))))
}
