//! Who goes first when not everybody can be served at once. Pure; the dispatcher is the only caller.
//!
//! Tenants share what a turn can claim for pull workers by their weights ([`Tenants`]), and places for webhooks as these
//! come free ([`Rounds`]); what a tenant may claim is
//! shared by the bands of its priorities ([`Credits`]); and within a band the effective priority
//! decides, which waiting raises ([`Aging`]). Whatever somebody does not use goes to the others:
//! nothing is left unclaimed for the sake of a share.

use std::collections::HashMap;
use std::time::Duration;

mod aging;
mod bands;
mod rounds;
mod tenants;
mod waits;

pub use aging::Aging;
pub use bands::{Band, BandWeights, Credits};
pub use rounds::Rounds;
pub use tenants::{Contender, Tenants};
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
