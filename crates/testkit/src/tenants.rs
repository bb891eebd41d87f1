//! The conformance suite of [`punctual_core::tenants::Tenants`]: each sentence of its contract is a
//! function here, of the same name.

use std::sync::Arc;

use punctual_core::ids::KeyId;
use punctual_core::tenants::{
    AccessRole, ApiKeyRecord, KEYS_MAX, KeyScope, KeyStored, SecretDigest, TenantLimits, TenantRecord, TenantRemoved,
};
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Pruned};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixtures::{TENANT, at, task};
use crate::schedules::made;
use crate::store::{StoreFactory, StoreFixture, complete};

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! tenants_conformance {
    ($factory:expr) => {
        $crate::stamp! { tenants, $factory;
            a_tenant_outlives_the_process,
            a_tenant_is_created_once,
            tenants_are_listed_by_name,
            a_tenant_is_written_at_its_version_only,
            a_tenant_in_use_is_kept,
            a_removed_tenant_takes_its_keys_along,
            a_key_outlives_the_process,
            a_key_needs_its_tenant,
            the_keys_of_a_tenant_are_bounded,
            keys_are_listed_by_age,
            a_key_is_revoked_for_good,
            a_rotated_key_ends_later,
            the_last_use_of_a_key_only_grows,
            the_first_admin_key_is_made_once,
            a_nonce_is_taken_once,
            old_nonces_are_pruned,
        }
    };
}

fn key(tenant: &str) -> ApiKeyRecord {
    ApiKeyRecord {
        id: KeyId::new(),
        tenant: tenant.to_owned(),
        name: "Web shop (größer)".to_owned(),
        role: AccessRole::Submitter,
        scope: KeyScope { types: vec!["mail.*".into(), "x".into()], queues: vec!["q".into()], payloads: false },
        digest: SecretDigest::new([0xab; 32]),
        created_at: at(1),
        expires_at: Some(at(60_000)),
        last_used_at: None,
    }
}

fn admin_key(tenant: &str) -> ApiKeyRecord {
    ApiKeyRecord { role: AccessRole::Admin, scope: KeyScope::default(), expires_at: None, ..key(tenant) }
}

async fn create(fixture: &StoreFixture<'_>, name: &str) -> TenantRecord {
    let tenant = TenantRecord::new(name, at(1));
    assert!(fixture.database.create_tenant(tenant.clone()).await.unwrap());
    tenant
}

async fn tenant(fixture: &StoreFixture<'_>, name: &str) -> Option<TenantRecord> {
    fixture.database.tenant(name).await.expect("a tenant can be read")
}

async fn store(fixture: &StoreFixture<'_>, key: &ApiKeyRecord) {
    assert_eq!(fixture.database.create_key(key.clone()).await.unwrap(), KeyStored::Done);
}

async fn read(fixture: &StoreFixture<'_>, id: KeyId) -> Option<ApiKeyRecord> {
    fixture.database.key(id).await.expect("a key can be read")
}

async fn keys(fixture: &StoreFixture<'_>, tenant: &str) -> Vec<ApiKeyRecord> {
    fixture.database.keys(tenant, None, 1_000).await.expect("keys can be listed")
}

/// As it was created and as it was written since.
pub async fn a_tenant_outlives_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let limits = TenantLimits {
        submissions_per_second: Some(2.5),
        burst: Some(7),
        waiting_tasks: Some(u64::from(u32::MAX) + 1),
        min_schedule_millis: Some(60_000),
        ..TenantLimits::default()
    };
    let acme = TenantRecord { weight: 3, limits, ..TenantRecord::new(TENANT, at(1)) };
    assert!(fixture.database.create_tenant(acme.clone()).await.unwrap());
    let fixture = fixture.reopen().await;
    assert_eq!(tenant(&fixture, TENANT).await.as_ref(), Some(&acme));
    let changed = TenantRecord { weight: 1, limits: TenantLimits::default(), version: 2, updated_at: at(2), ..acme };
    assert!(fixture.database.write_tenant(changed.clone()).await.unwrap());
    let fixture = fixture.reopen().await;
    assert_eq!(tenant(&fixture, TENANT).await, Some(changed));
    assert_eq!(tenant(&fixture, "other").await, None);
}

/// Of eight that come at the same time, one creates it.
pub async fn a_tenant_is_created_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let acme = create(&fixture, TENANT).await;
    let other = TenantRecord { weight: 9, ..acme.clone() };
    assert!(!fixture.database.create_tenant(other).await.unwrap());
    assert_eq!(tenant(&fixture, TENANT).await, Some(acme));
    let mut tries = JoinSet::new();
    let barrier = Arc::new(Barrier::new(8));
    for _ in 0..8 {
        let (database, barrier) = (Arc::clone(&fixture.database), Arc::clone(&barrier));
        tries.spawn(async move {
            barrier.wait().await;
            database.create_tenant(TenantRecord::new("raced", at(1))).await.unwrap()
        });
    }
    assert_eq!(tries.join_all().await.into_iter().filter(|created| *created).count(), 1);
}

/// In pages of two.
pub async fn tenants_are_listed_by_name(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for name in ["b", "a-1", "Z", "a", "a.b"] {
        create(&fixture, name).await;
    }
    let mut listed: Vec<String> = Vec::new();
    loop {
        let page = fixture.database.tenants(listed.last().cloned(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        listed.extend(page.into_iter().map(|tenant| tenant.name));
    }
    assert_eq!(listed, ["Z", "a", "a-1", "a.b", "b"]);
}

/// Two operators decide by the first version: the second write is refused.
pub async fn a_tenant_is_written_at_its_version_only(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let acme = create(&fixture, TENANT).await;
    let [one, other] = [2, 3].map(|weight| TenantRecord { weight, version: 2, ..acme.clone() });
    assert!(fixture.database.write_tenant(one.clone()).await.unwrap());
    assert!(!fixture.database.write_tenant(other).await.unwrap());
    assert_eq!(tenant(&fixture, TENANT).await, Some(one));
    let missing = TenantRecord { version: 2, ..TenantRecord::new("other", at(1)) };
    assert!(!fixture.database.write_tenant(missing).await.unwrap());
}

/// Until its last task has finished and its last schedule is removed.
pub async fn a_tenant_in_use_is_kept(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    store(&fixture, &key(TENANT)).await;
    let running = fixture.running(task()).await;
    let remove = async |name| fixture.database.remove_tenant(name).await.unwrap();
    assert_eq!(remove(TENANT).await, TenantRemoved::InUse);
    assert_eq!(keys(&fixture, TENANT).await.len(), 1, "nothing was removed");
    fixture.apply(&running, complete(None)).await;
    let schedule = made::stored(&fixture, "nightly").await;
    assert_eq!(remove(TENANT).await, TenantRemoved::InUse);
    assert!(fixture.schedules.remove(schedule.id, schedule.revision).await.unwrap());
    assert_eq!(remove(TENANT).await, TenantRemoved::Done);
    assert_eq!(remove(TENANT).await, TenantRemoved::Missing);
}

/// Those of another tenant stay.
pub async fn a_removed_tenant_takes_its_keys_along(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    create(&fixture, "other").await;
    let (own, others) = (key(TENANT), key("other"));
    store(&fixture, &own).await;
    store(&fixture, &others).await;
    assert_eq!(fixture.database.remove_tenant(TENANT).await.unwrap(), TenantRemoved::Done);
    create(&fixture, TENANT).await;
    assert_eq!(read(&fixture, own.id).await, None);
    assert!(keys(&fixture, TENANT).await.is_empty());
    assert_eq!(read(&fixture, others.id).await, Some(others));
}

/// With patterns and an end, and without.
pub async fn a_key_outlives_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    let (narrow, whole) = (key(TENANT), admin_key(TENANT));
    store(&fixture, &narrow).await;
    store(&fixture, &whole).await;
    let fixture = fixture.reopen().await;
    assert_eq!(read(&fixture, narrow.id).await, Some(narrow));
    assert_eq!(read(&fixture, whole.id).await, Some(whole));
    assert_eq!(read(&fixture, KeyId::new()).await, None);
}

/// Nothing is stored then.
pub async fn a_key_needs_its_tenant(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, "other").await;
    let orphan = key(TENANT);
    assert_eq!(fixture.database.create_key(orphan.clone()).await.unwrap(), KeyStored::NoTenant);
    assert_eq!(read(&fixture, orphan.id).await, None);
}

/// The bound is that of each tenant. A revoked key makes room.
pub async fn the_keys_of_a_tenant_are_bounded(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    create(&fixture, "other").await;
    for _ in 0..KEYS_MAX {
        store(&fixture, &key(TENANT)).await;
    }
    assert_eq!(fixture.database.create_key(key(TENANT)).await.unwrap(), KeyStored::TooMany);
    store(&fixture, &key("other")).await;
    let first = keys(&fixture, TENANT).await.remove(0);
    assert!(fixture.database.revoke_key(TENANT, first.id).await.unwrap());
    store(&fixture, &key(TENANT)).await;
}

/// In pages of two.
pub async fn keys_are_listed_by_age(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    create(&fixture, "other").await;
    let mut expected = Vec::new();
    for _ in 0..5 {
        let own = key(TENANT);
        store(&fixture, &own).await;
        store(&fixture, &key("other")).await;
        expected.push(own);
    }
    let mut listed: Vec<ApiKeyRecord> = Vec::new();
    loop {
        let page = fixture.database.keys(TENANT, listed.last().map(|key| key.id), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page);
    }
    assert_eq!(listed, expected);
}

/// Another tenant cannot, and nobody can twice.
pub async fn a_key_is_revoked_for_good(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    let own = key(TENANT);
    store(&fixture, &own).await;
    let revoke = async |tenant| fixture.database.revoke_key(tenant, own.id).await.unwrap();
    assert!(!revoke("other").await);
    assert!(revoke(TENANT).await);
    assert!(!revoke(TENANT).await);
    assert_eq!(read(&fixture, own.id).await, None);
    assert!(keys(&fixture, TENANT).await.is_empty());
}

/// A second rotation does not put off the end.
pub async fn a_rotated_key_ends_later(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    create(&fixture, "other").await;
    let own = ApiKeyRecord { expires_at: None, ..key(TENANT) };
    store(&fixture, &own).await;
    let rotate = async |successor: &ApiKeyRecord, until, now| {
        fixture.database.rotate_key(own.id, successor.clone(), until, now).await.unwrap()
    };
    let stranger = key("other");
    assert!(!rotate(&stranger, at(100), at(1)).await);
    assert_eq!(read(&fixture, stranger.id).await, None);
    assert_eq!(read(&fixture, own.id).await.unwrap().expires_at, None);

    let [first, second, third] = [key(TENANT), key(TENANT), key(TENANT)];
    assert!(rotate(&first, at(100), at(1)).await);
    assert_eq!(read(&fixture, own.id).await, Some(ApiKeyRecord { expires_at: Some(at(100)), ..own.clone() }));
    assert_eq!(read(&fixture, first.id).await.as_ref(), Some(&first));
    assert!(rotate(&second, at(200), at(2)).await);
    assert_eq!(read(&fixture, own.id).await.unwrap().expires_at, Some(at(100)));
    assert!(!rotate(&third, at(200), at(100)).await, "it has ended");
    assert_eq!(read(&fixture, third.id).await, None);
}

/// Also twice in a batch.
pub async fn the_last_use_of_a_key_only_grows(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    create(&fixture, TENANT).await;
    let [one, other] = [key(TENANT), key(TENANT)];
    store(&fixture, &one).await;
    store(&fixture, &other).await;
    let note = async |uses: &[(KeyId, Timestamp)]| fixture.database.note_key_uses(uses.to_vec()).await.unwrap();
    note(&[]).await;
    note(&[(one.id, at(7)), (one.id, at(5)), (KeyId::new(), at(9))]).await;
    note(&[(one.id, at(6))]).await;
    let last_used = async |key: &ApiKeyRecord| read(&fixture, key.id).await.unwrap().last_used_at;
    assert_eq!((last_used(&one).await, last_used(&other).await), (Some(at(7)), None));
    note(&[(other.id, at(8)), (one.id, at(9))]).await;
    assert_eq!((last_used(&one).await, last_used(&other).await), (Some(at(9)), Some(at(8))));
}

/// Eight ask at once. One that has ended, or was revoked, makes room for another.
pub async fn the_first_admin_key_is_made_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut tries = JoinSet::new();
    let barrier = Arc::new(Barrier::new(8));
    for _ in 0..8 {
        let (database, barrier, first) = (Arc::clone(&fixture.database), Arc::clone(&barrier), admin_key(TENANT));
        tries.spawn(async move {
            barrier.wait().await;
            let ends = ApiKeyRecord { expires_at: Some(at(100)), ..first.clone() };
            database.create_first_admin_key(ends, at(1)).await.unwrap().then_some(first.id)
        });
    }
    let made: Vec<KeyId> = tries.join_all().await.into_iter().flatten().collect();
    assert_eq!(made.len(), 1);
    assert_eq!(tenant(&fixture, TENANT).await, Some(TenantRecord::new(TENANT, at(1))));
    assert_eq!(keys(&fixture, TENANT).await[0].id, made[0]);

    let ask =
        async |first: &ApiKeyRecord, now| fixture.database.create_first_admin_key(first.clone(), now).await.unwrap();
    let second = admin_key(TENANT);
    assert!(!ask(&second, at(99)).await);
    assert!(ask(&second, at(100)).await, "the first has ended");
    assert!(!ask(&admin_key("other"), at(200)).await);
    assert!(fixture.database.revoke_key(TENANT, second.id).await.unwrap());
    assert!(ask(&admin_key("other"), at(200)).await);
}

/// Another key may have taken the same.
pub async fn a_nonce_is_taken_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [one, other] = [KeyId::new(), KeyId::new()];
    let take = async |fixture: &StoreFixture<'_>, key, nonce| {
        fixture.database.take_nonce(key, nonce, at(600_000)).await.unwrap()
    };
    assert!(take(&fixture, one, "a").await);
    assert!(!take(&fixture, one, "a").await);
    assert!(take(&fixture, one, "A").await);
    assert!(take(&fixture, other, "a").await);
    let fixture = fixture.reopen().await;
    assert!(!take(&fixture, one, "a").await);
}

/// In steps of two; one that ends at the instant stays.
pub async fn old_nonces_are_pruned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let key = KeyId::new();
    for (nonce, end) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        assert!(fixture.database.take_nonce(key, nonce, at(end)).await.unwrap());
    }
    let prune = async || fixture.database.prune(Prunable::Nonces, at(4), 2).await.unwrap();
    assert_eq!(prune().await, Pruned { removed: 2, more: true });
    assert_eq!(prune().await, Pruned { removed: 1, more: false });
    assert!(!fixture.database.take_nonce(key, "d", at(9)).await.unwrap());
    assert!(fixture.database.take_nonce(key, "a", at(9)).await.unwrap());
}
