//! What the API does about recurring schedules apart from HTTP: judges what their owners send, shows what is stored, and
//! makes the tasks of their occurrences by the rules of every submission.

pub mod judge;
pub mod maker;
pub mod view;

pub use judge::Judge;
pub use maker::maker;
