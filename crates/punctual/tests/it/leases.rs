//! Pull workers: what they are handed, what they may say, and what becomes of those that fall silent.

mod expiry;
mod handout;
mod polling;
mod settle;
mod stopped;
