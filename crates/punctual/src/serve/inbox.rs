//! What was submitted by SQL becomes tasks, by the rules of everything that is submitted over HTTP.

use std::sync::Arc;

use punctual_api::ApiConfig;
use punctual_api::metrics::Metrics;
use punctual_api::submit::Submitter;
use punctual_core::ids::NodeId;
use punctual_store::postgres::{Enqueued, PostgresStore};
use tokio_util::sync::CancellationToken;

/// Takes what is in the store's inbox, until told to stop.
pub async fn receive(store: PostgresStore, config: ApiConfig, node: NodeId, metrics: Metrics, stop: CancellationToken) {
    let payload_bytes = config.payload_bytes;
    // Its size was judged when it was submitted: a limit that was lowered since must not take it away.
    let config = ApiConfig { payload_bytes: usize::MAX, ..config };
    let judge = move |enqueued: &Enqueued| {
        let judged = Submitter::new(&config, &enqueued.tenant, enqueued.created_at, node)
            .check_enqueued(enqueued.id, &enqueued.submission);
        metrics.enqueued(judged.is_ok());
        judged
    };
    store.receive(Arc::new(judge), payload_bytes, stop.cancelled()).await;
}
