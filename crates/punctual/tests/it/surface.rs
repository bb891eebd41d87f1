//! Everything around the tasks: health, metrics, the published contract, request ids, workers.

mod crowd;
mod http2;
mod metrics;
mod openapi;
mod overload;
mod schema;
mod service;
mod sites;
