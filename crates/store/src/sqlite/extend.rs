//! Extends the holds of workers that show signs of life.

use punctual_core::state::State;
use punctual_core::store::Beat;
use punctual_core::task::Hold;

use crate::columns::{Unreadable, json_column, node_column, number_column};

use super::fault::Fault;
use super::quarantine;
use super::row;
use super::session::Session;
use super::statements::Sql;

/// Extends holds; answers in order.
pub(crate) fn extend(session: &mut Session<'_>, beats: &[Beat]) -> Result<Vec<Option<Hold>>, Fault> {
    beats.iter().map(|beat| extend_one(session, beat)).collect()
}

fn extend_one(session: &mut Session<'_>, beat: &Beat) -> Result<Option<Hold>, Fault> {
    let Some(RunningHold { seq, lane, timeout_millis, hold }) = held(session, beat)? else { return Ok(None) };
    let tenant = session.lanes.get(session.connection, lane)?;
    if tenant.is_none_or(|lane| lane.key.tenant != beat.tenant) {
        return Ok(None);
    }
    let mut hold = match hold {
        Ok(hold) => hold,
        Err(Unreadable(column)) => {
            quarantine::put_away(session, seq, column)?;
            return Ok(None);
        }
    };
    // A hold that ran out is lost, even if the reaper has not taken the task back yet.
    let now = session.now();
    if now >= hold.expires_at {
        return Ok(None);
    }
    // Never past the deadline and never shorter than before: a clock that went back takes nothing
    // away.
    let asked = now.plus_millis(number_column(hold.lease_millis));
    hold.expires_at = asked.min(hold.deadline_at).max(hold.expires_at);
    if beat.detach {
        hold.node = None;
        hold.deadline_at = hold.since.plus_millis(timeout_millis).min(hold.deadline_at);
        hold.expires_at = hold.deadline_at;
    }
    session.statements.get(Sql::HoldExtend)?.execute((
        seq,
        hold.expires_at.as_millis(),
        json_column(beat.progress.as_ref()),
        json_column(beat.checkpoint.as_ref()),
        hold.node.map(node_column),
        hold.deadline_at.as_millis(),
    ))?;
    Ok(Some(hold))
}

struct RunningHold {
    seq: i64,
    lane: i64,
    timeout_millis: i64,
    hold: Result<Hold, Unreadable>,
}

/// The hold that the token of a sign of life names.
fn held(session: &mut Session<'_>, beat: &Beat) -> Result<Option<RunningHold>, Fault> {
    let query = session.statements.get(Sql::HoldLook)?;
    let mut rows = query.query([beat.id.uuid().as_bytes()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let (state, version, asked_to_stop): (i64, i64, bool) = (row.get(2)?, row.get(3)?, row.get(4)?);
    if state != i64::from(State::Running.code()) || version != number_column(beat.token) || asked_to_stop {
        return Ok(None);
    }
    let hold = row::get::<Option<String>>(row, 5, "worker")
        .and_then(|worker| row::hold(row, 6, worker.as_deref()))
        .and_then(|hold| hold.ok_or(Unreadable("lease_expires_at")));
    Ok(Some(RunningHold { seq: row.get(0)?, lane: row.get(1)?, timeout_millis: row.get(12)?, hold }))
}
