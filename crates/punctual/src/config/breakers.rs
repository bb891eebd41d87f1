//! When circuit breakers open, and how they are probed.

use std::time::Duration;

use punctual_core::breakers::window::{Rules, SLOTS};
use punctual_core::time::signed_millis;

use super::reader::Reader;

/// When circuit breakers open; see the default file.
#[derive(Clone, Copy, Debug)]
pub struct Breakers {
    /// Whether there are any.
    pub enabled: bool,
    /// How far back runs are counted.
    pub window: Duration,
    /// With fewer runs none opens.
    pub minimum: u64,
    /// It opens when more than so many percent failed.
    pub failure_percent: u64,
    /// How long after it opened, and after a probe, the next probe is made.
    pub probe: Duration,
}

const DAY: Duration = Duration::from_hours(24);

impl Breakers {
    /// Reads the settings of this section.
    pub(super) fn read(read: &mut Reader<'_>) -> Self {
        // A slot of the window is as long as it takes the nodes to tell each other, at least.
        let shortest = Duration::from_secs(SLOTS.unsigned_abs());
        Self {
            enabled: read.flag("breakers.enabled"),
            window: read.seconds("breakers.window_seconds", shortest..=DAY),
            minimum: read.number("breakers.minimum", 1..=1_000_000),
            failure_percent: read.number("breakers.failure_percent", 1..=99),
            probe: read.seconds("breakers.probe_seconds", Duration::from_secs(1)..=DAY),
        }
    }

    /// When they open.
    pub fn rules(&self) -> Rules {
        let Self { minimum, failure_percent, .. } = *self;
        Rules { window_millis: signed_millis(self.window), minimum, failure_percent }
    }

    /// The time between probes.
    pub fn probe_millis(&self) -> i64 {
        signed_millis(self.probe)
    }
}
