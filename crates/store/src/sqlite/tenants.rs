//! Tenants, API keys and nonces. The writes of operators and of callers that wait are urgent.

use async_trait::async_trait;
use punctual_core::ids::KeyId;
use punctual_core::store::StoreError;
use punctual_core::tenants::{ApiKeyRecord, KeyStored, TenantRecord, TenantRemoved, Tenants};
use punctual_core::time::Timestamp;

use super::SqliteStore;
use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use crate::portable::{ready, tenants};
use crate::write_queue::Weight;

impl SqliteStore {
    async fn write_urgently<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Session<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }
}

#[async_trait]
impl Tenants for SqliteStore {
    async fn create_tenant(&self, tenant: TenantRecord) -> Result<bool, StoreError> {
        self.write_urgently(move |session| ready(tenants::create(session, &tenant))).await
    }

    async fn tenant(&self, name: &str) -> Result<Option<TenantRecord>, StoreError> {
        let name = name.to_owned();
        self.readers().call(move |session| ready(tenants::get(session, &name))).await
    }

    async fn tenants(&self, after: Option<String>, limit: usize) -> Result<Vec<TenantRecord>, StoreError> {
        self.readers().call(move |session| ready(tenants::list(session, after.as_deref(), limit))).await
    }

    async fn write_tenant(&self, tenant: TenantRecord) -> Result<bool, StoreError> {
        self.write_urgently(move |session| ready(tenants::write(session, &tenant))).await
    }

    async fn remove_tenant(&self, name: &str) -> Result<TenantRemoved, StoreError> {
        let name = name.to_owned();
        self.write_urgently(move |session| ready(tenants::remove(session, &name))).await
    }

    async fn create_key(&self, key: ApiKeyRecord) -> Result<KeyStored, StoreError> {
        self.write_urgently(move |session| ready(tenants::create_key(session, &key))).await
    }

    async fn create_first_admin_key(&self, key: ApiKeyRecord, now: Timestamp) -> Result<bool, StoreError> {
        self.write_urgently(move |session| ready(tenants::create_first_admin_key(session, &key, now))).await
    }

    async fn key(&self, id: KeyId) -> Result<Option<ApiKeyRecord>, StoreError> {
        self.readers().call(move |session| ready(tenants::key(session, id))).await
    }

    async fn keys(&self, tenant: &str, after: Option<KeyId>, limit: usize) -> Result<Vec<ApiKeyRecord>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(tenants::keys(session, &tenant, after, limit))).await
    }

    async fn revoke_key(&self, tenant: &str, id: KeyId) -> Result<bool, StoreError> {
        let tenant = tenant.to_owned();
        self.write_urgently(move |session| ready(tenants::revoke(session, &tenant, id))).await
    }

    async fn rotate_key(
        &self,
        id: KeyId,
        successor: ApiKeyRecord,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write_urgently(move |session| ready(tenants::rotate(session, id, &successor, until, now))).await
    }

    async fn note_key_uses(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<(), StoreError> {
        let weight = Weight { rows: uses.len(), bytes: uses.len() * Weight::SMALL.bytes };
        let work = move |session: &mut Session<'_>| ready(tenants::note_uses(session, &uses));
        self.writer().call(WriteClass::Progress, weight, work).await
    }

    async fn take_nonce(&self, key: KeyId, nonce: &str, expires_at: Timestamp) -> Result<bool, StoreError> {
        let nonce = nonce.to_owned();
        self.write_urgently(move |session| ready(tenants::take_nonce(session, key, &nonce, expires_at))).await
    }
}
