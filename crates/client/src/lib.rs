//! The wire types of the API: requests and answers as JSON.
//!
//! The server reads and writes these very types, so they cannot drift from it. SDKs, the benchmark
//! and the tests use them too. They know shapes, not rules: the server checks values and reports
//! all faults of a request at once. Instants, ids and carried JSON are types of `punctual-core`.
//!
//! Two features make it an SDK for applications and their workers: `http` is a client of a server,
//! and `ledger` records in a worker's own PostgreSQL transaction that its task is done.
//!
//! Invariant: requests refuse unknown fields and duplicate keys; answers may get new fields.

pub mod api_key;
pub mod batch;
pub mod breaker;
pub mod callback;
pub mod cluster;
pub mod dependency;
pub mod explanation;
pub mod forecast;
pub mod form;
pub mod health;
pub mod history;
#[cfg(feature = "http")]
pub mod http;
pub mod lease;
#[cfg(feature = "ledger")]
pub mod ledger;
pub mod new_task;
mod objects;
pub mod operation;
pub mod page;
pub mod priority;
pub mod problem;
pub mod queue;
pub mod retry;
pub mod schedule;
pub mod seconds;
pub mod settle;
pub mod task;
pub mod tenant;
mod unique;
pub mod upcoming;
pub mod webhook_secret;
mod words;
pub mod worker;

pub use api_key::{AccessRole, ApiKey, CreatedApiKey, NewApiKey, RotateApiKey, WhoAmI};
pub use batch::{BatchAnswer, BatchItem, NewBatch};
pub use breaker::{Breaker, BreakerState, ResetBreaker};
pub use callback::{CallbackBody, Envelope};
pub use cluster::{Node, Partition};
pub use dependency::{Dependency, OnDependencyFailure};
pub use explanation::{Explanation, Reason, TaskInTheWay};
pub use forecast::{Forecast, ForecastMinute};
pub use health::{Check, Checks, Health, Readiness, ReadinessStatus};
pub use history::{ResultDropped, Run, RunEnded, RunError, TaskEvent};
pub use lease::{
    DependencyResult, Lease, LeaseAnswer, LeaseRequest, SettleAnswer, SettleItem, SettleOutcome, SettleRequest, Settled,
};
pub use new_task::{NewTask, PurgeTask, Redrive, RunTask, TaskPatch};
pub use objects::RequestBody;
pub use operation::{BulkRedrive, BulkRequest, DryRun, Operation, OperationKind, OperationState, TaskFilter};
pub use page::{
    ApiKeyPage, BreakerPage, EventPage, NodePage, OccurrencePage, OperationPage, Page, PartitionPage, QueuePage,
    RunPage, SchedulePage, TaskPage, TenantPage, UpcomingRunPage, WebhookSecretPage, WorkerPage,
};
pub use priority::Priority;
pub use problem::{FieldError, Problem};
pub use queue::{
    OnDeadLetter, Pause, PauseRequest, Queue, QueueCounts, QueueSettings, RateLimit, RateLimitFields, ResumeRequest,
};
pub use retry::{Backoff, Jitter, RetryPolicy, RetryPolicyFields};
pub use schedule::{
    Backfill, BackfillAnswer, Catchup, Covers, DayOverflow, DstFold, DstGap, NewSchedule, Occurrence, Origin, Outcome,
    OverlapPolicy, PauseSchedule, ResumeSchedule, Schedule, ScheduleByName, SchedulePatch, ScheduleToMake,
    ScheduledTask, ScheduledTaskPatch, TriggerSchedule, UpcomingRun,
};
pub use seconds::Seconds;
pub use settle::{Complete, Fail, Heartbeat, HeartbeatAnswer, Release};
pub use task::{LastError, Status, Task};
pub use tenant::{NewTenant, Tenant, TenantLimits, TenantLimitsPatch, TenantPatch};
pub use upcoming::{Upcoming, UpcomingItem};
pub use webhook_secret::{MadeWebhookSecret, NewWebhookSecret, WebhookSecret};
pub use worker::{Worker, WorkerStatus};
