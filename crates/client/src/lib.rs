//! The wire types of the API: what requests and answers look like as JSON.
//!
//! The server writes and reads these very types, so they cannot drift from it; SDKs, the
//! command line and the tests use them too. They know shapes, not rules: what a value may
//! be is the server's to say, with all faults of a request at once. Instants, ids and
//! carried JSON are the domain's own types.
//!
//! Two features make an SDK of it, for applications and their workers: `http`, a client that
//! speaks to a server, and `ledger`, which records in a worker's own PostgreSQL transaction that
//! its task is done.
//!
//! Invariant: requests refuse unknown fields and duplicate keys; answers may grow new fields.

pub mod batch;
pub mod breaker;
pub mod cluster;
pub mod dependency;
pub mod explanation;
pub mod forecast;
pub mod health;
pub mod history;
#[cfg(feature = "http")]
pub mod http;
pub mod lease;
#[cfg(feature = "ledger")]
pub mod ledger;
pub mod new_task;
mod objects;
pub mod page;
pub mod priority;
pub mod problem;
pub mod queue;
pub mod retry;
pub mod schedule;
pub mod seconds;
pub mod settle;
pub mod task;
mod unique;
pub mod worker;

pub use batch::{BatchAnswer, BatchItem, NewBatch};
pub use breaker::{Breaker, BreakerState, ResetBreaker};
pub use cluster::{Node, Partition};
pub use dependency::{Dependency, OnDependencyFailure};
pub use explanation::{Explanation, Reason, TaskInTheWay};
pub use forecast::{Forecast, ForecastMinute};
pub use health::{Check, Checks, Health, Readiness, ReadinessStatus};
pub use history::{Event, Run, RunError};
pub use lease::{Lease, LeaseAnswer, LeaseRequest, SettleAnswer, SettleItem, SettleOutcome, SettleRequest, Settled};
pub use new_task::{NewTask, Redrive, TaskPatch};
pub use page::{
    BreakerPage, EventPage, NodePage, OccurrencePage, Page, PartitionPage, QueuePage, RunPage, SchedulePage, TaskPage,
    UpcomingRunPage, WorkerPage,
};
pub use priority::Priority;
pub use problem::{Fault, Problem};
pub use queue::{
    OnDeadLetter, Pause, PauseRequest, Queue, QueueCounts, QueueSettings, RateLimit, RateLimitFields, ResumeRequest,
};
pub use retry::{Backoff, Jitter, RetryPolicy, RetryPolicyFields};
pub use schedule::{
    Backfill, BackfillAnswer, Catchup, Covers, DstFold, DstGap, NewSchedule, Occurrence, Origin, Outcome,
    OverlapPolicy, PauseSchedule, ResumeSchedule, Schedule, SchedulePatch, TriggerSchedule, UpcomingRun,
};
pub use seconds::Seconds;
pub use settle::{Complete, Fail, Heartbeat, HeartbeatAnswer, Release};
pub use task::{LastError, Status, Task};
pub use worker::Worker;
