//! Why a task has not run yet: what is known of it ([`facts`]), and what follows ([`reasons`],
//! pure).
//!
//! Called by `GET /v1/tasks/{id}/explain`. Every statement is read from the store or known to this
//! node for certain. Where only another node can know, the answer names that node.

mod facts;
mod reasons;

pub(crate) use facts::gather;
pub(crate) use reasons::explain;
