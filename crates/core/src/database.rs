//! One handle for every port that a database serves.
//!
//! The binary opens a store as an `Arc<dyn Database>`. It wraps the tasks and the schedules, whose
//! writes notify the loops of the node, and passes on the other ports as [`SidePorts`]. So no
//! service can write a task past the wrapper. The compiler upcasts a handle to the narrow port that
//! a service needs.

use crate::breakers::Breakers;
use crate::bulk::BulkOperations;
use crate::coordinator::Coordinator;
use crate::insight::Insight;
use crate::queues::Queues;
use crate::registry::Registry;
use crate::schedules::Schedules;
use crate::store::Store;
use crate::tenants::Tenants;
use crate::upkeep::Upkeep;
use crate::webhook_secrets::WebhookSecrets;

/// The ports of a store whose writes notify no loop: all but [`Store`] and [`Schedules`].
pub trait SidePorts:
    Queues + Breakers + BulkOperations + Registry + Coordinator + Insight + Upkeep + Tenants + WebhookSecrets
{
}

impl<T> SidePorts for T where
    T: Queues + Breakers + BulkOperations + Registry + Coordinator + Insight + Upkeep + Tenants + WebhookSecrets
{
}

/// Every port of a store (see the module).
pub trait Database: Store + Schedules + SidePorts {}

impl<T: Store + Schedules + SidePorts> Database for T {}
