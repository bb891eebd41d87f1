//! Trials: the whole product, as a real process, under faults, judged from outside.
//!
//! A trial drives a server ([`machine`]) with clients, workers and webhook targets ([`caller`],
//! [`workload`], [`stages`], [`orders`], [`races`]) that record what they saw ([`history`]).
//! Afterwards a pure function looks for laws that the history breaks ([`checker`]). Neither knows
//! the inside of the server. Bugs planted in the store show that the trials notice ([`planted`]).
//! Nothing depends on this crate; its tests and its programs use it.

#![allow(clippy::unwrap_used, reason = "this crate is tests: a panic is their verdict")]

pub mod caller;
pub mod checker;
pub mod cluster;
pub mod dump;
pub mod history;
pub mod kill;
pub mod machine;
pub mod orders;
pub mod planted;
pub mod races;
pub mod stages;
pub mod workload;
