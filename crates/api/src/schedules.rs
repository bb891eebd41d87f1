//! What the API does about recurring schedules apart from HTTP: judges what their owners send, shows what is stored, makes
//! the tasks of their occurrences by the rules of every submission, and lets those who write one take turns.

pub mod doors;
pub mod view;

pub use doors::Doors;
