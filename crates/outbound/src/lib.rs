//! Connects to other machines on somebody's behalf, and only to those that may be called.
//!
//! Every HTTP client of the product that calls a URL which others choose has its connections from
//! here. [`NetworkGuard`] decides which addresses may be called, and [`GuardedConnector`] connects
//! to nothing else. The worker's webhooks go through it. Invariant: the address that is connected
//! to is the one that was checked, so neither another way of writing it nor a name that changes
//! meanwhile gets past the check.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! # use punctual_core::networks::AllowedNetworks;
//! # use punctual_outbound::{GuardedConnector, Lookups, NetworkGuard, trust_machine};
//! # type Body = String;
//! let guard = NetworkGuard::new(AllowedNetworks::none(), Lookups::by_system());
//! let connector = GuardedConnector::new(guard, trust_machine(), Duration::from_secs(5));
//! let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
//! ```

mod connector;
mod dial;
mod fetch;
mod guard;
mod lookups;

pub use connector::{GuardedConnector, trust_machine};
pub use dial::{Dial, TcpDial};
pub use fetch::{FetchError, Fetcher};
pub use guard::{NetworkGuard, ResolveError, on_behalf_of};
pub use lookups::{BlockingLookup, LookupResult, Lookups};
