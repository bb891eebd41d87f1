//! The broker in memory keeps the contract of the port.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_broker::memory::MemoryBroker;
use punctual_core::broker::Broker;
use punctual_testkit::broker::BrokerFactory;
use punctual_testkit::broker_conformance;

struct Embedded;

#[async_trait]
impl BrokerFactory for Embedded {
    async fn open(&self, capacity: usize) -> Arc<dyn Broker> {
        Arc::new(MemoryBroker::new(capacity))
    }
}

broker_conformance!(Embedded);
