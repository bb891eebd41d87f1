//! The secrets that webhooks are signed with. An operator's own writes are urgent; there are few of
//! them.

use std::collections::HashMap;

use async_trait::async_trait;
use punctual_core::ids::WebhookSecretId;
use punctual_core::store::StoreError;
use punctual_core::webhook_secrets::{LiveSecret, SecretCreation, SigningSecret, WebhookSecrets};

use super::SqliteStore;
use super::job_queue::WriteClass;
use super::session::Session;
use crate::portable::{ready, webhook_secrets};
use crate::write_queue::Weight;

#[async_trait]
impl WebhookSecrets for SqliteStore {
    async fn create_secret(&self, live: LiveSecret, secret: SigningSecret) -> Result<SecretCreation, StoreError> {
        let work = move |session: &mut Session<'_>| ready(webhook_secrets::create(session, &live, &secret));
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn list_secrets(&self, tenant: &str) -> Result<Vec<LiveSecret>, StoreError> {
        let tenant = tenant.to_owned();
        self.readers().call(move |session| ready(webhook_secrets::list(session, &tenant))).await
    }

    async fn delete_secret(&self, tenant: &str, id: WebhookSecretId) -> Result<bool, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| ready(webhook_secrets::delete(session, &tenant, id));
        self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await
    }

    async fn signing_secrets(&self, tenants: Vec<String>) -> Result<HashMap<String, Vec<SigningSecret>>, StoreError> {
        self.readers().call(move |session| ready(webhook_secrets::keys(session, &tenants))).await
    }
}
