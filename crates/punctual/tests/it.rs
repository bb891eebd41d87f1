//! The product as its users meet it: the real program, spoken to over HTTP and by signals.

mod it {
    mod batch;
    mod config;
    mod durability;
    mod idempotency;
    mod layering;
    mod leases;
    mod readme;
    mod surface;
    mod tasks;
    mod validation;
    mod webhooks;
    mod world;
}
