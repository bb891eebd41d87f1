//! What the nodes of a cluster share besides the rows: the database's clock, notifications, and the
//! locks that show which of them are connected.
//!
//! The dispatcher and the resolver subscribe to the [`Listener`]; the writers leave notes for the
//! [`Notifier`]. Notifications may be lost: the rows are the truth.

mod clock;
mod listener;
mod node_lock;
pub(crate) mod notifier;

pub use clock::PostgresClock;
pub(crate) use listener::{Listener, ListeningSession};
pub use listener::{Wake, Wakes};
pub(crate) use node_lock::NodeLock;
pub(crate) use notifier::Notifier;
