//! Tenants, API keys and nonces.
//!
//! On PostgreSQL every statement is a transaction of its own, so each call is safe to end after any
//! of its statements.

use std::collections::BTreeMap;

use punctual_core::ids::KeyId;
use punctual_core::name_pattern::NamePattern;
use punctual_core::tenants::{
    AccessRole, ApiKeyRecord, KEYS_MAX, KeyScope, KeyStored, SecretDigest, TenantRecord, TenantRemoved,
};
use punctual_core::time::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::lists::rows_column;
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::{count_column, number_column};

/// Stores a new tenant. Returns whether there was none.
pub(crate) async fn create<C: Connection>(connection: &mut C, tenant: &TenantRecord) -> Result<bool, C::Fault> {
    let TenantRecord { name, weight, version, created_at, updated_at, .. } = tenant;
    let (limits, version) = (limits_column(tenant), number_column(*version));
    let parameters: [&dyn Parameter; 6] =
        [name, &i64::from(*weight), &limits, &version, &created_at.as_millis(), &updated_at.as_millis()];
    Ok(connection.execute(PortableSql::TenantInsert, &parameters).await? > 0)
}

/// A tenant.
pub(crate) async fn get<C: Connection>(connection: &mut C, name: &str) -> Result<Option<TenantRecord>, C::Fault> {
    let rows = connection.query(PortableSql::TenantGet, &[&name]).await?;
    Ok(rows.first().map(tenant).transpose()?)
}

/// The tenants behind a name.
pub(crate) async fn list<C: Connection>(
    connection: &mut C,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<TenantRecord>, C::Fault> {
    let parameters: [&dyn Parameter; 2] = [&after.unwrap_or_default(), &count_column(limit)];
    let rows = connection.query(PortableSql::TenantList, &parameters).await?;
    Ok(rows.iter().map(tenant).collect::<Result<_, Corrupt>>()?)
}

/// Writes a tenant at the version before. Returns whether it was there.
pub(crate) async fn write<C: Connection>(connection: &mut C, tenant: &TenantRecord) -> Result<bool, C::Fault> {
    let (version, before) = (number_column(tenant.version), number_column(tenant.version.saturating_sub(1)));
    let (weight, limits, at) = (i64::from(tenant.weight), limits_column(tenant), tenant.updated_at.as_millis());
    let parameters: [&dyn Parameter; 6] = [&tenant.name, &before, &weight, &limits, &version, &at];
    Ok(connection.execute(PortableSql::TenantWrite, &parameters).await? > 0)
}

/// Removes a tenant that is not in use, and its keys. PostgreSQL removes them with it, by its
/// foreign key.
pub(crate) async fn remove<C: Connection>(connection: &mut C, name: &str) -> Result<TenantRemoved, C::Fault> {
    if connection.execute(PortableSql::TenantRemove, &[&name]).await? > 0 {
        connection.execute(PortableSql::KeyOrphansRemove, &[&name]).await?;
        return Ok(TenantRemoved::Done);
    }
    let is_there = get(connection, name).await?.is_some();
    Ok(if is_there { TenantRemoved::InUse } else { TenantRemoved::Missing })
}

/// Stores a new key.
pub(crate) async fn create_key<C: Connection>(connection: &mut C, key: &ApiKeyRecord) -> Result<KeyStored, C::Fault> {
    let columns = KeyColumns::of(key);
    let most = number_column(KEYS_MAX);
    let parameters = columns.with(&[&most]);
    if connection.execute(PortableSql::KeyInsert, &parameters).await? > 0 {
        return Ok(KeyStored::Done);
    }
    let is_there = get(connection, &key.tenant).await?.is_some();
    Ok(if is_there { KeyStored::TooMany } else { KeyStored::NoTenant })
}

/// Stores the key of the first administrator, and its tenant. Returns whether it was stored.
pub(crate) async fn create_first_admin_key<C: Connection>(
    connection: &mut C,
    key: &ApiKeyRecord,
    now: Timestamp,
) -> Result<bool, C::Fault> {
    create(connection, &TenantRecord::new(&key.tenant, now)).await?;
    let (columns, now) = (KeyColumns::of(key), now.as_millis());
    connection.execute(PortableSql::KeyFirstEnded, &[&now]).await?;
    Ok(connection.execute(PortableSql::KeyInsertFirst, &columns.with(&[&now])).await? > 0)
}

/// A key of any tenant.
pub(crate) async fn key<C: Connection>(connection: &mut C, id: KeyId) -> Result<Option<ApiKeyRecord>, C::Fault> {
    let rows = connection.query(PortableSql::KeyGet, &[&id_column(id)]).await?;
    Ok(rows.first().map(api_key).transpose()?)
}

/// The keys of a tenant behind one.
pub(crate) async fn keys<C: Connection>(
    connection: &mut C,
    tenant: &str,
    after: Option<KeyId>,
    limit: usize,
) -> Result<Vec<ApiKeyRecord>, C::Fault> {
    let after = after.map(id_column).unwrap_or_default();
    let rows = connection.query(PortableSql::KeyList, &[&tenant, &after, &count_column(limit)]).await?;
    Ok(rows.iter().map(api_key).collect::<Result<_, Corrupt>>()?)
}

/// Revokes a key of a tenant. Returns whether it was there.
pub(crate) async fn revoke<C: Connection>(connection: &mut C, tenant: &str, id: KeyId) -> Result<bool, C::Fault> {
    Ok(connection.execute(PortableSql::KeyRevoke, &[&tenant, &id_column(id)]).await? > 0)
}

/// Stores the successor of a key, and ends that key later. A process that dies in between leaves a
/// key that nobody has seen; the one in use goes on, and the call can be made again.
pub(crate) async fn rotate<C: Connection>(
    connection: &mut C,
    id: KeyId,
    successor: &ApiKeyRecord,
    until: Timestamp,
    now: Timestamp,
) -> Result<bool, C::Fault> {
    let (columns, id, now) = (KeyColumns::of(successor), id_column(id), now.as_millis());
    if connection.execute(PortableSql::KeySucceed, &columns.with(&[&id, &now])).await? == 0 {
        return Ok(false);
    }
    let parameters: [&dyn Parameter; 3] = [&id, &successor.tenant, &until.as_millis()];
    connection.execute(PortableSql::KeyEnd, &parameters).await?;
    Ok(true)
}

/// Notes when keys were last used, each once.
pub(crate) async fn note_uses<C: Connection>(connection: &mut C, uses: &[(KeyId, Timestamp)]) -> Result<(), C::Fault> {
    let mut last: BTreeMap<KeyId, Timestamp> = BTreeMap::new();
    for (id, at) in uses {
        let latest = last.entry(*id).or_insert(*at);
        *latest = (*latest).max(*at);
    }
    if !last.is_empty() {
        let row = |(id, at): (&KeyId, &Timestamp)| json!({"id": id_column(*id), "at": at.as_millis()});
        connection.execute(PortableSql::KeyUsed, &[&rows_column(last.iter().map(row))]).await?;
    }
    Ok(())
}

/// Takes a nonce. Returns whether it was free.
pub(crate) async fn take_nonce<C: Connection>(
    connection: &mut C,
    key: KeyId,
    nonce: &str,
    expires_at: Timestamp,
) -> Result<bool, C::Fault> {
    let parameters: [&dyn Parameter; 3] = [&id_column(key), &nonce, &expires_at.as_millis()];
    Ok(connection.execute(PortableSql::NonceTake, &parameters).await? > 0)
}

/// The columns of a new key.
struct KeyColumns<'k> {
    key: &'k ApiKeyRecord,
    id: String,
    role: &'static str,
    scope: String,
    digest: Vec<u8>,
    created_at: i64,
    expires_at: Option<i64>,
}

impl<'k> KeyColumns<'k> {
    fn of(key: &'k ApiKeyRecord) -> Self {
        Self {
            key,
            id: id_column(key.id),
            role: key.role.as_str(),
            scope: scope_column(&key.scope),
            digest: key.digest.as_bytes().to_vec(),
            created_at: key.created_at.as_millis(),
            expires_at: key.expires_at.map(Timestamp::as_millis),
        }
    }

    /// Its columns as parameters, and more behind them.
    fn with<'a>(&'a self, more: &[&'a dyn Parameter]) -> Vec<&'a dyn Parameter> {
        let ApiKeyRecord { tenant, name, .. } = self.key;
        let own: [&dyn Parameter; 8] =
            [&self.id, tenant, name, &self.role, &self.scope, &self.digest, &self.created_at, &self.expires_at];
        own.into_iter().chain(more.iter().copied()).collect()
    }
}

/// An id in a column: as text it is the same in both databases.
fn id_column(id: KeyId) -> String {
    id.uuid().simple().to_string()
}

fn limits_column(tenant: &TenantRecord) -> String {
    serde_json::to_string(&tenant.limits).expect("invariant: limits are numbers")
}

fn scope_column(scope: &KeyScope) -> String {
    let texts = |patterns: &[NamePattern]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({"types": texts(&scope.types), "queues": texts(&scope.queues), "payloads": scope.payloads}).to_string()
}

/// What a scope in a column says; none if it cannot be read: then it must not reach everything.
fn scope(text: &str) -> Option<KeyScope> {
    let scope: Value = serde_json::from_str(text).ok()?;
    let patterns = |name: &str| {
        let texts = scope.get(name)?.as_array()?.iter().map(|text| text.as_str().map(NamePattern::from));
        texts.collect::<Option<Vec<_>>>()
    };
    Some(KeyScope {
        types: patterns("types")?,
        queues: patterns("queues")?,
        payloads: scope.get("payloads")?.as_bool()?,
    })
}

fn tenant(row: &impl Row) -> Result<TenantRecord, Corrupt> {
    let (weight, limits): (i64, String) = (row.get(1)?, row.get(2)?);
    let unreadable = |column: &str| Corrupt(format!("the {column} of a tenant cannot be read"));
    Ok(TenantRecord {
        name: row.get(0)?,
        weight: u32::try_from(weight).map_err(|_| unreadable("weight"))?,
        limits: serde_json::from_str(&limits).map_err(|_| unreadable("limits"))?,
        version: row.number(3)?,
        created_at: row.instant(4)?,
        updated_at: row.instant(5)?,
    })
}

fn api_key(row: &impl Row) -> Result<ApiKeyRecord, Corrupt> {
    let unreadable = |column: &str| Corrupt(format!("the {column} of an API key cannot be read"));
    let (id, role): (String, String) = (row.get(0)?, row.get(3)?);
    let digest: Vec<u8> = row.get(5)?;
    Ok(ApiKeyRecord {
        id: KeyId::from_uuid(Uuid::try_parse(&id).map_err(|_| unreadable("id"))?),
        tenant: row.get(1)?,
        name: row.get(2)?,
        role: AccessRole::from_name(&role).ok_or_else(|| unreadable("role"))?,
        scope: scope(&row.get::<String>(4)?).ok_or_else(|| unreadable("scope"))?,
        digest: SecretDigest::new(digest.try_into().map_err(|_| unreadable("digest"))?),
        created_at: row.instant(6)?,
        expires_at: row.instant_if_any(7)?,
        last_used_at: row.instant_if_any(8)?,
    })
}
