//! The ledger: how it is pruned, and what a migration down refuses.

use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Upkeep};

use super::{Fixture, Migrator};

#[tokio::test]
async fn expired_entries_are_removed_a_few_at_a_time() {
    let fixture = Fixture::open().await;
    fixture.sql("INSERT INTO ledger SELECT 'acme', 'k' || n, 0, n FROM generate_series(1, 10) AS n").await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        let pruned = fixture.store.prune(Prunable::Ledger, Timestamp::from_millis(7), 3).await.unwrap();
        removed.push((pruned.removed, pruned.more));
    }
    assert_eq!(removed, [(3, true), (3, true), (1, false), (0, false)]);
    assert_eq!(
        fixture.sql("SELECT min(expires_at), count(*) FROM ledger").await[0],
        [Some("8".into()), Some("3".into())]
    );
}

#[tokio::test]
async fn migrating_down_loses_no_valid_entry() {
    let fixture = Fixture::open().await;
    let database = Migrator::connect(&fixture.url).await.unwrap();
    fixture.sql("INSERT INTO ledger VALUES ('acme', 'k', 0, 4102444800000)").await;
    let error = database.down(4).await.unwrap_err().to_string();
    assert!(error.contains("1 entries of punctual.ledger"), "{error}");
    fixture.sql("UPDATE ledger SET expires_at = 1").await;
    assert_eq!(database.down(4).await.unwrap(), [5]);
}
