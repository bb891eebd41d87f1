//! The secrets that webhooks are signed with. Every statement is a transaction of its own.

use std::collections::HashMap;

use async_trait::async_trait;
use punctual_core::ids::WebhookSecretId;
use punctual_core::store::StoreError;
use punctual_core::webhook_secrets::{LiveSecret, SecretCreation, SigningSecret, WebhookSecrets};

use super::PostgresStore;
use crate::portable::webhook_secrets;

#[async_trait]
impl WebhookSecrets for PostgresStore {
    async fn create_secret(&self, live: LiveSecret, secret: SigningSecret) -> Result<SecretCreation, StoreError> {
        self.reads().call(async |mut session| webhook_secrets::create(&mut session, &live, &secret).await).await
    }

    async fn list_secrets(&self, tenant: &str) -> Result<Vec<LiveSecret>, StoreError> {
        self.reads().call(async |mut session| webhook_secrets::list(&mut session, tenant).await).await
    }

    async fn delete_secret(&self, tenant: &str, id: WebhookSecretId) -> Result<bool, StoreError> {
        self.reads().call(async |mut session| webhook_secrets::delete(&mut session, tenant, id).await).await
    }

    async fn signing_secrets(&self, tenants: Vec<String>) -> Result<HashMap<String, Vec<SigningSecret>>, StoreError> {
        self.reads().call(async |mut session| webhook_secrets::keys(&mut session, &tenants).await).await
    }
}
