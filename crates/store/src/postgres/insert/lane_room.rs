//! Refuses submissions that need more lanes than their tenant may have.
//!
//! The tasks of a schedule are not refused: a schedule has one lane, which was accepted with it.
//! Nor are edits of the priority; edits of the queue or the destination are.

use std::collections::HashSet;

use punctual_core::ids::TaskId;
use punctual_core::store::Inserted;
use punctual_core::task::NewTask;

use super::depth;
use crate::postgres::fault::Fault;
use crate::postgres::writer::Writer;
use crate::submissions::InsertMode;

/// Inserts tasks as far as their tenants may have their lanes; answers in order.
pub(crate) async fn insert(writer: &mut Writer, tasks: &[NewTask]) -> Result<Vec<Inserted>, Fault> {
    insert_by(writer, tasks, InsertMode::Each).await
}

/// Inserts all tasks of one call or none; answers in order.
pub(crate) async fn insert_all(writer: &mut Writer, calls: &[Vec<NewTask>]) -> Result<Vec<Vec<Inserted>>, Fault> {
    let [tasks] = calls else { return Ok(Vec::new()) };
    Ok(vec![insert_by(writer, tasks, InsertMode::All).await?])
}

async fn insert_by(writer: &mut Writer, tasks: &[NewTask], mode: InsertMode) -> Result<Vec<Inserted>, Fault> {
    let (shared, most) = (&writer.shared, writer.shared.tenant_lanes);
    let lanes = shared.lanes.admit(&writer.session, tasks.iter().map(|task| &task.lane), most).await?;
    if tasks.iter().all(|task| lanes.contains_key(&task.lane)) {
        return depth::insert(writer, tasks, &HashSet::new(), mode).await;
    }
    let has_lane: Vec<bool> = tasks.iter().map(|task| lanes.contains_key(&task.lane)).collect();
    drop(lanes);
    let (some, others): (Vec<_>, Vec<_>) = tasks.iter().zip(&has_lane).partition(|(_, has_lane)| **has_lane);
    let some: Vec<NewTask> = some.into_iter().map(|(task, _)| task.clone()).collect();
    let put_off: HashSet<TaskId> = others.into_iter().map(|(task, _)| task.id).collect();
    let stored = match mode {
        _ if some.is_empty() => Vec::new(),
        InsertMode::All => vec![Inserted::Withheld; some.len()],
        InsertMode::Each => depth::insert(writer, &some, &put_off, mode).await?,
    };
    let mut stored = stored.into_iter();
    let unanswered = || Fault::Corrupt("an insert did not answer for every task".to_owned());
    let answer = |has_lane: bool| {
        if has_lane { stored.next().ok_or_else(unanswered) } else { Ok(Inserted::TooManyLanes(most)) }
    };
    has_lane.into_iter().map(answer).collect()
}
