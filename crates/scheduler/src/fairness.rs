//! Who goes first when not all can be served at once. Pure; the dispatcher is the main caller.
//!
//! Tenants share by their weights. Pull workers share what a pass can claim ([`TenantDeficits`]),
//! webhooks share the slots as they become free ([`TenantClocks`]). The bands of a tenant share
//! what it may claim ([`Credits`]). Within a band the effective priority decides, which rises with
//! the wait ([`Aging`]).
//!
//! Invariant: an unused share goes to the others. No task stays unclaimed because of a share.

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

/// How tenants and bands share claims.
#[derive(Clone, Debug)]
pub struct Config {
    /// The share of each band.
    pub bands: BandWeights,
    /// The wait after which a task counts as one priority more urgent; zero means never.
    pub aging: Duration,
    /// The weights of tenants that weigh more than one.
    pub tenants: HashMap<String, u32>,
}

impl Default for Config {
    fn default() -> Self {
        Self { bands: BandWeights::default(), aging: Duration::ZERO, tenants: HashMap::new() }
    }
}
