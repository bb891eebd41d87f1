//! Who goes first when not everybody can be served at once. Pure; the dispatcher is the main
//! caller.
//!
//! Tenants share by their weights: for pull workers what a pass can claim ([`TenantDeficits`]), for
//! webhooks the slots as they become free ([`TenantClocks`]). The bands of a tenant share what it
//! may claim ([`Credits`]). Within a band the effective priority decides, which waiting raises
//! ([`Aging`]).
//!
//! Invariant: a share that is not used goes to the others. Nothing is left unclaimed for its sake.

use std::collections::HashMap;
use std::time::Duration;

mod aging;
mod bands;
mod clocks;
mod deficits;
mod waits;

pub use aging::Aging;
pub use bands::{Band, BandWeights, Credits};
pub use clocks::TenantClocks;
pub use deficits::{Contender, TenantDeficits};
pub use waits::LongestWaits;

/// How what can be claimed is shared.
#[derive(Clone, Debug)]
pub struct Config {
    /// The share of each band.
    pub bands: BandWeights,
    /// After waiting this long a task counts as one priority more urgent; zero: it never does.
    pub aging: Duration,
    /// Tenants that weigh more than one.
    pub tenants: HashMap<String, u32>,
}

impl Default for Config {
    fn default() -> Self {
        Self { bands: BandWeights::default(), aging: Duration::ZERO, tenants: HashMap::new() }
    }
}
