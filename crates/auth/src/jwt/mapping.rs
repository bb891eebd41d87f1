//! What a token's claims mean here: whose its bearer is, and what it may do.

use std::collections::BTreeMap;

use punctual_core::name_pattern::NamePattern;
use punctual_core::tenants::{AccessRole, KeyScope};
use punctual_core::time::Timestamp;

use super::Claims;
use crate::principal::Principal;
use crate::scope::{self, PATTERNS_MAX};

/// Which claims decide what. A claim is named by its path ([`Claims::words`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimMapping {
    /// The claim with the tenant.
    pub tenant: String,
    /// The claim with the roles.
    pub role: String,
    /// What words of that claim mean beside the names of roles. Nobody becomes an administrator by
    /// the bare name.
    pub roles: BTreeMap<String, AccessRole>,
    /// The claim with the patterns of the types that its bearer reaches; none: it reaches all.
    pub types: Option<String>,
    /// The same for queues.
    pub queues: Option<String>,
}

/// Why the bearer of a genuine token is nobody here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingFault {
    /// It does not say whose it is, or names several tenants, or what is no name of one.
    #[error("its claim of the tenant has no name of one")]
    Tenant,
    /// None of its roles is one here.
    #[error("its claim of roles has none that is known here")]
    Role,
    /// A claim that limits it has no pattern, or too many, or its role cannot be limited so.
    #[error("its claims of types and queues are no scope for its role")]
    Scope,
}

impl ClaimMapping {
    /// The bearer of a token. Of several roles the one with the most rights counts. `is_tenant`:
    /// whether a tenant can have this name.
    pub fn principal(&self, claims: &Claims, is_tenant: impl Fn(&str) -> bool) -> Result<Principal, MappingFault> {
        let tenant = match claims.words(&self.tenant).as_slice() {
            [one] if is_tenant(one) => (*one).to_owned(),
            _ => return Err(MappingFault::Tenant),
        };
        let roles = claims.words(&self.role).into_iter().filter_map(|word| self.role_of(word));
        let role = roles.max().ok_or(MappingFault::Role)?;
        let scope = match role {
            // It may do everything, so no claim limits it.
            AccessRole::Admin => KeyScope::default(),
            _ => KeyScope {
                types: patterns(claims, self.types.as_deref())?,
                queues: patterns(claims, self.queues.as_deref())?,
                payloads: true,
            },
        };
        if !scope::faults(role, &scope).is_empty() {
            return Err(MappingFault::Scope);
        }
        let expires_at = Some(Timestamp::from_millis(claims.expires_at.saturating_mul(1_000)));
        Ok(Principal { name: claims.subject.clone(), tenant, role, key_id: None, scope, expires_at })
    }

    fn role_of(&self, word: &str) -> Option<AccessRole> {
        let named = || AccessRole::from_name(word).filter(|role| *role != AccessRole::Admin);
        self.roles.get(word).copied().or_else(named)
    }
}

/// The patterns of a claim. One that is missing, or has no word, gives none: that is a fault, since
/// no pattern would mean everything.
fn patterns(claims: &Claims, path: Option<&str>) -> Result<Vec<NamePattern>, MappingFault> {
    let Some(path) = path else { return Ok(Vec::new()) };
    let patterns: Vec<NamePattern> =
        claims.words(path).into_iter().filter(|word| !word.is_empty()).map(NamePattern::from).collect();
    if patterns.is_empty() || patterns.len() > PATTERNS_MAX { Err(MappingFault::Scope) } else { Ok(patterns) }
}
