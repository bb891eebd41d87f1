//! One handle for every port that a database serves.
//!
//! Who opens a store holds it as an `Arc<dyn Database>` and hands each service the narrow port it
//! needs: the compiler upcasts. A type that serves all ports is a `Database` by itself.

use crate::breakers::Breakers;
use crate::coordinator::Coordinator;
use crate::insight::Insight;
use crate::queues::Queues;
use crate::schedules::Schedules;
use crate::store::Store;
use crate::upkeep::Upkeep;
use crate::workers::Registry;

/// Every port of a store (see the module).
pub trait Database: Store + Queues + Schedules + Breakers + Registry + Coordinator + Insight + Upkeep {}

impl<T: Store + Queues + Schedules + Breakers + Registry + Coordinator + Insight + Upkeep> Database for T {}
