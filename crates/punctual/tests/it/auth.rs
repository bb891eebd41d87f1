//! Credentials and rights: a server with authentication on, as its callers meet it.

mod certificates;
mod credentials;
mod isolation;
mod nodes;
mod reach;
mod rights;
mod signed;
mod tenants;
mod tokens;

use std::path::Path;

use punctual_testkit::http::ApiClient;
use punctual_testkit::process::{Serve, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::config::{punctual, text};
use super::world::{PUNCTUAL, merged};

/// The roles that a key can have.
pub const ROLES: [&str; 5] = ["viewer", "submitter", "worker", "operator", "admin"];

/// A server with authentication on, and its first admin key.
pub struct Guarded {
    pub server: TestServer,
    pub admin: ApiClient,
    pub admin_key: String,
    _home: TempDir,
}

impl Guarded {
    /// A server with signed requests on and a talkative log.
    pub async fn start() -> Self {
        Self::start_with(|serve| serve).await
    }

    /// The same with other settings.
    pub async fn start_with(settings: impl FnOnce(Serve) -> Serve) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        let data = home.path().join("data");
        let admin_key = init(&["--data", path(&data)]);
        let serve = guarded(Serve::new(PUNCTUAL, data)).setting("LOG__LEVEL", "debug");
        let server = settings(serve).start().await;
        let admin = ApiClient::new(server.url()).key(&admin_key);
        Self { server, admin, admin_key, _home: home }
    }

    /// A caller without a credential.
    pub fn stranger(&self) -> ApiClient {
        ApiClient::new(self.server.url())
    }

    /// A caller of the tenant `default` with this role.
    pub async fn role(&self, role: &str) -> ApiClient {
        self.caller("default", json!({ "role": role })).await
    }

    /// A caller of a tenant with a key like this.
    pub async fn caller(&self, tenant: &str, key: Value) -> ApiClient {
        self.stranger().key(&new_key(&self.admin, tenant, key).await.1)
    }

    /// Creates a tenant.
    pub async fn tenant(&self, name: &str) {
        self.admin.post("/v1/admin/tenants", &json!({ "name": name })).await.expect(201);
    }
}

/// The settings of a server that knows its callers.
pub fn guarded(serve: Serve) -> Serve {
    serve.setting("AUTH__ENABLED", "true").setting("AUTH__SIGNED_REQUESTS", "true")
}

/// Makes the first admin key, and returns it.
pub fn init(arguments: &[&str]) -> String {
    let made = punctual(&[&["init"], arguments].concat(), &[]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    text(&made.stdout).trim_end().to_owned()
}

/// Makes a key; returns its id and its text.
pub async fn new_key(admin: &ApiClient, tenant: &str, key: Value) -> (String, String) {
    let key = merged(json!({"name": "Test key"}), key);
    let made = admin.post(&format!("/v1/admin/tenants/{tenant}/keys"), &key).await.expect(201);
    let member = |name: &str| made[name].as_str().expect("a text").to_owned();
    (member("key_id"), member("key"))
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
