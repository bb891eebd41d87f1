//! Trials: the whole product, as a real process, under faults, judged from outside.
//!
//! A trial drives a server ([`machine`]) with clients, workers and webhook targets ([`caller`],
//! [`workload`], [`stages`], [`orders`], [`races`]) that write down what they saw ([`history`]);
//! afterwards a pure function looks for a law that the history breaks ([`checker`]). Neither knows
//! anything of the server's inside. That the trials would notice is shown with bugs planted in the
//! store ([`planted`]). Nothing depends on this crate; its tests and its programs are its use.

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
