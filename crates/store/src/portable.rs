//! Calls that are written once for both databases.
//!
//! The ports off the hot path differ only in some statements. Their calls are functions over
//! a [`Connection`]: the stores' ports call them, inside a job (SQLite) or on a shared connection
//! (PostgreSQL). A statement of [`PortableSql`] has the same parameters and the same columns in
//! both databases. Its text is in `sql/portable` if one text serves both, else once for each.
//!
//! Calls that need locks, batches or the writer's memory are in each store instead.

pub(crate) mod breakers;
pub(crate) mod bulk;
pub(crate) mod forecast;
pub(crate) mod leases;
pub(crate) mod lists;
pub(crate) mod obstacles;
pub(crate) mod partitions;
pub(crate) mod queues;
pub(crate) mod registry;
pub(crate) mod schedules;
pub(crate) mod tenants;
pub(crate) mod upkeep;
pub(crate) mod webhook_secrets;

use punctual_core::time::Timestamp;
use rusqlite::types::FromSql as FromSqlite;
use tokio_postgres::types::{FromSql as FromPostgres, ToSql as ToPostgres};

use crate::columns::Unreadable;
use crate::{postgres, sqlite};

/// A value that both databases take.
pub(crate) trait Parameter: rusqlite::ToSql + ToPostgres + Sync {}

impl<T: rusqlite::ToSql + ToPostgres + Sync> Parameter for T {}

/// A value that both databases return.
pub(crate) trait Column: FromSqlite + for<'a> FromPostgres<'a> {}

impl<T: FromSqlite + for<'a> FromPostgres<'a>> Column for T {}

/// A connection to either database.
pub(crate) trait Connection {
    type Row: Row;
    type Fault: PortableFault;

    /// Returns the rows of a statement.
    fn query(
        &mut self,
        sql: PortableSql,
        parameters: &[&dyn Parameter],
    ) -> impl Future<Output = Result<Vec<Self::Row>, Self::Fault>> + Send;

    /// Returns how many rows a statement changed.
    fn execute(
        &mut self,
        sql: PortableSql,
        parameters: &[&dyn Parameter],
    ) -> impl Future<Output = Result<u64, Self::Fault>> + Send;
}

/// A row of either database.
pub(crate) trait Row {
    /// The column at this index.
    fn get<T: Column>(&self, index: usize) -> Result<T, Corrupt>;

    /// The instant at this index.
    fn instant(&self, index: usize) -> Result<Timestamp, Corrupt> {
        self.get(index).map(Timestamp::from_millis)
    }

    /// The instant at this index, or none for NULL.
    fn instant_if_any(&self, index: usize) -> Result<Option<Timestamp>, Corrupt> {
        self.get::<Option<i64>>(index).map(|at| at.map(Timestamp::from_millis))
    }

    /// The count or version at this index.
    fn number(&self, index: usize) -> Result<u64, Corrupt> {
        self.get(index).map(i64::cast_unsigned)
    }
}

/// What a connection fails with.
pub(crate) trait PortableFault: From<Corrupt> {
    /// Whether a row with the same unique columns exists already.
    fn is_duplicate(&self) -> bool;
}

/// Which stored value cannot be read, and why.
#[derive(Debug)]
pub(crate) struct Corrupt(pub String);

impl Corrupt {
    /// An unreadable column of a `what`.
    pub(crate) fn column(what: &str, Unreadable(column): Unreadable) -> Self {
        Self(format!("the {column} of a {what} cannot be read"))
    }
}

/// Runs a portable call on SQLite, whose connections never wait.
pub(crate) fn ready<T>(call: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(call).poll(&mut context) {
        std::task::Poll::Ready(result) => result,
        std::task::Poll::Pending => unreachable!("invariant: a connection to SQLite answers at once"),
    }
}

/// Makes the enum of the statements that both databases have.
macro_rules! portable_statements {
    ($($name:ident,)+) => {
        /// The name of a statement of both databases.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum PortableSql {
            $($name,)+
        }

        impl From<PortableSql> for sqlite::Sql {
            fn from(sql: PortableSql) -> Self {
                match sql {
                    $(PortableSql::$name => Self::$name,)+
                }
            }
        }

        impl From<PortableSql> for postgres::Sql {
            fn from(sql: PortableSql) -> Self {
                match sql {
                    $(PortableSql::$name => Self::$name,)+
                }
            }
        }
    };
}

portable_statements! {
    BreakerChange,
    BreakerClose,
    BreakerCountsPrune,
    BreakerCountsPut,
    BreakerCountsSum,
    BreakerGet,
    BreakerList,
    BreakerOpen,
    BucketGet,
    ChildBlockers,
    EdgeFirst,
    ForecastList,
    ForecastPrune,
    ForecastSchedules,
    ForecastSchedulesCount,
    IdempotencyOwner,
    KeyEnd,
    KeyFirstEnded,
    KeyGet,
    KeyInsert,
    KeyInsertFirst,
    KeyList,
    KeyOrphansRemove,
    KeyRevoke,
    KeySucceed,
    KeyUsed,
    LanesBefore,
    LeaseAcquire,
    LeaseGet,
    LeaseRelease,
    LeaseRenew,
    LiveCounts,
    NodeBury,
    NodeList,
    NodeSaw,
    NoncePrune,
    NonceTake,
    OccurrenceCovering,
    OccurrenceCut,
    OccurrenceList,
    OccurrencePrune,
    OperationAdvance,
    OperationGet,
    OperationInsert,
    OperationList,
    OperationPrune,
    OperationRunning,
    OperationWrite,
    PartitionList,
    PartitionLock,
    PartitionMake,
    PartitionWrite,
    PlaceHeld,
    QueueChanged,
    QueueCounts,
    QueueGet,
    QueueLanes,
    QueueNames,
    QueuePut,
    QueueUsed,
    ScheduleDue,
    ScheduleGet,
    ScheduleInsert,
    ScheduleList,
    ScheduleNamed,
    ScheduleNextCheck,
    ScheduleReplace,
    TaskLanePlace,
    TaskStandings,
    TenantGet,
    TenantInsert,
    TenantList,
    TenantRemove,
    TenantWrite,
    TurnBefore,
    TurnPlace,
    WebhookSecretDelete,
    WebhookSecretInsert,
    WebhookSecretKeys,
    WebhookSecretList,
    WorkerForget,
    WorkerHolds,
    WorkerList,
    WorkerSaw,
}
