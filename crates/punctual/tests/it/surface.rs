//! Everything around the tasks: health, metrics, the published contract, request ids, workers.

mod metrics;
mod openapi;
mod overload;
mod schema;
mod service;
