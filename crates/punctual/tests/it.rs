//! The product as its users meet it: the real program, spoken to over HTTP and by signals.

mod it {
    mod backlog;
    mod batch;
    mod bench;
    mod breakers;
    mod bulk;
    mod client;
    mod clock;
    mod cluster;
    mod config;
    mod connections;
    mod damage;
    mod dependencies;
    mod documents;
    mod durability;
    mod enqueue;
    mod explain;
    mod fairness;
    mod forecast;
    mod guides;
    mod idempotency;
    mod layering;
    mod leases;
    mod ledger;
    mod log;
    mod naming;
    mod openapi;
    mod operations;
    mod order;
    mod partitions;
    mod queues;
    mod replica;
    mod retention;
    mod risks;
    mod roles;
    mod schedules;
    mod slots;
    mod sql_document;
    mod surface;
    mod tasks;
    mod tls;
    mod validation;
    mod webhooks;
    mod workers;
    mod world;
}
