//! Trials: the whole product runs as a real process under faults, and is judged from outside.
//!
//! A trial drives a server ([`machine`]) with clients, workers and webhook targets ([`caller`],
//! [`workload`], [`stages`], [`orders`], [`races`]) that record what they saw ([`history`]).
//! Afterwards a pure function finds the laws that the history breaks ([`checker`]). Neither knows
//! the inside of the server. Bugs planted in the store prove that the trials find bugs
//! ([`planted`]). Nothing depends on this crate; its tests and its programs use it.

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
