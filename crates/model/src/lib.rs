//! A model of the lease protocol, checked exhaustively within small bounds.

mod bounds;
mod bug;
mod check;
mod law;
mod liveness;
mod machine;
mod operation;
mod properties;
mod protocol;
mod row;
mod settle;
mod store;

pub use bounds::{Bounds, LateBeats, Route};
pub use bug::{Bug, Finding};
pub use check::{Report, check, tell};
pub use law::{Law, Laws};
pub use liveness::{Liveness, walk};
pub use operation::{Operation, Reaped, What};
pub use protocol::{Action, Protocol, World};
pub use row::{Cause, Deed, HoldLeft, Letter, Mark, Row, Said, Stand, Version};
