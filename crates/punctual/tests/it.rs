//! The product as its users meet it: the real program, spoken to over HTTP and by signals.

mod it {
    mod batch;
    mod bench;
    mod cluster;
    mod config;
    mod documents;
    mod durability;
    mod idempotency;
    mod layering;
    mod leases;
    mod log;
    mod openapi;
    mod readme;
    mod surface;
    mod tasks;
    mod validation;
    mod webhooks;
    mod world;
}
