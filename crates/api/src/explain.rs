//! Why a task has not run yet: what is known of it ([`facts`]), and what follows from that ([`reasons`], pure).
//!
//! Called by `GET /v1/tasks/{id}/explain`. Nothing is claimed that is not read from the store, or known to this node
//! for certain; what only another node can know is said to be that node's.

mod facts;
mod reasons;

pub(crate) use facts::gather;
pub(crate) use reasons::explain;
