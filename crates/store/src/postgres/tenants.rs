//! Tenants, API keys and nonces. Every statement is a transaction of its own.

use async_trait::async_trait;
use punctual_core::ids::KeyId;
use punctual_core::store::StoreError;
use punctual_core::tenants::{ApiKeyRecord, KeyStored, TenantRecord, TenantRemoved, Tenants};
use punctual_core::time::Timestamp;

use super::PostgresStore;
use crate::portable::tenants;

#[async_trait]
impl Tenants for PostgresStore {
    async fn create_tenant(&self, tenant: TenantRecord) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| tenants::create(&mut session, &tenant).await).await
    }

    async fn tenant(&self, name: &str) -> Result<Option<TenantRecord>, StoreError> {
        self.reads().call(async |mut session| tenants::get(&mut session, name).await).await
    }

    async fn tenants(&self, after: Option<String>, limit: usize) -> Result<Vec<TenantRecord>, StoreError> {
        let after = after.as_deref();
        self.reads().call(async |mut session| tenants::list(&mut session, after, limit).await).await
    }

    async fn write_tenant(&self, tenant: TenantRecord) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| tenants::write(&mut session, &tenant).await).await
    }

    async fn remove_tenant(&self, name: &str) -> Result<TenantRemoved, StoreError> {
        self.reads().call(async |mut session| tenants::remove(&mut session, name).await).await
    }

    async fn create_key(&self, key: ApiKeyRecord) -> Result<KeyStored, StoreError> {
        self.reads().call(async |mut session| tenants::create_key(&mut session, &key).await).await
    }

    async fn create_first_admin_key(&self, key: ApiKeyRecord, now: Timestamp) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| tenants::create_first_admin_key(&mut session, &key, now).await).await
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKeyRecord>, StoreError> {
        self.reads().call(async |mut session| tenants::key(&mut session, id).await).await
    }

    async fn keys(&self, tenant: &str, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKeyRecord>, StoreError> {
        self.reads().call(async |mut session| tenants::keys(&mut session, tenant, after, limit).await).await
    }

    async fn revoke_key(&self, tenant: &str, id: KeyId) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| tenants::revoke(&mut session, tenant, id).await).await
    }

    async fn rotate_key(
        &self,
        id: KeyId,
        successor: ApiKeyRecord,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| tenants::rotate(&mut session, id, &successor, until, now).await).await
    }

    async fn note_key_uses(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        self.reads().call(async |mut session| tenants::note_uses(&mut session, &uses).await).await
    }

    async fn take_nonce(&self, key: KeyId, nonce: &str, expires_at: Timestamp) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| tenants::take_nonce(&mut session, key, nonce, expires_at).await).await
    }
}
