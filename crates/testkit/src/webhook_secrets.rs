//! The conformance suite of [`punctual_core::webhook_secrets::WebhookSecrets`]: each sentence of
//! its contract is a function here, of the same name.

use std::sync::Arc;

use punctual_core::ids::WebhookSecretId;
use punctual_core::webhook_secrets::{LIVE_MAX, LiveSecret, SecretCreation, SigningSecret};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixtures::{TENANT, at};
use crate::store::{StoreFactory, StoreFixture};

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! webhook_secrets_conformance {
    ($factory:expr) => {
        $crate::stamp! { webhook_secrets, $factory;
            a_secret_outlives_the_process,
            no_more_than_two_secrets_live,
            a_secret_is_stored_once,
            secrets_are_listed_oldest_first,
            a_deleted_secret_is_gone,
            secrets_of_tenants_are_apart,
            the_secrets_of_many_tenants_are_one_read,
        }
    };
}

/// A secret of its own kind for each number.
fn secret(number: u8) -> SigningSecret {
    SigningSecret::from_bytes(vec![number; 32])
}

fn described(tenant: &str, number: u8) -> LiveSecret {
    LiveSecret {
        id: WebhookSecretId::new(),
        tenant: tenant.to_owned(),
        created_at: at(i64::from(number)),
        last_digits: secret(number).last_digits(),
    }
}

/// Makes a secret; its number says when.
async fn create(fixture: &StoreFixture<'_>, tenant: &str, number: u8) -> (LiveSecret, SecretCreation) {
    let live = described(tenant, number);
    let created = fixture.database.create_secret(live.clone(), secret(number)).await;
    (live, created.expect("a secret can be made"))
}

/// The same, for a tenant with room.
async fn created(fixture: &StoreFixture<'_>, tenant: &str, number: u8) -> LiveSecret {
    let (live, creation) = create(fixture, tenant, number).await;
    assert_eq!(creation, SecretCreation::Created);
    live
}

async fn list(fixture: &StoreFixture<'_>, tenant: &str) -> Vec<LiveSecret> {
    fixture.database.list_secrets(tenant).await.expect("secrets can be listed")
}

async fn delete(fixture: &StoreFixture<'_>, tenant: &str, live: &LiveSecret) -> bool {
    fixture.database.delete_secret(tenant, live.id).await.expect("a secret can be deleted")
}

/// The secrets that a tenant's webhooks are signed with.
async fn keys(fixture: &StoreFixture<'_>, tenant: &str) -> Vec<SigningSecret> {
    let keys = fixture.database.signing_secrets(vec![tenant.to_owned()]).await;
    keys.expect("secrets can be read").remove(tenant).unwrap_or_default()
}

/// The secret and all that describes it.
pub async fn a_secret_outlives_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let live = created(&fixture, TENANT, 1).await;
    let fixture = fixture.reopen().await;
    assert_eq!(list(&fixture, TENANT).await, [live]);
    assert_eq!(keys(&fixture, TENANT).await, [secret(1)]);
}

/// One after the other, and sixteen at once.
pub async fn no_more_than_two_secrets_live(factory: &dyn StoreFactory) {
    const AT_ONCE: u8 = 16;
    let fixture = StoreFixture::open(factory).await;
    let lives = [created(&fixture, TENANT, 1).await, created(&fixture, TENANT, 2).await];
    assert_eq!(create(&fixture, TENANT, 3).await.1, SecretCreation::Full);
    assert_eq!(list(&fixture, TENANT).await, lives);

    let together = Arc::new(Barrier::new(usize::from(AT_ONCE)));
    let mut makers = JoinSet::new();
    for number in 1..=AT_ONCE {
        let (database, together) = (fixture.database.clone(), Arc::clone(&together));
        makers.spawn(async move {
            together.wait().await;
            database.create_secret(described("crowd", number), secret(number)).await.expect("a secret can be made")
        });
    }
    let creations = makers.join_all().await;
    let made = creations.iter().filter(|creation| **creation == SecretCreation::Created).count();
    assert_eq!(made, LIVE_MAX, "{creations:?}");
    assert_eq!(keys(&fixture, "crowd").await.len(), LIVE_MAX);
}

/// The sender of a secret of its own may not have got the answer.
pub async fn a_secret_is_stored_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = created(&fixture, TENANT, 1).await;
    assert_eq!(create(&fixture, TENANT, 1).await.1, SecretCreation::Known(first.clone()));
    assert_eq!(keys(&fixture, TENANT).await, [secret(1)]);
    created(&fixture, TENANT, 2).await;
    assert_eq!(create(&fixture, TENANT, 1).await.1, SecretCreation::Known(first));
    assert_eq!(keys(&fixture, TENANT).await, [secret(1), secret(2)]);
}

/// By the time they were made, whatever the order of the writes.
pub async fn secrets_are_listed_oldest_first(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(list(&fixture, TENANT).await, []);
    let newer = created(&fixture, TENANT, 9).await;
    let older = created(&fixture, TENANT, 4).await;
    assert_eq!(list(&fixture, TENANT).await, [older, newer]);
    assert_eq!(keys(&fixture, TENANT).await, [secret(4), secret(9)]);
}

/// A rotation: the second is made, the first is deleted, and a third has room.
pub async fn a_deleted_secret_is_gone(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = created(&fixture, TENANT, 1).await;
    let second = created(&fixture, TENANT, 2).await;
    assert!(delete(&fixture, TENANT, &first).await);
    assert_eq!((list(&fixture, TENANT).await, keys(&fixture, TENANT).await), (vec![second.clone()], vec![secret(2)]));
    assert!(!delete(&fixture, TENANT, &first).await, "it is gone already");
    let third = created(&fixture, TENANT, 3).await;
    assert_eq!(list(&fixture, TENANT).await, [second, third]);
}

/// With an id of another tenant nothing can be done.
pub async fn secrets_of_tenants_are_apart(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let own = created(&fixture, TENANT, 1).await;
    let other = created(&fixture, "other", 1).await;
    created(&fixture, "other", 2).await;
    assert!(!delete(&fixture, TENANT, &other).await);
    assert_eq!(list(&fixture, TENANT).await, [own]);
    assert_eq!(keys(&fixture, "other").await, [secret(1), secret(2)]);
    created(&fixture, TENANT, 3).await;
}

/// A tenant may be asked for twice.
pub async fn the_secrets_of_many_tenants_are_one_read(factory: &dyn StoreFactory) {
    const TENANTS: u8 = 200;
    let fixture = StoreFixture::open(factory).await;
    let name = |number: u8| format!("tenant-{number}");
    for number in 0..TENANTS {
        created(&fixture, &name(number), number).await;
    }
    created(&fixture, &name(7), 255).await;
    created(&fixture, "not asked for", 1).await;
    let asked = (0..TENANTS).map(name).chain(["nobody".to_owned(), name(7)]).collect();
    let read = fixture.database.signing_secrets(asked).await.expect("secrets can be read");
    assert_eq!(read.len(), usize::from(TENANTS), "{:?}", read.keys());
    for number in 0..TENANTS {
        let more = if number == 7 { vec![secret(255)] } else { Vec::new() };
        assert_eq!(read[&name(number)], [vec![secret(number)], more].concat(), "{number}");
    }
    assert!(fixture.database.signing_secrets(Vec::new()).await.expect("nobody's secrets can be read").is_empty());
}
