//! The worker against real servers on loopback, the well-behaved and the hostile, and over a real
//! store.

#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod answers;
mod envelopes;
mod faulty;
mod harness;
mod hostile;
mod http2;
mod local;
mod requests;
mod runs;
mod shutdown;
mod signatures;
mod support;
mod targets;
mod tls;
mod trouble;
