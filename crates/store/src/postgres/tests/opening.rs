//! The errors for a database that cannot be used.

use std::sync::Arc;

use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_testkit::fixtures::START;
use punctual_testkit::postgres::Postgres;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::super::{ConnectError, Options, PostgresStore};
use super::{Fixture, Migrator};
use crate::migrations::postgres::STEPS;

async fn refused(url: &str) -> ConnectError {
    let clock = Arc::new(ManualClock::new(START));
    let opened = PostgresStore::connect(url, clock, NodeId::new(7), Options::default()).await;
    opened.err().expect("it cannot be opened")
}

#[tokio::test]
async fn each_error_names_its_cause() {
    let mut server = Postgres::start().await;
    let port = server.port();
    let fault = refused(&server.url("nowhere")).await;
    assert_eq!(
        fault.to_string(),
        format!("PostgreSQL at 127.0.0.1:{port}/nowhere has no such database; create it first")
    );
    let fault = refused(&format!("postgres://nobody:secret@127.0.0.1:{port}/postgres")).await;
    assert!(matches!(fault, ConnectError::Authentication { .. }), "{fault}");
    assert!(!fault.to_string().contains("secret"), "{fault}");
    let fault = refused(&server.create_database().await).await;
    let known = STEPS.len();
    assert_eq!(
        fault.to_string(),
        format!("the database has schema version 0, but this binary needs version {known}: run `punctual migrate up`")
    );
    server.kill().await;
    let fault = refused(&server.url("postgres")).await;
    assert!(fault.to_string().starts_with(&format!("PostgreSQL at 127.0.0.1:{port}/postgres cannot be reached: ")));
    let fault = refused("postgres://[").await;
    assert!(matches!(fault, ConnectError::Url(_)), "{fault}");
}

#[tokio::test]
async fn a_missing_password_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asking = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        client.read_buf(&mut Vec::with_capacity(1_024)).await.unwrap();
        client.write_all(b"R\0\0\0\x08\0\0\0\x03").await.unwrap();
        client
    });
    let fault = refused(&format!("postgres://app@{address}/d?sslmode=disable")).await.to_string();
    let reason = "refuses the user or its password: it asks for a password, and the address has none";
    assert_eq!(fault, format!("PostgreSQL at {address}/d {reason}"));
    asking.await.unwrap();
}

#[tokio::test]
async fn a_database_of_another_version_is_refused() {
    let fixture = Fixture::open().await;
    fixture.sql("INSERT INTO schema_migrations VALUES (9999, 'of the future', '', 0)").await;
    let fault = refused(&fixture.url).await.to_string();
    let known = STEPS.len();
    let expected = format!(
        "the database has schema version 9999, but this binary knows versions up to {known}: use a newer binary"
    );
    assert!(fault.ends_with(&expected), "{fault}");
    fixture.sql("DELETE FROM schema_migrations WHERE version = 9999").await;
    Migrator::connect(&fixture.url).await.unwrap().down(1).await.unwrap();
    assert!(matches!(refused(&fixture.url).await, ConnectError::Older { found: 1, .. }));
}

#[tokio::test]
async fn every_session_has_its_limits() {
    let fixture = Fixture::open().await;
    super::super::PostgresStore::check(&fixture.store).await.unwrap();
    let shown = async |name: &str| {
        let sql = format!("SELECT current_setting('{name}')");
        fixture.store.reads().call(async |session| session.show(&sql).await).await.unwrap()
    };
    assert_eq!(shown("statement_timeout").await, "10s");
    assert_eq!(shown("lock_timeout").await, "5s");
    assert_eq!(shown("idle_in_transaction_session_timeout").await, "5s");
    assert_eq!(shown("synchronous_commit").await, "on");
    assert_eq!(shown("application_name").await, "punctual");
    assert_eq!(shown("default_transaction_isolation").await, "read committed");
    assert_eq!(shown("search_path").await, "punctual");
}
