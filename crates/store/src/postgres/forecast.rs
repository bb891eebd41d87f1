//! What will be due in which minute: the counts that every transaction keeps (see
//! `forecast_tally.rs`), and the schedules that will fire.

use tokio_postgres::Row;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::forecast_tally::ForecastTally;
use crate::schedule_columns::UpcomingColumns;

pub(super) fn upcoming_columns(row: &Row) -> UpcomingColumns {
    UpcomingColumns {
        id: row.get(0),
        name: row.get(1),
        next_run_at: row.get(2),
        run_count: row.get(3),
        definition: row.get(4),
        reserved: row.get(5),
    }
}

/// How a transaction changed what will be due, as columns.
#[derive(Default)]
pub(crate) struct Minutes {
    lanes: Vec<i64>,
    numbers: Vec<i64>,
    tasks: Vec<i64>,
}

impl Minutes {
    pub(crate) fn take(forecast: &mut ForecastTally) -> Self {
        let mut minutes = Self::default();
        for (lane, minute, tasks) in forecast.take() {
            minutes.lanes.push(lane);
            minutes.numbers.push(minute.number());
            minutes.tasks.push(tasks);
        }
        minutes
    }

    /// One statement, if there is anything.
    pub(crate) async fn write(&self, session: &Session, slot: i32) -> Result<(), Fault> {
        if !self.lanes.is_empty() {
            // The common way does not carry it along.
            Box::pin(self.add(session, slot)).await?;
        }
        Ok(())
    }

    async fn add(&self, session: &Session, slot: i32) -> Result<(), Fault> {
        session.execute(Sql::ForecastAdd, &[&self.lanes, &self.numbers, &self.tasks, &slot]).await?;
        Ok(())
    }
}
