//! The view of a stored schedule, and a lock for each schedule that is being written. Used by the
//! routes of schedules; their rules are in `punctual_submission`.

pub mod keyed_mutex;
pub mod view;

pub use keyed_mutex::KeyedMutex;
