//! What the nodes of a cluster share besides the rows: the database's clock, and notifications.
//!
//! The dispatcher and the resolver subscribe to the [`Listener`]; the writers leave notes for the
//! [`Notifier`]. Notifications may be lost: the rows are the truth.

mod clock;
mod listener;
pub(crate) mod notifier;

pub use clock::PostgresClock;
pub(crate) use listener::Listener;
pub use listener::{Wake, Wakes};
pub(crate) use notifier::Notifier;
