//! The brokers of Punctual: what carries hints from the scheduler to the workers.
//!
//! A module each, all of them held to the contract in `punctual_core::broker` by the same
//! suite. Only the `punctual` binary names one.

pub mod embedded;
