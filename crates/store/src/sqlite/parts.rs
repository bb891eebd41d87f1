//! Splits large calls into parts, so that small calls can pass them.
//!
//! `ports` calls it. A part is committed by itself and may fail by itself. Every submission and
//! every change is conditional by itself, so the number of transactions makes no difference. A
//! claim that took tasks in one part returns them, even if other parts fail.

use std::sync::Arc;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::state::Change;
use punctual_core::store::{Applied, Claim, Claimed, Inserted, StoreError};
use punctual_core::task::{NewTask, limits};

use super::fault::Fault;
use super::job_queue::{PART_ROWS, WriteClass};
use super::session::Session;
use super::writer::WriterHandle;
use super::{apply, claim, insert};
use crate::batch_parts::parts_of;
use crate::weights;
use crate::write_queue::Weight;

/// Inserts tasks, many of them in parts. Tasks that depend on each other are in one part.
pub(crate) async fn insert(writer: &WriterHandle, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
    if tasks.len() <= PART_ROWS {
        let weight = weights::of_insert(&tasks);
        return writer.call(WriteClass::Submission, weight, move |session| insert::insert(session, tasks)).await;
    }
    let parts = parts_of(tasks, PART_ROWS).into_iter().map(|part| {
        let weight = weights::of_insert(&part);
        (weight, move |session: &mut Session<'_>| insert::insert(session, part))
    });
    join(writer.call_in_parts(WriteClass::Submission, parts.collect()).await?)
}

/// Inserts all tasks or none, in one part.
pub(crate) async fn insert_all(writer: &WriterHandle, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
    let weight = weights::of_insert(&tasks);
    writer.call(WriteClass::Submission, weight, move |session| insert::insert_all(session, tasks)).await
}

/// Applies changes, many of them in parts.
pub(crate) async fn apply(writer: &WriterHandle, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
    if changes.len() <= PART_ROWS {
        let weight = weights::of_changes(&changes);
        return writer.call(WriteClass::Progress, weight, move |session| apply::apply(session, &changes)).await;
    }
    let mut parts = Vec::with_capacity(changes.len().div_ceil(PART_ROWS));
    let mut changes = changes.into_iter();
    loop {
        let part: Vec<(TaskId, Change)> = changes.by_ref().take(PART_ROWS).collect();
        if part.is_empty() {
            break;
        }
        let weight = weights::of_changes(&part);
        parts.push((weight, move |session: &mut Session<'_>| apply::apply(session, &part)));
    }
    join(writer.call_in_parts(WriteClass::Progress, parts).await?)
}

/// The answers of all parts in order. If some parts are committed and others failed, nobody can say
/// that nothing was changed.
fn join<T>(parts: Vec<Result<Vec<T>, StoreError>>) -> Result<Vec<T>, StoreError> {
    let is_any_committed = parts.iter().any(Result::is_ok);
    let mut answers = Vec::new();
    for part in parts {
        answers.extend(part.map_err(|error| if is_any_committed { partial_failure(&error) } else { error })?);
    }
    Ok(answers)
}

/// Makes claims, large ones in parts.
pub(crate) async fn claim(writer: &WriterHandle, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
    let tasks: usize = claims.iter().map(|claim| claim.limit).fold(0, usize::saturating_add);
    let lanes: usize = claims.iter().map(|claim| claim.lanes.len()).sum();
    let (count, answers) = (tasks.div_ceil(PART_ROWS).min(PARTS_MAX), claims.len());
    if count < 2 {
        let weight = Weight { bytes: Weight::SMALL.bytes, rows: tasks + lanes };
        return writer.call(WriteClass::Progress, weight, move |session| claim::claim(session, &claims)).await;
    }
    let remainder = Arc::new(Mutex::new(ClaimRemainder::new(claims)));
    let each = |_| {
        let remainder = Arc::clone(&remainder);
        let rows = tasks.div_ceil(count).min(1 << 20).saturating_add(lanes);
        (Weight { bytes: Weight::SMALL.bytes, rows }, move |session: &mut Session<'_>| {
            claim_next_part(session, &remainder, count)
        })
    };
    let answers_of_parts = writer.call_in_parts(WriteClass::Progress, (0..count).map(each).collect()).await?;
    let mut claimed: Vec<Claimed> = vec![Claimed::default(); answers];
    let (mut failure, mut any) = (None, false);
    for part in answers_of_parts {
        match part {
            Ok(part) => {
                any = true;
                claimed.iter_mut().zip(part).for_each(|(whole, part)| add(whole, part));
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if !any => Err(error),
        _ => Ok(claimed),
    }
}

/// More parts are of no use: a claim of this size is bounded by its bytes.
const PARTS_MAX: usize = 64;

/// What is left of claims for their next parts.
struct ClaimRemainder {
    claims: Vec<Claim>,
    /// The bytes of payload that each claim has taken.
    bytes: Vec<usize>,
    parts: usize,
}

impl ClaimRemainder {
    fn new(claims: Vec<Claim>) -> Self {
        let bytes = vec![0; claims.len()];
        Self { claims, bytes, parts: 0 }
    }

    /// The next part of the claims; none when nothing is left of them.
    fn next_part(&mut self, most: usize) -> Option<Vec<Claim>> {
        let mut left = most;
        let part: Vec<Claim> = self
            .claims
            .iter()
            .map(|claim| {
                let limit = claim.limit.min(left);
                left -= limit;
                Claim { limit, ..claim.clone() }
            })
            .collect();
        (left < most).then_some(part)
    }

    /// Subtracts what a part has taken.
    fn subtract(&mut self, part: &[Claim], claimed: &[Claimed]) {
        for (at, (asked, got)) in part.iter().zip(claimed).enumerate() {
            let claim = &mut self.claims[at];
            self.bytes[at] += got.tasks.iter().map(|task| task.body.payload.get().len()).sum::<usize>();
            let is_over =
                got.tasks.len() < asked.limit || !got.not_owned.is_empty() || self.bytes[at] >= EARLIER_BYTES_MAX;
            claim.limit = if is_over && asked.limit > 0 { 0 } else { claim.limit - got.tasks.len() };
            for task in &got.tasks {
                // A lane may be named twice: a task counts for the first that has room left.
                if let Some((_, most)) = claim.lanes.iter_mut().find(|(lane, most)| *lane == task.lane.id && *most > 0)
                {
                    *most -= 1;
                }
            }
        }
    }
}

/// A claim that has taken this many bytes in earlier parts is over. So it never exceeds its bound
/// by much.
const EARLIER_BYTES_MAX: usize = limits::CLAIM_PAYLOAD / 2;

fn claim_next_part(
    session: &mut Session<'_>,
    remainder: &Mutex<ClaimRemainder>,
    count: usize,
) -> Result<Vec<Claimed>, Fault> {
    let mut remainder = remainder.lock();
    remainder.parts += 1;
    // The last part takes everything that is left: nothing is lost by rounding.
    let most = if remainder.parts == count { usize::MAX } else { PART_ROWS };
    let Some(part) = remainder.next_part(most) else { return Ok(Vec::new()) };
    let claimed = claim::claim(session, &part)?;
    remainder.subtract(&part, &claimed);
    Ok(claimed)
}

fn add(whole: &mut Claimed, part: Claimed) {
    whole.tasks.extend(part.tasks);
    whole.expired += part.expired;
    whole.not_owned.extend(part.not_owned);
    // The later part is up to date.
    whole.next_due.retain(|(lane, _)| !part.next_due.iter().any(|(other, _)| other == lane));
    whole.next_due.extend(part.next_due);
    whole.limited.retain(|held| !part.limited.iter().any(|other| other.lane == held.lane));
    whole.limited.extend(part.limited);
}

/// The error of a call whose other parts are committed.
fn partial_failure(error: &StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(_) => error.clone(),
        other => StoreError::Unavailable(format!("a part of the call was not written: {other}")),
    }
}
