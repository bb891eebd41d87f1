//! Tests of the test tools: the PostgreSQL servers and the proxy.

mod it {
    mod postgres;
    mod proxy;
}
