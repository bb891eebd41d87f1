//! Reads the waiting tasks by minute, and the schedules that will fire.

use punctual_core::forecast::{Minute, UpcomingPage, UpcomingSchedule};
use punctual_core::ids::ScheduleId;
use punctual_core::schedules::plan::Spec;

use super::schedules::{definition, readable};
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::count_column;

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
    after: Option<&str>,
    limit: usize,
) -> Result<UpcomingPage, C::Fault> {
    let parameters: [&dyn Parameter; 3] = [&tenant, &after.unwrap_or_default(), &count_column(limit)];
    let rows = connection.query(PortableSql::ForecastSchedules, &parameters).await?;
    let next = rows.last().filter(|_| rows.len() >= limit).map(|last| last.get(1)).transpose()?;
    Ok(UpcomingPage { schedules: readable(&rows, schedule)?, next })
}

fn schedule<R: Row>(row: &R) -> Result<UpcomingSchedule, Corrupt> {
    Ok(UpcomingSchedule {
        id: ScheduleId::from_uuid(row.get(0)?),
        // Only schedules that are not paused are read; the definition may be older.
        spec: Spec { paused: false, ..definition(row, 4)?.spec },
        next_run_at: row.instant(2)?,
        run_count: row.number(3)?,
        reserved: row.number(5)?,
    })
}

pub(crate) async fn upcoming_count<C: Connection>(connection: &mut C, tenant: &str) -> Result<u64, C::Fault> {
    let rows = connection.query(PortableSql::ForecastSchedulesCount, &[&tenant]).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.number(0))?)
}
