//! The caller of a request, once it is known.

use punctual_core::ids::KeyId;
use punctual_core::tenants::{AccessRole, ApiKeyRecord, KeyScope};
use punctual_core::time::Timestamp;

use crate::permission::Permission;

/// A caller: who it is, whose it is, and what it may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// What people call it.
    pub name: String,
    /// Its tenant.
    pub tenant: String,
    /// What it may do.
    pub role: AccessRole,
    /// Its API key, if it has shown one.
    pub key_id: Option<KeyId>,
    /// What it reaches.
    pub scope: KeyScope,
    /// When its credential ends; none: never.
    pub expires_at: Option<Timestamp>,
}

impl Principal {
    /// The tenant of a caller that names none, while authentication is off.
    pub const DEFAULT_TENANT: &str = "default";

    /// Every caller while authentication is off: it may do everything.
    pub fn anyone() -> Self {
        Self {
            name: "anyone".to_owned(),
            tenant: Self::DEFAULT_TENANT.to_owned(),
            role: AccessRole::Admin,
            key_id: None,
            scope: KeyScope::default(),
            expires_at: None,
        }
    }

    /// The holder of a key.
    pub fn of_key(key: &ApiKeyRecord) -> Self {
        Self {
            name: key.name.clone(),
            tenant: key.tenant.clone(),
            role: key.role,
            key_id: Some(key.id),
            scope: key.scope.clone(),
            expires_at: key.expires_at,
        }
    }

    /// Whether it may do what needs this permission.
    pub fn may(&self, permission: Permission) -> bool {
        permission.is_of(self.role)
    }

    /// Whether it may act for another tenant.
    pub fn may_be_any_tenant(&self) -> bool {
        self.role == AccessRole::Admin
    }
}
