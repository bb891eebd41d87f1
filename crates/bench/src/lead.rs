//! The time between a preload and the first due instant.

use punctual_core::time::Timestamp;

use crate::client::now;

/// The first due instant of preloaded tasks, far enough ahead to submit all of them before.
#[derive(Clone, Copy)]
pub struct PreloadLead {
    /// The first due instant.
    pub due: Timestamp,
    millis: i64,
}

impl PreloadLead {
    /// A lead for tasks that are due at one instant: enough at 20,000 submissions a second.
    pub fn of_herd(tasks: usize) -> Self {
        Self::new(i64::try_from(tasks).unwrap_or(i64::MAX) / 20 + 3_000)
    }

    /// A lead for tasks that are due at a steady rate: enough at 10,000 submissions a second.
    pub fn of_rate(tasks: usize) -> Self {
        Self::new(i64::try_from(tasks).unwrap_or(i64::MAX) / 10 + 2_000)
    }

    fn new(millis: i64) -> Self {
        Self { due: now().plus_millis(millis), millis }
    }

    /// Fails if the preload, which has just ended, took too long.
    pub fn check(self) -> anyhow::Result<()> {
        let Self { due, millis } = self;
        anyhow::ensure!(now() < due, "the preload took longer than its lead of {millis} ms; ask for fewer tasks");
        Ok(())
    }
}

/// The due instant of the `number`th task at `rate` tasks a second.
pub fn due_at_rate(first: Timestamp, rate: usize, number: usize) -> Timestamp {
    let millis = number as u128 * 1_000 / rate as u128;
    first.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
