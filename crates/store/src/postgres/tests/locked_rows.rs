//! Writes to rows that a transaction has locked, or must not touch.

use punctual_core::ids::NodeId;
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{Inserted, Store};
use punctual_core::task::Hold;
use punctual_core::trail::Actor;
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_testkit::postgres::connect;

use super::super::claim::held_rows::{self, HeldRow};
use super::super::connection::{Address, Session};
use super::super::tid::Tid;
use super::Fixture;

/// The commit is on its way by then. It must not let a run begin whose row says otherwise.
#[tokio::test]
async fn a_row_that_changed_fails_the_transaction_of_its_claim() {
    let fixture = Fixture::open().await;
    let (task, other) = (fixture.insert(task()).await, fixture.insert(task()).await);
    let place = async |id: uuid::Uuid| -> Tid {
        let sql = "SELECT ctid FROM punctual.tasks WHERE id = $1";
        connect(&fixture.url).await.query_one(sql, &[&id]).await.unwrap().get(0)
    };
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Node };
    let hold = Hold {
        worker: "w".to_owned(),
        node: None,
        since: START,
        expires_at: START,
        deadline_at: START,
        lease_millis: 1,
    };
    let mut stale = task.position;
    stale.version += 1;
    let change = transition(&other.position, Event::Lease(hold.clone()), &by).unwrap();
    let stale = transition(&stale, Event::Lease(hold), &by).unwrap();
    let rows = [
        HeldRow { tid: place(other.id.uuid()).await, change: &change },
        HeldRow { tid: place(task.id.uuid()).await, change: &stale },
    ];
    let session = Session::open(&Address::parse(&fixture.url).unwrap(), &[]).await.unwrap();
    session.run("BEGIN").await.unwrap();
    let (written, _) = tokio::join!(biased; held_rows::write(&session, &rows), session.run("COMMIT"));
    assert!(written.is_err(), "it was written");
    assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE state <> 1").await, 0, "a row was taken");
    session.run("BEGIN").await.unwrap();
    held_rows::write(&session, &rows[..1]).await.unwrap();
    session.run("COMMIT").await.unwrap();
    assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE state <> 1").await, 1);
}

#[tokio::test]
async fn a_refused_dependency_leaves_the_other_tenants_row() {
    let fixture = Fixture::open().await;
    let parent = fixture.insert(task()).await;
    let row = "SELECT ctid::text, xmin::text, xmax::text, awaited::text FROM tasks";
    let before = fixture.sql(row).await;
    let child = task().tenant("other").depends_on(&[parent.id]).build();
    let refused = fixture.store.insert(vec![child]).await.unwrap().remove(0);
    assert!(matches!(refused, Inserted::UnknownDependency(id) if id == parent.id), "{refused:?}");
    assert_eq!(fixture.sql(row).await, before, "it was written to");
    let child = task().tenant(TENANT).depends_on(&[parent.id]).build();
    let stored = fixture.store.insert(vec![child]).await.unwrap().remove(0);
    assert!(matches!(stored, Inserted::Created(_)), "{stored:?}");
}
