//! The secrets that webhooks are signed with.

use std::collections::HashMap;

use punctual_core::ids::WebhookSecretId;
use punctual_core::webhook_secrets::{LIVE_MAX, LiveSecret, SecretCreation, SigningSecret};

use uuid::Uuid;

use super::lists::Names;
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::count_column;

/// Stores a secret under the first number that is free. Two writers cannot take the same one.
pub(crate) async fn create<C: Connection>(
    connection: &mut C,
    live: &LiveSecret,
    secret: &SigningSecret,
) -> Result<SecretCreation, C::Fault> {
    let (id, created_at) = (live.id.uuid(), live.created_at.as_millis());
    for number in 1..=LIVE_MAX {
        let number = count_column(number);
        let parameters: [&dyn Parameter; 6] =
            [&live.tenant, &number, &id, &created_at, &live.last_digits, &secret.bytes()];
        if connection.execute(PortableSql::WebhookSecretInsert, &parameters).await? > 0 {
            return Ok(SecretCreation::Created);
        }
    }
    let known = read(connection, &live.tenant, secret.bytes()).await?.into_iter().find(|(_, is_same)| *is_same);
    Ok(match known {
        // It was written by this call, whose first answer was lost.
        Some((known, _)) if known.id == live.id => SecretCreation::Created,
        Some((known, _)) => SecretCreation::Known(known),
        None => SecretCreation::Full,
    })
}

/// The live secrets of a tenant.
pub(crate) async fn list<C: Connection>(connection: &mut C, tenant: &str) -> Result<Vec<LiveSecret>, C::Fault> {
    let read = read(connection, tenant, &[]).await?;
    Ok(read.into_iter().map(|(live, _)| live).collect())
}

/// The live secrets of a tenant, and whether each is this one. The database compares them, so that
/// no list reads a secret.
async fn read<C: Connection>(
    connection: &mut C,
    tenant: &str,
    secret: &[u8],
) -> Result<Vec<(LiveSecret, bool)>, C::Fault> {
    let rows = connection.query(PortableSql::WebhookSecretList, &[&tenant, &secret]).await?;
    let live = |row: &C::Row| {
        let live = LiveSecret {
            id: WebhookSecretId::from_uuid(row.get(0)?),
            tenant: row.get(1)?,
            created_at: row.instant(2)?,
            last_digits: row.get(3)?,
        };
        Ok((live, row.get(4)?))
    };
    let mut read: Vec<(LiveSecret, bool)> = rows.iter().map(live).collect::<Result<_, Corrupt>>()?;
    // There are two at most.
    read.sort_by_key(|(live, _)| (live.created_at, live.id.uuid()));
    Ok(read)
}

/// Deletes a secret of a tenant. Returns whether it lived.
pub(crate) async fn delete<C: Connection>(
    connection: &mut C,
    tenant: &str,
    id: WebhookSecretId,
) -> Result<bool, C::Fault> {
    Ok(connection.execute(PortableSql::WebhookSecretDelete, &[&tenant, &id.uuid()]).await? > 0)
}

/// The keys of many tenants.
pub(crate) async fn keys<C: Connection>(
    connection: &mut C,
    tenants: &[String],
) -> Result<HashMap<String, Vec<SigningSecret>>, C::Fault> {
    let rows = connection.query(PortableSql::WebhookSecretKeys, &[&Names(tenants)]).await?;
    let mut rows: Vec<(&C::Row, i64, Uuid)> =
        rows.iter().map(|row| Ok((row, row.get(2)?, row.get(3)?))).collect::<Result<_, Corrupt>>()?;
    // The oldest first, as they are listed.
    rows.sort_by_key(|(_, created_at, id)| (*created_at, *id));
    let mut keys: HashMap<String, Vec<SigningSecret>> = HashMap::new();
    for (row, ..) in rows {
        let secret = SigningSecret::from_bytes(row.get(1)?);
        keys.entry(row.get(0)?).or_default().push(secret);
    }
    Ok(keys)
}
