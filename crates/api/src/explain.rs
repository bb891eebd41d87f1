//! Why a task has not run yet: reads the facts ([`facts`]) and derives the reasons ([`reasons`],
//! pure).
//!
//! Called by `GET /v1/tasks/{id}/explain`. Every statement is read from the store or certain on
//! this node. Where only another node can know, the answer names that node.

mod facts;
mod reasons;

pub(crate) use facts::gather;
pub(crate) use reasons::explain;
