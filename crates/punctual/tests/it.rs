//! The product as its users meet it: the real program, spoken to over HTTP and by signals.

mod it {
    mod backlog;
    mod batch;
    mod bench;
    mod client;
    mod clock;
    mod cluster;
    mod config;
    mod documents;
    mod durability;
    mod enqueue;
    mod idempotency;
    mod layering;
    mod leases;
    mod ledger;
    mod log;
    mod openapi;
    mod operations;
    mod partitions;
    mod readme;
    mod replica;
    mod retention;
    mod sql_document;
    mod surface;
    mod tasks;
    mod tls;
    mod validation;
    mod webhooks;
    mod world;
}
