//! Connections to PostgreSQL: where the server is, how a session is set up, and who may use it.
//!
//! Everything that talks to the server comes through here. A [`Session`] is one connection with its
//! prepared statements. [`SharedConnections`] serve single statements of many callers at once, an
//! [`ExclusiveConnection`] serves one transaction after the other, and every writer has a session
//! of its own. An [`Address`] remembers the newest primary it has seen: no session writes to
//! an older one.

mod address;
mod check;
mod client_identity;
mod exclusive;
mod lineage;
mod pooler;
mod portable;
pub(crate) mod reserve;
mod session;
mod shared;
pub(crate) mod tls;
mod url_risks;

pub(crate) use address::Address;
pub use check::ConnectError;
pub(crate) use check::check;
pub(crate) use exclusive::ExclusiveConnection;
pub(crate) use pooler::refuse_shared_sessions;
pub(crate) use session::{Parameters, Session};
pub(crate) use shared::SharedConnections;
pub use url_risks::UrlRisks;
