//! The brokers of Punctual, which carry messages from the dispatcher to the workers.
//!
//! Each is a module, and each passes the conformance suite for the contract in
//! `punctual_core::broker`. Only the `punctual` binary names one.

pub mod memory;
