//! `/v1/tasks`: what is accepted, what is returned, and what can be done with a task.

mod cancel;
mod drive;
mod edit;
mod history;
mod list;
mod submit;
