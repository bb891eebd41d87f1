//! Brings a database up or down, one migration after the other: the same for both databases.
//!
//! The modules `sqlite` and `postgres` call it. It decides what is missing and in which order; a
//! [`Schema`] reads the records and runs the SQL. Invariant: it changes nothing in a database whose
//! records are not a prefix of the migrations that this binary knows.

use punctual_core::time::Timestamp;

use super::{Migration, MigrationError, MigrationStatus, SchemaStatus};

/// A migration that was applied, as the database has it.
pub(super) struct AppliedMigration {
    pub version: u32,
    pub checksum: String,
    pub at: Timestamp,
}

/// A database that can be migrated.
pub(super) trait Schema {
    /// The migrations that were applied, by version.
    async fn records(&mut self) -> Result<Vec<AppliedMigration>, MigrationError>;

    /// Runs the `up` of a migration and records it.
    async fn apply(&mut self, migration: &Migration, now: Timestamp) -> Result<(), MigrationError>;

    /// Runs the `down` of a migration and removes its record.
    async fn revert(&mut self, migration: &Migration) -> Result<(), MigrationError>;
}

/// Applies every missing migration; returns their numbers.
pub(super) async fn up(
    schema: &mut impl Schema,
    known: &[Migration],
    now: Timestamp,
) -> Result<Vec<u32>, MigrationError> {
    let done = count(schema.records().await?, known)?;
    let mut made = Vec::new();
    for migration in &known[done..] {
        schema.apply(migration, now).await.map_err(|reason| reason.after("applied", &made))?;
        made.push(migration.version);
    }
    Ok(made)
}

/// Reverts every migration above `to` (zero reverts all), the last first; returns their numbers.
pub(super) async fn down(schema: &mut impl Schema, known: &[Migration], to: u32) -> Result<Vec<u32>, MigrationError> {
    let done = count(schema.records().await?, known)?;
    let keep = usize::try_from(to).unwrap_or(usize::MAX);
    if keep > known.len() {
        return Err(MigrationError::NoSuchVersion(to));
    }
    let mut reverted = Vec::new();
    for migration in known[..done].iter().skip(keep).rev() {
        schema.revert(migration).await.map_err(|reason| reason.after("taken back", &reverted))?;
        reverted.push(migration.version);
    }
    Ok(reverted)
}

/// Every known migration and when it was applied. The database may be newer than this binary.
pub(super) fn status(records: Vec<AppliedMigration>, known: &[Migration]) -> Result<SchemaStatus, MigrationError> {
    let version = last_version(&records);
    let mut instants = instants(records, known)?.into_iter();
    let status = |migration: &Migration| {
        let Migration { version, name, .. } = *migration;
        MigrationStatus { version, name, applied_at: instants.next() }
    };
    Ok(SchemaStatus { steps: known.iter().map(status).collect(), version })
}

/// How many of the known migrations are applied; fails if a newer binary has applied others.
pub(super) fn count(records: Vec<AppliedMigration>, known: &[Migration]) -> Result<usize, MigrationError> {
    let newest = u32::try_from(known.len()).expect("invariant: there are few migrations");
    let found = last_version(&records);
    if found > newest {
        return Err(MigrationError::Newer { found, known: newest });
    }
    Ok(instants(records, known)?.len())
}

/// When each known migration was applied; fails unless the applied ones are a prefix of the known
/// ones.
fn instants(records: Vec<AppliedMigration>, known: &[Migration]) -> Result<Vec<Timestamp>, MigrationError> {
    let found = last_version(&records);
    let mut instants = Vec::with_capacity(records.len());
    for (record, migration) in records.into_iter().zip(known) {
        let Migration { version, name, .. } = *migration;
        if record.version > version {
            return Err(MigrationError::Missing { version, name, found });
        }
        if record.version != version || record.checksum != migration.checksum() {
            return Err(MigrationError::Changed { version, name });
        }
        instants.push(record.at);
    }
    Ok(instants)
}

fn last_version(records: &[AppliedMigration]) -> u32 {
    records.iter().map(|record| record.version).max().unwrap_or(0)
}
