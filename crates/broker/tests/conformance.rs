//! The embedded broker keeps the contract of the port.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_broker::embedded::EmbeddedBroker;
use punctual_core::broker::Broker;
use punctual_testkit::broker::BrokerFactory;
use punctual_testkit::broker_conformance;

struct Embedded;

#[async_trait]
impl BrokerFactory for Embedded {
    async fn open(&self, capacity: usize) -> Arc<dyn Broker> {
        Arc::new(EmbeddedBroker::new(capacity))
    }
}

broker_conformance!(Embedded);
