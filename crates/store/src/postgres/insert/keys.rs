//! The idempotency keys of a batch: which of its tasks were submitted before, and the keys of those
//! that are not stored.

use std::collections::{BTreeMap, HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::task::NewTask;
use uuid::Uuid;

use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::row;
use crate::postgres::statements::Sql;
use crate::submissions::SubmissionVerdict;

/// A batch whose keys are checked.
pub(crate) struct RecognisedBatch {
    pub verdicts: Vec<SubmissionVerdict>,
    /// The entries of the keys that new tasks took from others, by the new task.
    former: HashMap<TaskId, KeyEntry>,
}

/// The entry of a key.
struct KeyEntry {
    task: Uuid,
    fingerprint: Vec<u8>,
    created_at: i64,
}

/// The first task of a batch with some key.
struct FirstUse<'a> {
    tenant: &'a str,
    key: &'a str,
    task: &'a NewTask,
    fingerprint: &'a [u8],
    replace_final: bool,
}

impl RecognisedBatch {
    /// A batch without keys.
    pub(crate) fn all_new(tasks: usize) -> Self {
        Self { verdicts: vec![SubmissionVerdict::New; tasks], former: HashMap::new() }
    }
}

/// Takes the idempotency keys of the tasks, and recognises keys that were used before: by a stored
/// task, or by an earlier one of the same batch.
pub(crate) async fn submitted_before(session: &Session, tasks: &[NewTask]) -> Result<RecognisedBatch, Fault> {
    let mut places_of: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (place, task) in tasks.iter().enumerate() {
        if let Some(idempotency) = &task.idempotency {
            places_of.entry((&task.lane.tenant, &idempotency.key)).or_default().push(place);
        }
    }
    let first = places_of.iter().filter_map(|((tenant, key), places)| {
        let task = &tasks[places[0]];
        let idempotency = task.idempotency.as_ref()?;
        let (fingerprint, replace_final) = (idempotency.fingerprint.as_slice(), idempotency.replace_final);
        Some(FirstUse { tenant, key, task, fingerprint, replace_final })
    });
    let first: Vec<FirstUse<'_>> = first.collect();
    let mut taken = take(session, Sql::IdempotencyInsert, first.iter()).await?;
    // A rare path: boxed, so that the common one stays small.
    let former = Box::pin(replace(session, &first, &mut taken)).await?;
    let is_taken = |first: &FirstUse<'_>| taken.contains(&first.task.id.uuid());

    let mut owner: Vec<Option<(TaskId, Vec<u8>)>> =
        first.iter().map(|first| is_taken(first).then(|| (first.task.id, first.fingerprint.to_vec()))).collect();
    if taken.len() < first.len() {
        let (tenants, keys): (Vec<&str>, Vec<&str>) = places_of.keys().copied().unzip();
        for row in session.query(Sql::IdempotencyGet, &[&tenants, &keys]).await? {
            if let Some(owner) = owner.get_mut(row::index(&row, 0)) {
                *owner = Some((TaskId::from_uuid(row.get(1)), row.get(2)));
            }
        }
    }
    let mut verdicts = vec![SubmissionVerdict::New; tasks.len()];
    for ((places, owner), first) in places_of.values().zip(owner).zip(&first) {
        let freed = || Fault::Vanished(format!("the idempotency key of {} was freed meanwhile", first.task.id));
        let (id, fingerprint) = owner.ok_or_else(freed)?;
        for (nth, place) in places.iter().enumerate() {
            let same = tasks[*place].idempotency.as_ref().is_some_and(|own| own.is_repeat_of(&fingerprint));
            if nth > 0 || !is_taken(first) {
                verdicts[*place] = if same { SubmissionVerdict::Replay(id) } else { SubmissionVerdict::KeyReused(id) };
            }
        }
    }
    Ok(RecognisedBatch { verdicts, former })
}

/// Takes keys by one of the statements that do. Returns the tasks that have got theirs.
async fn take<'a>(
    session: &Session,
    sql: Sql,
    uses: impl Iterator<Item = &'a FirstUse<'a>> + Clone,
) -> Result<HashSet<Uuid>, Fault> {
    let (tenants, keys): (Vec<&str>, Vec<&str>) = uses.clone().map(|first| (first.tenant, first.key)).unzip();
    let ids: Vec<Uuid> = uses.clone().map(|first| first.task.id.uuid()).collect();
    let fingerprints: Vec<&[u8]> = uses.clone().map(|first| first.fingerprint).collect();
    let created_at: Vec<i64> = uses.map(|first| first.task.created_at.as_millis()).collect();
    let rows = session.query(sql, &[&tenants, &keys, &ids, &fingerprints, &created_at]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Takes the keys of cancelled and failed tasks for those that ask for it. Their entries are locked
/// first, so that such a task does not come back meanwhile. Returns the former entries.
async fn replace(
    session: &Session,
    first: &[FirstUse<'_>],
    taken: &mut HashSet<Uuid>,
) -> Result<HashMap<TaskId, KeyEntry>, Fault> {
    let asks = |first: &&FirstUse<'_>| first.replace_final && !taken.contains(&first.task.id.uuid());
    let asking: Vec<&FirstUse<'_>> = first.iter().filter(asks).collect();
    let mut former = HashMap::new();
    if asking.is_empty() {
        return Ok(former);
    }
    let (tenants, keys): (Vec<&str>, Vec<&str>) = asking.iter().map(|first| (first.tenant, first.key)).unzip();
    for row in session.query(Sql::IdempotencyLock, &[&tenants, &keys]).await? {
        let entry = KeyEntry { task: row.get(1), fingerprint: row.get(2), created_at: row.get(3) };
        former.insert(asking[row::index(&row, 0)].task.id, entry);
    }
    let replaced = take(session, Sql::IdempotencyReplace, asking.iter().copied()).await?;
    former.retain(|task, _| replaced.contains(&task.uuid()));
    taken.extend(replaced);
    Ok(former)
}

/// Tasks that are not stored free the idempotency keys that they took, or give them back.
pub(crate) async fn free_keys<'t>(
    session: &Session,
    recognised: &RecognisedBatch,
    refused: impl Iterator<Item = &'t NewTask>,
) -> Result<(), Fault> {
    let (mut tenants, mut keys, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let mut back: Vec<(&str, &str, Uuid, &KeyEntry)> = Vec::new();
    for task in refused {
        let Some(idempotency) = &task.idempotency else { continue };
        let (tenant, key, id) = (task.lane.tenant.as_str(), idempotency.key.as_str(), task.id.uuid());
        if let Some(former) = recognised.former.get(&task.id) {
            back.push((tenant, key, id, former));
        } else {
            tenants.push(tenant);
            keys.push(key);
            ids.push(id);
        }
    }
    if !ids.is_empty() {
        session.execute(Sql::IdempotencyDrop, &[&tenants, &keys, &ids]).await?;
    }
    if !back.is_empty() {
        let (tenants, keys): (Vec<&str>, Vec<&str>) = back.iter().map(|(tenant, key, ..)| (*tenant, *key)).unzip();
        let ids: Vec<Uuid> = back.iter().map(|(_, _, id, _)| *id).collect();
        let former: Vec<Uuid> = back.iter().map(|(.., former)| former.task).collect();
        let fingerprints: Vec<&[u8]> = back.iter().map(|(.., former)| former.fingerprint.as_slice()).collect();
        let created_at: Vec<i64> = back.iter().map(|(.., former)| former.created_at).collect();
        let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&tenants, &keys, &ids, &former, &fingerprints, &created_at];
        session.execute(Sql::IdempotencyRestore, &parameters).await?;
    }
    Ok(())
}
