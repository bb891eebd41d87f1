//! The scheduler's services on the real embedded store, with a clock that is moved by hand.

mod bench;
mod dispatcher;
mod settle;
