//! Refuses submissions to queues that are full.
//!
//! An insert into a queue with a maximum depth holds a lock of that queue from the count to the
//! commit, so that two inserts never take the same room. It is a lock of the session, taken before
//! the transaction of the insert. Inserts into other queues pay nothing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use punctual_core::ids::TaskId;
use punctual_core::partitions::Partition;
use punctual_core::store::{FullQueue, Inserted};
use punctual_core::task::NewTask;
use uuid::Uuid;

use crate::dependencies::{DependencyBatch, KnownParent, MemberPlan, MemberStatus};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::insert;
use crate::postgres::row;
use crate::postgres::statements::Sql;
use crate::postgres::writer::Writer;
use crate::submissions::InsertMode;

/// The advisory locks of submissions: their class, and how many there are.
const CLASS: i32 = 0x7055_0002;
const SHARES: u16 = 64;

/// Releases every lock of the session, after a rollback if the insert failed.
const UNLOCK: &str = "SELECT pg_advisory_unlock_all()";
const ROLL_BACK_AND_UNLOCK: &str = "ROLLBACK; SELECT pg_advisory_unlock_all()";

/// Inserts tasks as far as their queues have room; answers in order. `put_off` are members of their
/// batch that are refused for now.
pub(crate) async fn insert(
    writer: &mut Writer,
    tasks: &[NewTask],
    put_off: &HashSet<TaskId>,
    mode: InsertMode,
) -> Result<Vec<Inserted>, Fault> {
    let bounded = bounded(writer, tasks);
    if bounded.is_empty() {
        return insert::insert(writer, tasks, put_off, mode).await;
    }
    // A large future on a rare path: boxed, so that the common path stays small.
    let done = Box::pin(insert_bounded(writer, tasks, &bounded, put_off, mode)).await;
    let unlocked = match &done {
        Err(fault) if fault.breaks_connection() => Ok(()),
        Err(_) => writer.session.run(ROLL_BACK_AND_UNLOCK).await,
        Ok(_) => writer.session.run(UNLOCK).await,
    };
    let done = done?;
    unlocked?;
    Ok(done)
}

/// The indices of the tasks in each queue with a maximum depth, by tenant and name.
type Bounded<'a> = BTreeMap<(&'a str, &'a str), Vec<usize>>;

fn bounded<'a>(writer: &Writer, tasks: &'a [NewTask]) -> Bounded<'a> {
    let mut bounded = Bounded::new();
    let limits = &writer.shared.limits;
    if limits.is_empty() {
        return bounded;
    }
    for (place, task) in tasks.iter().enumerate() {
        let (tenant, queue) = (task.lane.tenant.as_str(), task.lane.queue.as_str());
        if let Some(places) = bounded.get_mut(&(tenant, queue)) {
            places.push(place);
        } else if limits.has_depth(tenant, queue) {
            bounded.insert((tenant, queue), vec![place]);
        }
    }
    bounded
}

async fn insert_bounded(
    writer: &mut Writer,
    tasks: &[NewTask],
    bounded: &Bounded<'_>,
    put_off: &HashSet<TaskId>,
    mode: InsertMode,
) -> Result<Vec<Inserted>, Fault> {
    let room = room(&writer.session, tasks, bounded).await?;
    let is_short =
        |(queue, places): (&(&str, &str), &Vec<usize>)| room.get(queue).is_some_and(|room| room.left < places.len());
    if !bounded.iter().any(is_short) {
        return insert::insert(writer, tasks, put_off, mode).await;
    }
    let is_admitted = admitted(&writer.session, tasks, bounded, &room).await?;
    let (some, others): (Vec<_>, Vec<_>) = tasks.iter().zip(&is_admitted).partition(|(_, is_admitted)| **is_admitted);
    let some: Vec<NewTask> = some.into_iter().map(|(task, _)| task.clone()).collect();
    let hopeless = hopeless(&writer.session, tasks, &is_admitted).await?;
    let without_room = others.into_iter().map(|(task, _)| task.id).filter(|id| !hopeless.contains_key(id));
    let put_off: HashSet<TaskId> = without_room.chain(put_off.iter().copied()).collect();
    let stored = match mode {
        _ if some.is_empty() => Vec::new(),
        InsertMode::All if some.len() < tasks.len() => vec![Inserted::Withheld; some.len()],
        _ => insert::insert(writer, &some, &put_off, mode).await?,
    };
    let mut stored = stored.into_iter();
    let answers = tasks.iter().zip(is_admitted).map(|(task, is_admitted)| {
        let full = || {
            let (tenant, name) = (task.lane.tenant.as_str(), task.lane.queue.as_str());
            let max_depth = room.get(&(tenant, name)).map_or(0, |room| room.max_depth);
            Inserted::QueueFull(FullQueue { name: name.to_owned(), max_depth })
        };
        let unanswered = || Fault::Corrupt("an insert did not answer for every task".to_owned());
        match hopeless.get(&task.id) {
            _ if is_admitted => stored.next().ok_or_else(unanswered),
            Some(missing) => Ok(Inserted::UnknownDependency(*missing)),
            None => Ok(full()),
        }
    });
    answers.collect()
}

/// The room of a queue.
#[derive(Clone, Copy)]
struct Room {
    max_depth: u64,
    /// How many more tasks it may have.
    left: usize,
}

/// Locks the queues against other submissions, and counts how many tasks each has room for.
async fn room<'a>(
    session: &Session,
    tasks: &[NewTask],
    bounded: &Bounded<'a>,
) -> Result<HashMap<(&'a str, &'a str), Room>, Fault> {
    let share = |places: &Vec<usize>| Partition::of(&tasks[places[0]].lane, SHARES).number();
    let shares: BTreeSet<u16> = bounded.values().map(share).collect();
    let locks: Vec<String> = shares.iter().map(|share| format!("SELECT pg_advisory_lock({CLASS}, {share})")).collect();
    let (tenants, queues): (Vec<&str>, Vec<&str>) = bounded.keys().copied().unzip();
    let locks = locks.join("; ");
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&tenants, &queues];
    let (locked, rows) = tokio::join!(biased; session.run(&locks), session.query(Sql::GateDepth, &parameters));
    locked?;
    let mut room = HashMap::new();
    for row in rows? {
        if let Some((queue, _)) = bounded.iter().nth(row::index(&row, 0)) {
            let (max_depth, live): (i64, i64) = (row.get(1), row.get(2));
            let left = usize::try_from(max_depth.saturating_sub(live)).unwrap_or(0);
            room.insert(*queue, Room { max_depth: u64::try_from(max_depth).unwrap_or(0), left });
        }
    }
    Ok(room)
}

/// The tasks without room that would be refused anyway, each with its missing dependency. Nothing
/// is locked for this: a later submission is checked again.
async fn hopeless(
    session: &Session,
    tasks: &[NewTask],
    is_admitted: &[bool],
) -> Result<HashMap<TaskId, TaskId>, Fault> {
    let depends = |(task, is_admitted): (&NewTask, &bool)| !is_admitted && !task.body.dependencies.ids.is_empty();
    if !tasks.iter().zip(is_admitted).any(depends) {
        return Ok(HashMap::new());
    }
    let status = |is_admitted: &bool| if *is_admitted { MemberStatus::New } else { MemberStatus::PutOff };
    let (statuses, none): (Vec<MemberStatus>, _) = (is_admitted.iter().map(status).collect(), HashSet::new());
    let batch = DependencyBatch::new(tasks, &statuses, &none);
    let outside: Vec<Uuid> = batch.outside().into_iter().map(TaskId::uuid).collect();
    let mut known = HashMap::new();
    for row in session.query(Sql::ParentLook, &[&outside]).await? {
        let state =
            row::state(&row, 2).ok_or_else(|| Fault::Corrupt("the state of a task cannot be read".to_owned()))?;
        known.insert(TaskId::from_uuid(row.get(0)), KnownParent { tenant: row.get(1), state });
    }
    let plans = tasks.iter().zip(is_admitted).zip(batch.plan(&known));
    let missing = plans.filter_map(|((task, is_admitted), plan)| match plan {
        MemberPlan::Unknown(missing) if !is_admitted => Some((task.id, missing)),
        _ => None,
    });
    Ok(missing.collect())
}

/// Which tasks are inserted: those with room, in their order, and those that were submitted before.
async fn admitted<'a>(
    session: &Session,
    tasks: &'a [NewTask],
    bounded: &Bounded<'a>,
    room: &HashMap<(&'a str, &'a str), Room>,
) -> Result<Vec<bool>, Fault> {
    let places: BTreeSet<usize> = bounded.values().flatten().copied().collect();
    let key = |place: usize| tasks[place].idempotency.as_ref().map(|idempotency| idempotency.key.as_str());
    let keyed: Vec<(&str, &str)> =
        places.iter().filter_map(|place| Some((tasks[*place].lane.tenant.as_str(), key(*place)?))).collect();
    let mut decided: HashMap<(&str, &str), bool> = HashMap::new();
    if !keyed.is_empty() {
        let (tenants, keys): (Vec<&str>, Vec<&str>) = keyed.iter().copied().unzip();
        for row in session.query(Sql::IdempotencyGet, &[&tenants, &keys]).await? {
            if let Some(known) = keyed.get(row::index(&row, 0)) {
                decided.insert(*known, true);
            }
        }
        let replaces = |task: &NewTask| task.idempotency.as_ref().is_some_and(|own| own.replace_final);
        if places.iter().any(|place| replaces(&tasks[*place])) {
            // A task that replaces another needs room like any new one.
            let replacing = places.iter().filter(|place| key(**place).is_some());
            let replacing: Vec<bool> = replacing.map(|place| replaces(&tasks[*place])).collect();
            for row in session.query(Sql::IdempotencyReplaceable, &[&tenants, &keys]).await? {
                let at = row::index(&row, 0);
                if replacing[at] {
                    decided.remove(&keyed[at]);
                }
            }
        }
    }
    let mut left: HashMap<&(&str, &str), usize> = room.iter().map(|(queue, room)| (queue, room.left)).collect();
    let mut is_admitted = vec![true; tasks.len()];
    for place in places {
        let lane = &tasks[place].lane;
        let same = key(place).map(|key| (lane.tenant.as_str(), key));
        if let Some(decision) = same.and_then(|same| decided.get(&same)) {
            is_admitted[place] = *decision;
            continue;
        }
        if let Some(left) = left.get_mut(&(lane.tenant.as_str(), lane.queue.as_str())) {
            is_admitted[place] = *left > 0;
            *left = left.saturating_sub(1);
        }
        if let Some(same) = same {
            decided.insert(same, is_admitted[place]);
        }
    }
    Ok(is_admitted)
}
