//! Pull workers: what they are granted, what they may report, and what happens when they fall
//! silent.

mod batch;
mod expiry;
mod handout;
mod polling;
mod settle;
mod stopped;
