//! What a job works with: a connection, and the state that its thread keeps between jobs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use punctual_core::clock::Clock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::By;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use rusqlite::Connection;
use tokio::sync::Notify;
use tracing::error;

use crate::columns::Unreadable;
use crate::limit_watch::LimitWatch;
use crate::queue_columns::QueueComplaints;
use crate::tally::TransactionTally;

use super::damage::DamageMonitor;
use super::fault::Fault;
use super::lanes::LaneDirectory;
use super::limits::LimitsCache;
use super::queue_tally::QueueTally;
use super::resolve::ReviewCursor;
use super::statements::{Sql, Statements};

/// The maximum number of unreadable rows that are logged.
const COMPLAINTS_MAX: usize = 10_000;

/// A connection and its thread's state. The writer's session writes, inside its transaction; the
/// sessions of the readers cannot.
pub(crate) struct Session<'c> {
    pub connection: &'c Connection,
    pub statements: Statements<'c>,
    pub lanes: LaneDirectory,
    pub tally: TransactionTally,
    pub queue_tally: QueueTally,
    pub limits: LimitsCache,
    /// Gets hints about freed places; only the writer has one.
    pub limit_watch: Option<Arc<LimitWatch>>,
    /// Whether the current transaction leaves notes for the resolver.
    pub has_notes: bool,
    /// Wakes the resolver; only the writer has one.
    pub resolver: Option<Arc<Notify>>,
    /// Where the round of reviews continues, if one is under way.
    pub review_round: Option<ReviewCursor>,
    pub node: NodeId,
    /// When a commit last failed, until commits are known to succeed again.
    pub failed_at: Option<Instant>,
    /// Whether a write found no room on the disk since the last batch.
    pub found_no_room: bool,
    /// How many more transactions guard their jobs by savepoints.
    pub guarded_left: u32,
    /// Gets faults that may mean a damaged file.
    pub damage: Arc<DamageMonitor>,
    pub clock: Arc<dyn Clock>,
    last_seq: Option<i64>,
    complaints: HashSet<i64>,
    pub queue_complaints: Arc<QueueComplaints>,
}

impl<'c> Session<'c> {
    pub(crate) fn new(
        connection: &'c Connection,
        damage: &Arc<DamageMonitor>,
        clock: Arc<dyn Clock>,
        node: NodeId,
        lanes: LaneDirectory,
    ) -> Self {
        Self {
            connection,
            statements: Statements::new(connection),
            lanes,
            tally: TransactionTally::default(),
            queue_tally: QueueTally::default(),
            limits: LimitsCache::default(),
            limit_watch: None,
            has_notes: false,
            resolver: None,
            review_round: None,
            node,
            failed_at: None,
            found_no_room: false,
            guarded_left: 0,
            damage: Arc::clone(damage),
            clock,
            last_seq: None,
            complaints: HashSet::new(),
            queue_complaints: Arc::default(),
        }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// This node, acting for `actor`.
    pub(crate) fn by<'a>(&self, now: Timestamp, actor: Actor<'a>) -> By<'a> {
        By { now, node: self.node, actor }
    }

    /// The number of a new task. A rolled back one leaves a gap.
    pub(crate) fn next_seq(&mut self) -> Result<i64, Fault> {
        let last = self.last_seq()?;
        self.last_seq = Some(last + 1);
        Ok(last + 1)
    }

    /// The number of the last task.
    pub(crate) fn last_seq(&mut self) -> Result<i64, Fault> {
        match self.last_seq {
            Some(last) => Ok(last),
            None => Ok(self.statements.get(Sql::BodyLast)?.query_row([], |row| row.get(0))?),
        }
    }

    /// Logs once that a final row cannot be read. (A live one is put in quarantine, which logs it.)
    pub(crate) fn complain(&mut self, seq: i64, id: TaskId, fault: Unreadable) {
        if self.complaints.len() < COMPLAINTS_MAX && self.complaints.insert(seq) {
            error!(task.id = %id, column = fault.0, "cannot read a finished task; it is left out of listings");
        }
    }
}
