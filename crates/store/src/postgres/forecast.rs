//! Writes how many tasks will be due in each minute. Every transaction counts its own changes
//! (`forecast_tally.rs`).

use super::connection::{Parameters, Session};
use super::fault::Fault;
use super::statements::Sql;
use crate::forecast_tally::ForecastTally;

/// How a transaction changes the forecast, as columns.
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

    /// Writes them, by one statement.
    pub(crate) async fn write(&self, session: &Session, slot: i32) -> Result<(), Fault> {
        if !self.lanes.is_empty() {
            let parameters: Parameters<'_> = &[&self.lanes, &self.numbers, &self.tasks, &slot];
            // Boxed: most transactions change nothing here and should not carry its future.
            Box::pin(session.execute(Sql::ForecastAdd, parameters)).await?;
        }
        Ok(())
    }
}
