//! A model of the lease protocol, checked exhaustively within small bounds.
//!
//! Nothing depends on this crate; its tests are its use. It answers what no test of a real store
//! can: whether *any* order of claims, heartbeats, settles, cancellations, reaps, re-drives and
//! crashes, with anything said twice, late or never, breaks the promises of the API.
//!
//! # What is modelled
//! The rows of a store, and everybody who writes to them. Every state change is a `Change` made by
//! the real [`transition`](punctual_core::state::transition) (see `machine.rs`), applied as the
//! contract of [`Store`](punctual_core::store::Store) says: only in that state, at that version. So
//! the machine that is checked is the one that ships.
//!
//! - **Reads and writes are apart.** Whoever reads before it writes (a settle, a cancellation, a
//!   re-drive, the dispatcher that gives back, the reaper) is an [`Operation`] in flight between
//!   the two, and anything may happen in between, a crash that loses it included. A claim, a start,
//!   a heartbeat and a completion by its token are one write, as they are in the store.
//! - **Workers say anything.** With every token that was ever handed out anybody may say at any
//!   time, any number of times: completed with A, completed with B, failed for now, failed for
//!   good, released, heartbeat. This is the zombie that keeps its token for ever, and it contains
//!   the rest: a request that is lost was not said, one that is duplicated was said twice, one that
//!   is late was said later, and a lost answer changes no row. So there are no workers in a world,
//!   only tokens; and messages in the broker likewise are the versions that were dispatched, each
//!   delivered at any time, any number of times.
//! - **Time is relative.** A hold has ticks left, and at zero it is overdue. A worker is *promised*
//!   its task until the end of its lease that it was told last, by the claim or by a heartbeat. A
//!   hold of one of our nodes is no promise, since the node may be taken for dead, rightly or not,
//!   at any time; but once the run was told that it is detached from the node it is, and that
//!   node's death does not end the run.
//! - **The reaper's view is old.** It may have read a hold before that ran out, as it does from a
//!   store that shows an extension late, or before the run was detached. Neither changes the
//!   version, so its write compares, besides state and version, the hold that it judged, as
//!   [`ExpectedHold`](punctual_core::state::ExpectedHold) says.
//! - **The server crashes**: everything in flight is gone, the rows stay. A node that dies alone is
//!   an operation that writes too late.
//!
//! # What is left out
//! Payloads, lanes and the order among tasks; dependencies, edits and "run now"; who may do what
//! (tenants). A batch is its items one by one: they are applied each by itself, and what comes
//! between them here is more than can come between them there. Others than the reaper read what is
//! written as soon as it is decided: an older read is one that writes later, for its write compares
//! the version that it read. A clock that goes back is not looked at. Retries wait a tick. What
//! `scheduler::settle` and `leader::reaper` decide is written here once more (`settle.rs`,
//! `operation.rs`), for they do not come apart from their stores: who changes them changes both.
//!
//! # The bounds
//! [`ModelBounds`]: one or two tasks, one retry, one re-drive, one give-back, one crash, one or two
//! requests and one reaper in flight. How often and how late something is said is not bounded, nor
//! is time.
//!
//! # What holds
//! Every [`Law`], in every reachable world. And every run comes to rest: see [`walk`], which checks
//! it on the whole graph, because the checker's own `eventually` misses cycles and joins. Each
//! [`Bug`] that is planted is found, by the law or the stillness that it names, and there is no law
//! that finds none.
//!
//! # How to read a counterexample
//! A failed test prints the law and the trace, two lines a step: what happened, and the rows
//! after it. `task 0, read at v3: Reap(Lost), to be written` is the reaper reading; what follows
//! until `…, written` came in between. `token 3` is the fencing token of whoever spoke, and the
//! version at which its run began. `held for 1 of 2 ticks, promised 0` is a hold that is overdue in
//! a tick, with a deadline in two, whose worker has no right to count on it. To see one:
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
pub use operation::{Operation, Reaped, What};
pub use protocol::Protocol;
pub use row::{Cause, Deed, HoldLeft, Letter, Mark, ModelRow, Said, Stand, Version};
pub use world::{Action, World};
