//! `/v1/tasks`: submissions, reads, lists, edits and cancellations.

mod cancel;
mod drive;
mod edit;
mod history;
mod list;
mod submit;
