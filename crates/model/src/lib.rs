//! A model of the lease protocol, checked exhaustively within small bounds.
//!
//! Nothing depends on this crate; its tests use it. It answers a question that no test of a real
//! store can: does *any* order of claims, heartbeats, settlements, cancellations, reaps, re-drives
//! and crashes break the promises of the API, with requests repeated, late or lost?
//!
//! # What is modelled
//! The rows of a store, and all their writers. Every state change is a `Change` made by the real
//! [`transition`](punctual_core::state::transition) (see `machine.rs`), applied as the contract of
//! [`Store`](punctual_core::store::Store) says: only in that state, at that version. So the checked
//! machine is the one that ships.
//!
//! - **Reads and writes are apart.** A writer that reads first (a settlement, a cancellation, a
//!   re-drive, the dispatcher that gives back, the reaper) is an [`Operation`] in flight between
//!   the two. Anything may happen meanwhile, even a crash that loses it. A claim, a start, a
//!   heartbeat and a completion by its token are one write, as in the store.
//! - **Workers report anything.** Every token that was ever handed out may report at any time, any
//!   number of times: completed with A, completed with B, failed for now, failed for good,
//!   released, heartbeat. This is the zombie that keeps its token forever, and it covers the rest:
//!   a lost request is no report, a duplicated request is two, a late request is a later one, and a
//!   lost answer changes no row. So a world has no workers, only tokens. In the same way the
//!   broker's messages are the versions that were dispatched, each delivered at any time, any
//!   number of times.
//! - **Time is relative.** A hold has ticks left, and at zero it is overdue. A worker is *promised*
//!   its task until the last lease end that it got, from the claim or from a heartbeat. A hold of
//!   one of our nodes is no promise, since other nodes may consider it dead at any time, rightly or
//!   not. Once the run is detached from the node it is a promise, and the node's death does not end
//!   the run.
//! - **The reaper's view is old.** It may have read a hold before it ran out (a store may show an
//!   extension late), or before the run was detached. Neither changes the version. So its write
//!   compares the judged hold too, see [`ExpectedHold`](punctual_core::state::ExpectedHold).
//! - **The server crashes**: everything in flight is gone, the rows stay. A node that dies alone is
//!   an operation that writes too late.
//!
//! # What is left out
//! Payloads, lanes and the order among tasks; dependencies, edits and "run now"; tenants and their
//! rights. A batch is its items one by one; more can happen between them here than in the store.
//! Only the reaper reads old rows: any other old read is a later write, since the write compares
//! the version. Clocks do not go back. Retries wait a tick. The decisions of `scheduler::settle`
//! and `leader::reaper` are repeated here (`settle.rs`, `operation.rs`), because they cannot be
//! separated from their stores: change both together.
//!
//! # The bounds
//! [`ModelBounds`]: one or two tasks, one retry, one re-drive, one give-back, one crash, one or two
//! requests and one reaper in flight. The number and the lateness of reports are not bounded, nor
//! is time.
//!
//! # What holds
//! Every [`Law`], in every reachable world. And every task finishes: [`walk`] checks that on the
//! whole graph, because the checker's own `eventually` misses cycles and joins. Each planted
//! [`Bug`] is found by the law that it names, or because a task is stuck. Every law finds a bug.
//!
//! # How to read a counterexample
//! A failed test prints the law and the trace, two lines a step: what happened, and the rows after
//! it. `task 0, read at v3: Reap(Lost), to be written` is the read of the reaper; the steps until
//! `…, written` came in between. `token 3` is the fencing token of the report: the version at which
//! its run began. `held for 1 of 2 ticks, promised 0` is a hold that is overdue in a tick, with a
//! deadline in two, and that was not promised. To see one:
//!
//! ```text
//! cargo run -p punctual-model --example explore -- bug TokenIgnored
//! ```

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
mod world;

pub use bounds::{ModelBounds, Route};
pub use bug::{Bug, Finding};
pub use check::{Report, Trace, check, describe, shortest_trace};
pub use law::{Law, Laws};
pub use liveness::{Liveness, walk};
pub use operation::{Operation, PlannedWrite, ReapReason};
pub use protocol::Protocol;
pub use row::{Cause, HoldLeft, Letter, ModelRow, RowPosition, SettleReport, StepKind, StepMark, Version};
pub use world::{Action, World};
