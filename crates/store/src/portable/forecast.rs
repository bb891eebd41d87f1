//! Reads the waiting tasks by minute, and the schedules that will fire.

use punctual_core::forecast::{Minute, UpcomingPage, UpcomingSchedule};
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::plan::Spec;
use punctual_core::time::Timestamp;

use super::schedules::{definition, readable};
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::{Unreadable, count_column};

pub(crate) async fn waiting<C: Connection>(
    connection: &mut C,
    tenant: &str,
    from: Minute,
    to: Minute,
) -> Result<Vec<(Minute, u64)>, C::Fault> {
    let rows = connection.query(PortableSql::ForecastList, &[&tenant, &from.number(), &to.number()]).await?;
    let minute = |row: &C::Row| Ok((Minute::numbered(row.get(0)?), row.number(1)?));
    Ok(rows.iter().map(minute).collect::<Result<_, Corrupt>>()?)
}

pub(crate) async fn upcoming<C: Connection>(
    connection: &mut C,
    tenant: &str,
    until: Timestamp,
    after: Option<&str>,
    limit: usize,
) -> Result<UpcomingPage, C::Fault> {
    let (after, limit_column, until) = (after.unwrap_or_default(), count_column(limit), until.as_millis());
    let parameters: [&dyn Parameter; 4] = [&tenant, &after, &limit_column, &until];
    let rows = connection.query(PortableSql::ForecastSchedules, &parameters).await?;
    let next = rows.last().filter(|_| rows.len() >= limit).map(|last| last.get(1)).transpose()?;
    Ok(UpcomingPage { schedules: readable(&rows, schedule)?, next })
}

fn schedule<R: Row>(row: &R) -> Result<UpcomingSchedule, Corrupt> {
    let definition = definition(row, 4)?;
    Ok(UpcomingSchedule {
        id: ScheduleId::from_uuid(row.get(0)?),
        name: row.get(1)?,
        task: definition.task_names().map_err(|_| Corrupt::column("schedule", Unreadable("task")))?,
        // Only schedules that are not paused are read; the definition may be older.
        spec: Spec { paused: false, ..definition.spec },
        next_run_at: row.instant(2)?,
        run_count: row.number(3)?,
        reserved: row.number(5)?,
    })
}

pub(crate) async fn upcoming_count<C: Connection>(
    connection: &mut C,
    tenant: &str,
    until: Timestamp,
) -> Result<u64, C::Fault> {
    let rows = connection.query(PortableSql::ForecastSchedulesCount, &[&tenant, &until.as_millis()]).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.number(0))?)
}
