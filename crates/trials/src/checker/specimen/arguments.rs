//! Named arguments of the specimen: tests write them as literals, with instants in milliseconds.

use punctual_client::RunEnded;
use punctual_core::ids::TaskId;
use punctual_core::state::State;

use crate::history::{CallAnswer, Op, Shown, WorkerReport};

/// A fencing token.
#[derive(Clone, Copy)]
pub struct Token(pub u64);

/// A lease: when the worker asked for it and got it, and when it expires.
#[derive(Clone, Copy)]
pub struct LeaseAt<'a> {
    pub task: TaskId,
    pub attempt: u32,
    pub token: Token,
    pub asked: i64,
    pub got: i64,
    pub expires: i64,
    pub payload: &'a str,
}

/// A step of a trail: its instant, the state it leads to, the actor and the reason.
pub struct StepAt<'a>(pub i64, pub State, pub &'a str, pub &'a str);

/// A run that has ended.
pub struct RunAt {
    pub attempt: u32,
    pub started: i64,
    pub outcome: RunEnded,
}

/// When a task that completes at its first attempt was submitted and started.
#[derive(Clone, Copy)]
pub struct Life {
    pub submitted: i64,
    pub started: i64,
}

/// A resource gets another holder (or none) in this term, just before the write of `version` to the
/// task `before`.
#[derive(Clone, Copy)]
pub struct Handover<'a> {
    pub resource: &'a str,
    pub holder: Option<&'a str>,
    pub term: u64,
    pub before: TaskId,
    pub version: u64,
}

/// A worker's report about the run with this token.
pub fn settle(task: TaskId, token: Token, report: WorkerReport) -> Op {
    Op::Settle { worker: "w".to_owned(), task, token: token.0, report }
}

/// A 4xx.
pub fn refused(status: u16) -> CallAnswer {
    CallAnswer::Refused { status, code: String::new() }
}

/// A 2xx.
pub fn ok(status: u16, task: TaskId) -> CallAnswer {
    CallAnswer::Ok(Shown { status, task: Some(task), ..Shown::default() })
}
