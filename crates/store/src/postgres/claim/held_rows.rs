//! Writes the changes of claims and starts: rows that this transaction has locked become held.

use std::collections::HashMap;

use punctual_core::json::Json;
use punctual_core::state::{Change, State};
use punctual_core::task::Hold;
use punctual_core::trail::Trail;
use tokio_postgres::Row;
use uuid::Uuid;

use crate::columns::{self, node_column, number_column};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::row::{class_numbers, sparse, state_column};
use crate::postgres::statements::Sql;
use crate::postgres::tid::Tid;

/// A locked row and its change to a held state.
pub(crate) struct HeldRow<'a> {
    pub tid: Tid,
    pub change: &'a Change,
}

impl HeldRow<'_> {
    /// By how much the version grows.
    fn growth(&self) -> u64 {
        self.change.version - self.change.expected_version
    }

    /// Whether everything but the trail and the version is equal.
    fn is_alike(&self, other: &Self) -> bool {
        (self.change.to, self.growth(), &self.change.hold, self.change.attempts.is_some())
            == (other.change.to, other.growth(), &other.change.hold, other.change.attempts.is_some())
    }

    fn holder(&self, runs: bool) -> Option<&str> {
        let hold = self.change.hold.as_ref().filter(|_| (self.change.to == State::Running) == runs);
        hold.map(|hold| hold.worker.as_str())
    }

    fn hold(&self, column: fn(&Hold) -> i64) -> Option<i64> {
        self.change.hold.as_ref().map(column)
    }
}

/// Writes the changes. Fails, and the transaction with it, unless all are written. Returns where
/// the rows lie then: the index of each, and its location.
pub(crate) async fn write(session: &Session, takes: &[HeldRow<'_>]) -> Result<Vec<(usize, Tid)>, Fault> {
    if takes.is_empty() {
        return Ok(Vec::new());
    }
    // Rows of one claim are neighbours and mostly have the same timeout.
    let classes: Vec<&[HeldRow<'_>]> = takes.chunk_by(HeldRow::is_alike).collect();
    let class = class_numbers(&classes);
    let tid: Vec<Tid> = takes.iter().map(|take| take.tid).collect();
    let expected: Vec<i64> = takes.iter().map(|take| number_column(take.change.expected_version)).collect();
    let trail: Vec<&[u8]> = takes.iter().map(|take| take.change.trail.as_bytes()).collect();
    let kept_trail = takes.iter().map(|take| take.change.kept_trail.as_ref().map(Trail::as_bytes));
    let kept_trail: Vec<Option<&[u8]>> = sparse(kept_trail.collect());

    let first = || classes.iter().map(|class| &class[0]);
    let state: Vec<i16> = first().map(|take| state_column(take.change.to)).collect();
    let growth: Vec<i64> = first().map(|take| number_column(take.growth())).collect();
    // A claim counts one attempt, a start none.
    let counted: Vec<i32> = first().map(|take| i32::from(take.change.attempts.is_some())).collect();
    let worker: Vec<Option<&str>> = first().map(|take| take.holder(true)).collect();
    let holder: Vec<Option<&str>> = first().map(|take| take.holder(false)).collect();
    let node: Vec<Option<i64>> = first().map(|take| take.change.hold.as_ref()?.node.map(node_column)).collect();
    let since: Vec<Option<i64>> = first().map(|take| take.hold(|hold| hold.since.as_millis())).collect();
    let until: Vec<Option<i64>> = first().map(|take| take.hold(|hold| hold.expires_at.as_millis())).collect();
    let deadline: Vec<Option<i64>> = first().map(|take| take.hold(|hold| hold.deadline_at.as_millis())).collect();
    let lease: Vec<Option<i64>> = first().map(|take| take.hold(|hold| number_column(hold.lease_millis))).collect();
    let rows = session
        .query(
            Sql::TaskTake,
            &[
                &since,
                &tid,
                &expected,
                &class,
                &trail,
                &state,
                &growth,
                &counted,
                &worker,
                &holder,
                &node,
                &until,
                &deadline,
                &lease,
                &kept_trail,
            ],
        )
        .await?;
    let written = rows.first().map(|row| (row.get::<_, Vec<i64>>(1), row.get::<_, Vec<Tid>>(2)));
    let (numbers, places) = written.unwrap_or_default();
    let index = |number: i64| usize::try_from(number - 1).expect("invariant: SQL counts from 1");
    Ok(numbers.into_iter().map(index).zip(places).collect())
}

/// The payloads that were too large to be read with their tasks. Unreadable ones are left out.
pub(crate) async fn payloads(session: &Session, large: &[Uuid]) -> Result<HashMap<Uuid, Json>, Fault> {
    if large.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = session.query(Sql::TaskPayloads, &[&large]).await?;
    let payload = |row: &Row| Some((row.get(0), columns::json(row.get(1), "payload").ok()?));
    Ok(rows.iter().filter_map(payload).collect())
}
