//! Stores submitted tasks, or recognises them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use punctual_core::ids::{ScheduleId, TaskId};
use punctual_core::lane::Lane;
use punctual_core::state::{Position, State};
use punctual_core::store::Inserted;
use punctual_core::task::{NewTask, Task};
use uuid::Uuid;

use super::fault::Fault;
use super::get::{self, Found};
use super::hand::{Counts, Hand};
use super::session::Session;
use super::statements::Sql;
use crate::columns::{instant_column, map_column, number_column, policy_column};

/// Bytes of payload in one statement, about.
const CHUNK_BYTES: usize = 16 << 20;

/// What becomes of a submitted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is new.
    Create,
    /// It was submitted before, as this task.
    Replay(TaskId),
    /// Its key was used before, for this task.
    Reused(TaskId),
}

/// Stores tasks; answers in order. That an id is there already is seldom enough to be found out by failing.
pub(crate) async fn insert(hand: &mut Hand, tasks: &[NewTask]) -> Result<Vec<Inserted>, Fault> {
    let lanes = lanes(hand, tasks).await?;
    let verdicts = match write(hand, tasks, &lanes, false).await {
        Err(fault) if fault.is_twice() => {
            hand.tally.clear();
            hand.session.run("ROLLBACK").await?;
            write(hand, tasks, &lanes, true).await?
        }
        written => written?,
    };
    let new = || lanes.iter().zip(tasks.iter()).zip(&verdicts).filter(|(_, verdict)| **verdict == Verdict::Create);
    let waiting: Vec<(i64, i64)> =
        new().map(|((lane, task), _)| (lane.id.number(), task.execute_at.as_millis())).collect();
    hand.desk.marks.put(waiting.iter().copied());
    hand.desk.floors.wrote(new().filter_map(|((_, task), _)| task.expires_at), []);
    hand.desk.notifier.tell(&waiting, hand.now());
    answer(hand, tasks, lanes, verdicts).await
}

/// The lanes of the tasks, each in the place of its task.
async fn lanes(hand: &Hand, tasks: &[NewTask]) -> Result<Vec<Arc<Lane>>, Fault> {
    let lanes = hand.desk.lanes.resolve(&hand.session, tasks.iter().map(|task| &task.lane)).await?;
    Ok(tasks.iter().map(|task| Arc::clone(&lanes[&task.lane])).collect())
}

/// One transaction. `carefully`: one of the ids may be there already.
async fn write(
    hand: &mut Hand,
    tasks: &[NewTask],
    lanes: &[Arc<Lane>],
    carefully: bool,
) -> Result<Vec<Verdict>, Fault> {
    let keyed = tasks.iter().any(|task| task.idempotency.is_some());
    let mut verdicts = if keyed {
        let (begun, verdicts) = tokio::join!(biased; hand.session.run("BEGIN"), submitted_before(&hand.session, tasks));
        begun?;
        verdicts?
    } else {
        vec![Verdict::Create; tasks.len()]
    };
    let mut new: Vec<usize> = (0..tasks.len()).filter(|place| verdicts[*place] == Verdict::Create).collect();
    if carefully {
        if !keyed {
            hand.session.run("BEGIN").await?;
        }
        let stored = Rows::of(tasks, lanes, &new).write_once(&hand.session).await?;
        new.retain(|place| {
            let is_new = stored.contains(&tasks[*place].id.uuid());
            if !is_new {
                // The same task again: its submitter did not hear the answer.
                verdicts[*place] = Verdict::Replay(tasks[*place].id);
            }
            is_new
        });
        count(hand, lanes, &new);
        hand.commit().await?;
        return Ok(verdicts);
    }
    count(hand, lanes, &new);
    let counts = Counts::take(&mut hand.tally);
    let rows: Vec<Rows<'_>> = chunks(tasks, &new).map(|chunk| Rows::of(tasks, lanes, chunk)).collect();
    // Everything is sent at once; the answers are looked at in the order in which they come.
    let session = &hand.session;
    let begin = async { if keyed { Ok(()) } else { session.run("BEGIN").await } };
    let (begun, written, counted, committed) = tokio::join!(biased; begin, write_all(session, &rows), counts.write(session, hand.slot), async {
        if rows.len() > 1 { Ok(()) } else { session.run("COMMIT").await }
    });
    begun?;
    written?;
    counted?;
    committed?;
    if rows.len() > 1 {
        session.run("COMMIT").await?;
    }
    Ok(verdicts)
}

/// Counts the tasks at these places among those that wait.
pub(crate) fn count(hand: &mut Hand, lanes: &[Arc<Lane>], new: &[usize]) {
    for place in new {
        hand.tally.add(lanes[*place].id.number(), State::Pending, 1);
    }
}

async fn write_all(session: &Session, rows: &[Rows<'_>]) -> Result<(), Fault> {
    for rows in rows {
        rows.write(session, Sql::TaskInsert).await?;
    }
    Ok(())
}

/// Parts of the new tasks that a statement can carry.
fn chunks<'a>(tasks: &'a [NewTask], new: &'a [usize]) -> impl Iterator<Item = &'a [usize]> {
    let mut rest = new;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |place: &&usize| {
            bytes += tasks[**place].body.payload.get().len();
            bytes <= CHUNK_BYTES
        };
        let count = rest.iter().take_while(fits).count().max(1).min(rest.len());
        let (chunk, behind) = rest.split_at(count);
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Makes the keys of the tasks theirs, and recognises those that were used before: by others, or by an earlier task of
/// the same batch.
pub(crate) async fn submitted_before(session: &Session, tasks: &[NewTask]) -> Result<Vec<Verdict>, Fault> {
    let mut places_of: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (place, task) in tasks.iter().enumerate() {
        if let Some(idempotency) = &task.idempotency {
            places_of.entry((&task.lane.tenant, &idempotency.key)).or_default().push(place);
        }
    }
    let first: Vec<(&NewTask, &[u8; 32])> = places_of
        .values()
        .filter_map(|places| {
            let task = &tasks[places[0]];
            Some((task, &task.idempotency.as_ref()?.fingerprint))
        })
        .collect();
    let tenants: Vec<&str> = places_of.keys().map(|(tenant, _)| *tenant).collect();
    let keys: Vec<&str> = places_of.keys().map(|(_, key)| *key).collect();
    let ids: Vec<Uuid> = first.iter().map(|(task, _)| task.id.uuid()).collect();
    let fingerprints: Vec<&[u8]> = first.iter().map(|(_, fingerprint)| fingerprint.as_slice()).collect();
    let created_at: Vec<i64> = first.iter().map(|(task, _)| task.created_at.as_millis()).collect();
    let rows = session.query(Sql::IdempotencyInsert, &[&tenants, &keys, &ids, &fingerprints, &created_at]).await?;
    let made: HashSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();

    let mut owner: Vec<Option<(TaskId, Vec<u8>)>> =
        first.iter().map(|(task, own)| made.contains(&task.id.uuid()).then(|| (task.id, own.to_vec()))).collect();
    if made.len() < first.len() {
        for row in session.query(Sql::IdempotencyGet, &[&tenants, &keys]).await? {
            let place = usize::try_from(row.get::<_, i64>(0) - 1).unwrap_or(usize::MAX);
            if let Some(owner) = owner.get_mut(place) {
                *owner = Some((TaskId::from_uuid(row.get(1)), row.get(2)));
            }
        }
    }
    let mut verdicts = vec![Verdict::Create; tasks.len()];
    for (((_, places), owner), (first, _)) in places_of.iter().zip(owner).zip(&first) {
        let (id, fingerprint) =
            owner.ok_or_else(|| Fault::Vanished(format!("the idempotency key of {} was freed meanwhile", first.id)))?;
        for (nth, place) in places.iter().enumerate() {
            let same = tasks[*place].idempotency.as_ref().is_some_and(|own| own.fingerprint[..] == fingerprint[..]);
            if nth > 0 || !made.contains(&first.id.uuid()) {
                verdicts[*place] = if same { Verdict::Replay(id) } else { Verdict::Reused(id) };
            }
        }
    }
    Ok(verdicts)
}

async fn answer(
    hand: &Hand,
    tasks: &[NewTask],
    lanes: Vec<Arc<Lane>>,
    verdicts: Vec<Verdict>,
) -> Result<Vec<Inserted>, Fault> {
    let replayed = verdicts.iter().filter_map(|verdict| match verdict {
        Verdict::Replay(id) => Some(*id),
        _ => None,
    });
    let replayed: HashSet<TaskId> = replayed.collect();
    let mut found: HashMap<TaskId, Found> = HashMap::new();
    if !replayed.is_empty() {
        let ids: Vec<TaskId> = replayed.into_iter().collect();
        found = get::by_ids(&hand.session, &hand.desk.lanes, &ids).await?;
    }
    let each = tasks.iter().zip(lanes).zip(verdicts);
    each.map(|((task, lane), verdict)| match verdict {
        Verdict::Create => Ok(Inserted::Created(created(task, lane))),
        Verdict::Reused(first) => Ok(Inserted::KeyReused(first)),
        Verdict::Replay(first) => match found.get(&first) {
            Some(Ok(task)) => Ok(Inserted::Replayed(task.clone())),
            Some(Err(bad)) => Err(Fault::Corrupt(format!("{first}: its {} cannot be read", bad.fault.0))),
            // Its history was removed before its key: it was done, and is not done again.
            None => Ok(Inserted::KeyReused(first)),
        },
    })
    .collect()
}

fn created(task: &NewTask, lane: Arc<Lane>) -> Task {
    Task {
        id: task.id,
        lane,
        position: Position { state: State::Pending, version: 1, attempts: 0, crashes: 0, cancel_requested: false },
        created_at: task.created_at,
        execute_at: task.execute_at,
        due_at: task.execute_at,
        expires_at: task.expires_at,
        hold: None,
        worker: None,
        started_at: None,
        completed_at: None,
        result: None,
        progress: None,
        checkpoint: None,
        body: task.body.clone(),
        trail: task.trail.clone(),
    }
}

/// New tasks as columns.
pub(crate) struct Rows<'a> {
    id: Vec<Uuid>,
    lane: Vec<i64>,
    created_at: Vec<i64>,
    execute_at: Vec<i64>,
    expires_at: Vec<Option<i64>>,
    timeout_millis: Vec<i64>,
    schedule_id: Vec<Option<Uuid>>,
    idempotency_key: Vec<Option<&'a str>>,
    callback_url: Vec<Option<&'a str>>,
    callback_headers: Vec<Option<String>>,
    retry_policy: Vec<Option<String>>,
    metadata: Vec<Option<String>>,
    trail: Vec<&'a [u8]>,
    payload: Vec<&'a str>,
}

impl<'a> Rows<'a> {
    pub(crate) fn of(tasks: &'a [NewTask], lanes: &[Arc<Lane>], places: &[usize]) -> Self {
        fn each<'a, T>(tasks: &'a [NewTask], places: &[usize], column: impl Fn(&'a NewTask) -> T) -> Vec<T> {
            places.iter().map(|place| column(&tasks[*place])).collect()
        }
        let callback = |task: &'a NewTask| task.body.callback.as_ref();
        Self {
            id: each(tasks, places, |task| task.id.uuid()),
            lane: places.iter().map(|place| lanes[*place].id.number()).collect(),
            created_at: each(tasks, places, |task| task.created_at.as_millis()),
            execute_at: each(tasks, places, |task| task.execute_at.as_millis()),
            expires_at: each(tasks, places, |task| instant_column(task.expires_at)),
            timeout_millis: each(tasks, places, |task| number_column(task.body.timeout_millis)),
            schedule_id: each(tasks, places, |task| task.body.schedule_id.map(ScheduleId::uuid)),
            idempotency_key: each(tasks, places, |task| task.body.idempotency_key.as_deref()),
            callback_url: each(tasks, places, |task| callback(task).map(|callback| callback.url.as_str())),
            callback_headers: each(tasks, places, |task| {
                callback(task).and_then(|callback| map_column(&callback.headers))
            }),
            retry_policy: each(tasks, places, |task| policy_column(&task.body.retry_policy)),
            metadata: each(tasks, places, |task| map_column(&task.body.metadata)),
            trail: each(tasks, places, |task| task.trail.as_bytes()),
            payload: each(tasks, places, |task| task.body.payload.get()),
        }
    }

    pub(crate) async fn write(&self, session: &Session, sql: Sql) -> Result<Vec<tokio_postgres::Row>, Fault> {
        session
            .query(
                sql,
                &[
                    &self.id,
                    &self.lane,
                    &self.created_at,
                    &self.execute_at,
                    &self.expires_at,
                    &self.timeout_millis,
                    &self.schedule_id,
                    &self.idempotency_key,
                    &self.callback_url,
                    &self.callback_headers,
                    &self.retry_policy,
                    &self.metadata,
                    &self.trail,
                    &self.payload,
                ],
            )
            .await
    }

    /// The ids of those that were not there.
    async fn write_once(&self, session: &Session) -> Result<HashSet<Uuid>, Fault> {
        let rows = self.write(session, Sql::TaskInsertOnce).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}
