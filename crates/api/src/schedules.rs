//! What the schedule routes share apart from HTTP: the view of a stored schedule, and a lock for
//! each schedule that is being written. The rules for schedules are in `punctual_submission`.

pub mod keyed_mutex;
pub mod view;

pub use keyed_mutex::KeyedMutex;
