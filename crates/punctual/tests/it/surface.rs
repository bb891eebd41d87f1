//! Everything around the tasks: health, metrics, the published contract, request ids, workers.

mod crowd;
mod encoding;
mod http2;
mod metrics;
mod openapi;
mod overload;
pub mod schema;
mod service;
mod sites;
