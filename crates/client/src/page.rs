//! A page of a listing.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::api_key::ApiKey;
use crate::breaker::Breaker;
use crate::cluster::{Node, Partition};
use crate::history::{Run, TaskEvent};
use crate::operation::Operation;
use crate::queue::Queue;
use crate::schedule::{Occurrence, Schedule, UpcomingRun};
use crate::task::Task;
use crate::tenant::Tenant;
use crate::webhook_secret::WebhookSecret;
use crate::worker::Worker;

/// A page of a list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// The `cursor` of the next page; `null` at the end. A short page may still have a next one.
    pub next_cursor: Option<String>,
}

/// A page of tasks.
pub type TaskPage = Page<Task>;
/// A page of attempts.
pub type RunPage = Page<Run>;
/// A page of steps.
pub type EventPage = Page<TaskEvent>;
/// A page of pull workers.
pub type WorkerPage = Page<Worker>;
/// A page of nodes.
pub type NodePage = Page<Node>;
/// A page of partitions.
pub type PartitionPage = Page<Partition>;
/// A page of open breakers.
pub type BreakerPage = Page<Breaker>;
/// A page of tenants.
pub type TenantPage = Page<Tenant>;
/// A page of API keys.
pub type ApiKeyPage = Page<ApiKey>;
/// A page of queues.
pub type QueuePage = Page<Queue>;
/// A page of bulk operations.
pub type OperationPage = Page<Operation>;
/// A page of schedules.
pub type SchedulePage = Page<Schedule>;
/// A page of occurrences of a schedule.
pub type OccurrencePage = Page<Occurrence>;
/// A page of webhook secrets.
pub type WebhookSecretPage = Page<WebhookSecret>;
/// The next instants of a schedule.
pub type UpcomingRunPage = Page<UpcomingRun>;

/// By hand, because the derived one would repeat the whole item in each page instead of referring
/// to it.
impl<T: ToSchema> PartialSchema for Page<T> {
    fn schema() -> RefOr<Schema> {
        let cursor = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
            .description(Some("The `cursor` of the next page; `null` at the end"));
        ObjectBuilder::new()
            .description(Some("A page of a list."))
            .property("items", ArrayBuilder::new().items(Ref::from_schema_name(T::name())))
            .required("items")
            .property("next_cursor", cursor)
            .required("next_cursor")
            .into()
    }
}

impl<T: ToSchema> ToSchema for Page<T> {
    fn name() -> Cow<'static, str> {
        Cow::Owned(format!("{}Page", T::name()))
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((T::name().into_owned(), T::schema()));
        T::schemas(schemas);
    }
}
