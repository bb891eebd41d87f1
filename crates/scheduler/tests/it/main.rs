//! The scheduler on the real embedded store, with a clock that tests move by hand.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod ahead;
mod backlog;
mod breakers;
mod dispatcher;
mod fairness;
mod harness;
mod owning;
mod settle;
mod spy;
mod sweep;
