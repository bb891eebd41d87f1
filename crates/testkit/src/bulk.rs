//! The conformance suite of [`punctual_core::bulk::BulkOperations`]: each sentence of its contract
//! is a function here, of the same name.

use punctual_core::bulk::{BulkKind, BulkOperation, BulkProgress, BulkState};
use punctual_core::coordinator::{LEADER, LeaderLease};
use punctual_core::ids::{NodeId, OperationId, TaskId};
use punctual_core::store::{Cursor, Filter};

use crate::fixtures::{TENANT, at};
use crate::store::{StoreFactory, StoreFixture, all_of};

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! bulk_conformance {
    ($factory:expr) => {
        $crate::stamp! { bulk, $factory;
            an_operation_outlives_the_process,
            an_operation_belongs_to_its_tenant,
            operations_are_listed_newest_first,
            running_operations_are_found_oldest_first,
            an_operation_is_written_at_its_revision_only,
            only_the_leader_advances_an_operation,
            old_operations_are_pruned,
        }
    };
}

async fn begin(fixture: &StoreFixture<'_>, tenant: &str) -> BulkOperation {
    let filter = Filter {
        states: BulkKind::Cancel.states(),
        queue: Some("mail.*".into()),
        kind: Some("send".into()),
        metadata: [("team".to_owned(), "a".to_owned())].into(),
        created_before: Some(at(7)),
        ..all_of(tenant)
    };
    let operation = BulkOperation::begun(BulkKind::Cancel, filter, Some(3), at(1));
    fixture.database.insert_operation(operation.clone()).await.expect("an operation can be stored");
    operation
}

async fn read(fixture: &StoreFixture<'_>, operation: &BulkOperation) -> Option<BulkOperation> {
    fixture.database.operation(operation.tenant(), operation.id).await.expect("an operation can be read")
}

async fn write(fixture: &StoreFixture<'_>, operation: &BulkOperation) -> bool {
    fixture.database.write_operation(operation.clone()).await.expect("an operation can be written")
}

async fn end(fixture: &StoreFixture<'_>, operation: &BulkOperation, seconds: i64) {
    let ended = operation.clone().ended(BulkState::Cancelled, None, at(seconds)).expect("it runs");
    assert!(write(fixture, &ended).await);
}

/// As it was stored and as it was written since.
pub async fn an_operation_outlives_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let begun = begin(&fixture, TENANT).await;
    let fixture = fixture.reopen().await;
    assert_eq!(read(&fixture, &begun).await.as_ref(), Some(&begun));
    let next = Some(Cursor { execute_at: at(5), id: TaskId::new() });
    let advanced = begun.after_page(BulkProgress { done: 2, failed: 1, next }, at(2));
    assert!(write(&fixture, &advanced).await);
    let fixture = fixture.reopen().await;
    assert_eq!(read(&fixture, &advanced).await, Some(advanced));
}

/// Neither read nor listed by another.
pub async fn an_operation_belongs_to_its_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let begun = begin(&fixture, TENANT).await;
    assert!(fixture.database.operation("other", begun.id).await.unwrap().is_none());
    assert!(fixture.database.operation(TENANT, OperationId::new()).await.unwrap().is_none());
    assert!(fixture.database.list_operations("other", None, 10).await.unwrap().is_empty());
}

/// In pages of two, with one that has ended.
pub async fn operations_are_listed_newest_first(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut expected = Vec::new();
    for _ in 0..5 {
        expected.insert(0, begin(&fixture, TENANT).await.id);
        begin(&fixture, "other").await;
    }
    let ended = fixture.database.operation(TENANT, expected[2]).await.unwrap().unwrap();
    end(&fixture, &ended, 5).await;
    let mut listed: Vec<OperationId> = Vec::new();
    loop {
        let page = fixture.database.list_operations(TENANT, listed.last().copied(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page.iter().map(|operation| operation.id));
    }
    assert_eq!(listed, expected);
}

/// One of each tenant goes first, however many the other has; the first of all has ended.
pub async fn running_operations_are_found_oldest_first(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let ended = begin(&fixture, TENANT).await;
    let mut running = vec![begin(&fixture, TENANT).await, begin(&fixture, TENANT).await, begin(&fixture, TENANT).await];
    running.insert(1, begin(&fixture, "other").await);
    end(&fixture, &ended, 5).await;
    assert_eq!(fixture.database.running_operations(3).await.unwrap(), running[..3]);
}

/// The leader and a client both decide by the first revision: the second write is refused.
pub async fn an_operation_is_written_at_its_revision_only(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let begun = begin(&fixture, TENANT).await;
    let cancelled = begun.clone().ended(BulkState::Cancelled, None, at(2)).unwrap();
    let done = begun.after_page(BulkProgress { done: 1, failed: 0, next: None }, at(3));
    assert!(write(&fixture, &cancelled).await);
    assert!(!write(&fixture, &done).await);
    assert_eq!(read(&fixture, &done).await, Some(cancelled));
}

/// A node that led before, and one that never did.
pub async fn only_the_leader_advances_an_operation(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let begun = begin(&fixture, TENANT).await;
    let lead = async |node: u64| fixture.database.acquire(LEADER, NodeId::new(node), 60_000).await.unwrap().unwrap();
    let former = lead(1).await;
    fixture.database.release(&former).await.unwrap();
    let lease = lead(2).await;
    let advanced = begun.after_page(BulkProgress { done: 1, failed: 0, next: None }, at(3));
    let stranger = LeaderLease { holder: NodeId::new(3), ..lease.clone() };
    let advance = async |lease| fixture.database.advance_operation(lease, advanced.clone()).await.unwrap();
    assert!(!advance(&former).await);
    assert!(!advance(&stranger).await);
    assert!(advance(&lease).await);
    assert!(!advance(&lease).await, "its revision is past");
    assert_eq!(read(&fixture, &advanced).await, Some(advanced.clone()));
}

/// Those that ended before the instant; one that ended at it and one that runs stay.
pub async fn old_operations_are_pruned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [old, late, running] =
        [begin(&fixture, TENANT).await, begin(&fixture, TENANT).await, begin(&fixture, TENANT).await];
    end(&fixture, &old, 5).await;
    end(&fixture, &late, 6).await;
    assert_eq!(fixture.database.prune_operations(at(6), 10).await.unwrap(), 1);
    assert!(read(&fixture, &old).await.is_none());
    assert!(read(&fixture, &late).await.is_some() && read(&fixture, &running).await.is_some());
    assert_eq!(fixture.database.prune_operations(at(6), 10).await.unwrap(), 0);
}
