//! The port of tenants, of their API keys, and of the nonces of signed requests.
//!
//! The API calls it for operators and to authenticate callers, and `punctual init` to make the
//! first key. It is off the hot path: a node remembers the keys it has seen for some seconds. A
//! tenant need not have a record to have tasks; a key needs the record of its tenant.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::tenants`.
//!
//! - `a_tenant_outlives_the_process`: with all that it says.
//! - `a_tenant_is_created_once`: the second creation changes nothing and answers false.
//! - `tenants_are_listed_by_name`: page by page.
//! - `a_tenant_is_written_at_its_version_only`: a write that was decided by an older version
//!   changes nothing and answers false.
//! - `a_tenant_in_use_is_kept`: one with live tasks or schedules. Finished tasks do not keep it.
//! - `a_removed_tenant_takes_its_keys_along`: they are neither read nor listed any more, not even
//!   when a tenant of this name is created again.
//! - `a_key_outlives_the_process`: with all that it says.
//! - `a_key_needs_its_tenant`: one for a tenant without a record is refused.
//! - `the_keys_of_a_tenant_are_bounded`: one beyond the bound is refused.
//! - `keys_are_listed_by_age`: those of the tenant, the oldest first, page by page.
//! - `a_key_is_revoked_for_good`: by its own tenant only. It is neither read nor listed any more.
//! - `a_rotated_key_ends_later`: at the given instant, or when it would have ended before that. The
//!   new one is there. A key that has ended, or is another tenant's, is not rotated.
//! - `the_last_use_of_a_key_only_grows`: a report of an older use changes nothing, nor does one of
//!   a key that is gone.
//! - `the_first_admin_key_is_made_once`: also when several ask at once. It makes its tenant, if
//!   that has no record. A key of an administrator that has ended does not count.
//! - `a_nonce_is_taken_once`: by each key, also over another handle and after a restart.
//! - `old_nonces_are_pruned`: those that ended before the given instant, at most so many a step.

mod api_key;
mod record;

use async_trait::async_trait;

pub use self::api_key::{AccessRole, ApiKeyRecord, KeyScope, SecretDigest};
pub use self::record::{TenantLimits, TenantRecord, WEIGHT_MAX};

use crate::ids::KeyId;
use crate::store::StoreError;
use crate::time::Timestamp;

/// The maximum number of keys that a tenant has, those that have ended included.
pub const KEYS_MAX: u64 = 1_000;

/// What became of a key that was to be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStored {
    /// It is stored.
    Done,
    /// Its tenant has no record.
    NoTenant,
    /// Its tenant has [`KEYS_MAX`] keys.
    TooMany,
}

/// What became of a tenant that was to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantRemoved {
    /// It is removed.
    Done,
    /// It has no record.
    Missing,
    /// It has live tasks or schedules.
    InUse,
}

/// Keeps tenants, API keys and nonces (see the module's contract).
#[async_trait]
pub trait Tenants: Send + Sync {
    /// Stores a new tenant. False if there is one of this name.
    async fn create_tenant(&self, tenant: TenantRecord) -> Result<bool, StoreError>;

    /// Reads a tenant.
    async fn tenant(&self, name: &str) -> Result<Option<TenantRecord>, StoreError>;

    /// Lists tenants by name, strictly after `after`.
    async fn tenants(&self, after: Option<String>, limit: usize) -> Result<Vec<TenantRecord>, StoreError>;

    /// Writes a tenant, if the stored one is at the version before. False if it is not.
    async fn write_tenant(&self, tenant: TenantRecord) -> Result<bool, StoreError>;

    /// Removes a tenant and its keys, unless it has live tasks or schedules.
    async fn remove_tenant(&self, name: &str) -> Result<TenantRemoved, StoreError>;

    /// Stores a new key.
    async fn create_key(&self, key: ApiKeyRecord) -> Result<KeyStored, StoreError>;

    /// Stores the key of the first administrator and its tenant, unless some key of an
    /// administrator is valid at `now`. Returns whether it was stored.
    async fn create_first_admin_key(&self, key: ApiKeyRecord, now: Timestamp) -> Result<bool, StoreError>;

    /// Reads a key of any tenant, to authenticate its holder.
    async fn key(&self, id: KeyId) -> Result<Option<ApiKeyRecord>, StoreError>;

    /// Lists the keys of a tenant, the oldest first, strictly after `after`.
    async fn keys(&self, tenant: &str, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKeyRecord>, StoreError>;

    /// Revokes a key of a tenant. False if it has none with this id.
    async fn revoke_key(&self, tenant: &str, id: KeyId) -> Result<bool, StoreError>;

    /// Stores `successor`, and lets the key `id` of the same tenant end at `until`, or when it ends
    /// anyway. Returns false, and changes nothing, if that key has ended at `now` or is not there.
    async fn rotate_key(
        &self,
        id: KeyId,
        successor: ApiKeyRecord,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError>;

    /// Notes when keys were last used.
    async fn note_key_uses(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError>;

    /// Takes a nonce of a key, which is kept until `expires_at`
    /// ([`Prunable::Nonces`](crate::upkeep::Prunable)). False if it was taken before.
    async fn take_nonce(&self, key: KeyId, nonce: &str, expires_at: Timestamp) -> Result<bool, StoreError>;
}
