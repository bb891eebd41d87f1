//! The section `breakers`: when circuit breakers open, and how they are probed.

use std::time::Duration;

use punctual_core::breakers::window::{BreakerRules, SLOTS};
use punctual_core::time::signed_millis;

use super::reader::SettingReader;

/// When circuit breakers open.
#[derive(Clone, Copy, Debug)]
pub struct BreakerSettings {
    /// Whether breakers are used.
    pub enabled: bool,
    /// How far back runs are counted.
    pub window: Duration,
    /// The fewest runs that can open one.
    pub minimum: u64,
    /// One opens when more than this percentage failed.
    pub failure_percent: u64,
    /// The time from the opening, or from a probe, to the next probe.
    pub probe: Duration,
}

const DAY: Duration = Duration::from_hours(24);

impl BreakerSettings {
    /// Reads the settings of this section.
    pub(super) fn read(read: &mut SettingReader<'_>) -> Self {
        // A slot of the window is at least as long as the nodes take to exchange their counts.
        let shortest = Duration::from_secs(SLOTS.unsigned_abs());
        Self {
            enabled: read.flag("breakers.enabled"),
            window: read.seconds("breakers.window_seconds", shortest..=DAY),
            minimum: read.number("breakers.minimum", 1..=1_000_000),
            failure_percent: read.number("breakers.failure_percent", 1..=99),
            probe: read.seconds("breakers.probe_seconds", Duration::from_secs(1)..=DAY),
        }
    }

    /// The rules by which they open.
    pub fn rules(&self) -> BreakerRules {
        let Self { minimum, failure_percent, .. } = *self;
        BreakerRules { window_millis: signed_millis(self.window), minimum, failure_percent }
    }

    /// The time between probes.
    pub fn probe_millis(&self) -> i64 {
        signed_millis(self.probe)
    }
}
