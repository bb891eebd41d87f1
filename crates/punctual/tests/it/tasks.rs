//! `/v1/tasks`: what is accepted, what comes back, and what may be done with a task.

mod cancel;
mod drive;
mod edit;
mod history;
mod list;
mod submit;
