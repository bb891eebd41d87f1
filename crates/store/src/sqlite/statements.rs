//! Every SQL statement of the store, by name, and the ones that a session has prepared.
//!
//! A statement is prepared once for the life of its connection and found by its place in an
//! array: looking it up by its text for every task would cost a tenth of running it.

use rusqlite::{Connection, Statement};

use super::fault::Fault;
use crate::sql::statements;

statements! {
    Begin => "BEGIN",
    BeginImmediate => "BEGIN IMMEDIATE",
    BodyDependsOn => include_str!("../sql/sqlite/body_depends_on.sql"),
    BodyOrdering => include_str!("../sql/sqlite/body_ordering.sql"),
    ChildBlockers => include_str!("../sql/sqlite/child_blockers.sql"),
    ChildCount => include_str!("../sql/sqlite/child_count.sql"),
    ChildGet => include_str!("../sql/sqlite/child_get.sql"),
    Commit => "COMMIT",
    DeadLetter => include_str!("../sql/sqlite/dead_letter.sql"),
    EdgeAdd => include_str!("../sql/sqlite/edge_add.sql"),
    EdgeFirst => include_str!("../sql/sqlite/edge_first.sql"),
    EdgeList => include_str!("../sql/sqlite/edge_list.sql"),
    EdgeRemove => include_str!("../sql/sqlite/edge_remove.sql"),
    ForecastAdd => include_str!("../sql/sqlite/forecast_add.sql"),
    ForecastList => include_str!("../sql/sqlite/forecast_list.sql"),
    ForecastPast => include_str!("../sql/sqlite/forecast_past.sql"),
    ForecastPrune => include_str!("../sql/sqlite/forecast_prune.sql"),
    ForecastSchedules => include_str!("../sql/portable/forecast_schedules.sql"),
    ForecastSchedulesCount => include_str!("../sql/portable/forecast_schedules_count.sql"),
    IdempotencyDrop => include_str!("../sql/sqlite/idempotency_drop.sql"),
    OrderGet => include_str!("../sql/sqlite/order_get.sql"),
    OrderHeld => include_str!("../sql/sqlite/order_held.sql"),
    OrderNote => include_str!("../sql/sqlite/order_note.sql"),
    OrderNotes => include_str!("../sql/sqlite/order_notes.sql"),
    OrderNotesRemove => include_str!("../sql/sqlite/order_notes_remove.sql"),
    OrderPut => include_str!("../sql/sqlite/order_put.sql"),
    OrderRemove => include_str!("../sql/sqlite/order_remove.sql"),
    ParentAwait => include_str!("../sql/sqlite/parent_await.sql"),
    ParentHeld => include_str!("../sql/sqlite/parent_held.sql"),
    ParentHeldRemove => include_str!("../sql/sqlite/parent_held_remove.sql"),
    ParentHold => include_str!("../sql/sqlite/parent_hold.sql"),
    ParentLook => include_str!("../sql/sqlite/parent_look.sql"),
    ParentNote => include_str!("../sql/sqlite/parent_note.sql"),
    ParentNotes => include_str!("../sql/sqlite/parent_notes.sql"),
    ParentNotesRemove => include_str!("../sql/sqlite/parent_notes_remove.sql"),
    Rollback => "ROLLBACK",
    Savepoint => "SAVEPOINT job",
    Release => "RELEASE job",
    RollbackToSavepoint => "ROLLBACK TO job",
    BodyDelete => include_str!("../sql/sqlite/body_delete.sql"),
    BodyEdit => include_str!("../sql/sqlite/body_edit.sql"),
    BodyInsert => include_str!("../sql/sqlite/body_insert.sql"),
    BodyLast => include_str!("../sql/sqlite/body_last.sql"),
    BreakerChange => include_str!("../sql/portable/breaker_change.sql"),
    BreakerClose => include_str!("../sql/sqlite/breaker_close.sql"),
    BreakerCountsForget => include_str!("../sql/sqlite/breaker_counts_forget.sql"),
    BreakerCountsPrune => include_str!("../sql/portable/breaker_counts_prune.sql"),
    BreakerCountsPut => include_str!("../sql/sqlite/breaker_counts_put.sql"),
    BreakerCountsSum => include_str!("../sql/portable/breaker_counts_sum.sql"),
    BreakerGet => include_str!("../sql/portable/breaker_get.sql"),
    BreakerList => include_str!("../sql/portable/breaker_list.sql"),
    BreakerOpen => include_str!("../sql/portable/breaker_open.sql"),
    BucketDrop => include_str!("../sql/sqlite/bucket_drop.sql"),
    BucketGet => include_str!("../sql/sqlite/bucket_get.sql"),
    BucketList => include_str!("../sql/sqlite/bucket_list.sql"),
    BucketPut => include_str!("../sql/sqlite/bucket_put.sql"),
    ClaimDue => include_str!("../sql/sqlite/claim_due.sql"),
    CountsAdd => include_str!("../sql/sqlite/counts_add.sql"),
    CountsList => include_str!("../sql/sqlite/counts_list.sql"),
    HeldExpired => include_str!("../sql/sqlite/held_expired.sql"),
    HeldFirstNode => include_str!("../sql/sqlite/held_first_node.sql"),
    HeldNextNode => include_str!("../sql/sqlite/held_next_node.sql"),
    HeldWithoutEnd => include_str!("../sql/sqlite/held_without_end.sql"),
    HistoryDelete => include_str!("../sql/sqlite/history_delete.sql"),
    HistoryInsert => include_str!("../sql/sqlite/history_insert.sql"),
    HistoryLook => include_str!("../sql/sqlite/history_look.sql"),
    HistoryRead => include_str!("../sql/sqlite/history_read.sql"),
    HistoryPurge => include_str!("../sql/sqlite/history_purge.sql"),
    HistoryRedrive => include_str!("../sql/sqlite/history_redrive.sql"),
    HistoryRemove => include_str!("../sql/sqlite/history_remove.sql"),
    HistoryWalk => include_str!("../sql/sqlite/history_walk.sql"),
    HoldExtend => include_str!("../sql/sqlite/hold_extend.sql"),
    HoldJudge => include_str!("../sql/sqlite/hold_judge.sql"),
    HoldLook => include_str!("../sql/sqlite/hold_look.sql"),
    IdAtOrBefore => include_str!("../sql/sqlite/id_at_or_before.sql"),
    IdDelete => include_str!("../sql/sqlite/id_delete.sql"),
    IdGet => include_str!("../sql/sqlite/id_get.sql"),
    IdInsert => include_str!("../sql/sqlite/id_insert.sql"),
    IdempotencyFree => include_str!("../sql/sqlite/idempotency_free.sql"),
    IdempotencyOwner => include_str!("../sql/portable/idempotency_owner.sql"),
    IdempotencyInsert => include_str!("../sql/sqlite/idempotency_insert.sql"),
    IdempotencyWalk => include_str!("../sql/sqlite/idempotency_walk.sql"),
    LaneCounts => include_str!("../sql/sqlite/lane_counts.sql"),
    LaneFind => include_str!("../sql/sqlite/lane_find.sql"),
    LaneGet => include_str!("../sql/sqlite/lane_get.sql"),
    LaneHeadAfter => include_str!("../sql/sqlite/lane_head_after.sql"),
    LaneInsert => include_str!("../sql/sqlite/lane_insert.sql"),
    LaneNextDue => include_str!("../sql/sqlite/lane_next_due.sql"),
    LaneWaiting => include_str!("../sql/sqlite/lane_waiting.sql"),
    LanesBefore => include_str!("../sql/sqlite/lanes_before.sql"),
    LeaseAcquire => include_str!("../sql/sqlite/lease_acquire.sql"),
    LeaseFreeAll => include_str!("../sql/sqlite/lease_free_all.sql"),
    LeaseGet => include_str!("../sql/portable/lease_get.sql"),
    LeaseHold => include_str!("../sql/sqlite/lease_hold.sql"),
    LeaseRelease => include_str!("../sql/portable/lease_release.sql"),
    LeaseRenew => include_str!("../sql/portable/lease_renew.sql"),
    ListDeadNewest => include_str!("../sql/sqlite/list_dead_newest.sql"),
    ListFinalLater => include_str!("../sql/sqlite/list_final_later.sql"),
    ListFinalNewest => include_str!("../sql/sqlite/list_final_newest.sql"),
    ListFinalSameTime => include_str!("../sql/sqlite/list_final_same_time.sql"),
    ListLiveLater => include_str!("../sql/sqlite/list_live_later.sql"),
    ListLiveNewest => include_str!("../sql/sqlite/list_live_newest.sql"),
    ListLiveSameTime => include_str!("../sql/sqlite/list_live_same_time.sql"),
    NodeBury => include_str!("../sql/sqlite/node_bury.sql"),
    NodeDied => include_str!("../sql/sqlite/node_died.sql"),
    NodeList => include_str!("../sql/portable/node_list.sql"),
    NodeSaw => include_str!("../sql/portable/node_saw.sql"),
    OccurrenceBuffered => include_str!("../sql/sqlite/occurrence_buffered.sql"),
    OccurrenceForget => include_str!("../sql/sqlite/occurrence_forget.sql"),
    OccurrenceList => include_str!("../sql/portable/occurrence_list.sql"),
    OccurrencePrune => include_str!("../sql/sqlite/occurrence_prune.sql"),
    OccurrencePut => include_str!("../sql/sqlite/occurrence_put.sql"),
    OccurrenceFinished => include_str!("../sql/sqlite/occurrence_finished.sql"),
    OccurrenceSettle => include_str!("../sql/sqlite/occurrence_settle.sql"),
    OccurrenceUnwatch => include_str!("../sql/sqlite/occurrence_unwatch.sql"),
    OccurrenceWatched => include_str!("../sql/sqlite/occurrence_watched.sql"),
    PartitionFree => include_str!("../sql/sqlite/partition_free.sql"),
    PartitionFreeAll => include_str!("../sql/sqlite/partition_free_all.sql"),
    PartitionHold => include_str!("../sql/sqlite/partition_hold.sql"),
    PartitionList => include_str!("../sql/portable/partition_list.sql"),
    PartitionLock => include_str!("../sql/sqlite/partition_lock.sql"),
    PartitionMake => include_str!("../sql/portable/partition_make.sql"),
    PartitionMemberDrop => include_str!("../sql/sqlite/partition_member_drop.sql"),
    PartitionMemberLeave => include_str!("../sql/sqlite/partition_member_leave.sql"),
    PartitionMemberLeaveAll => include_str!("../sql/sqlite/partition_member_leave_all.sql"),
    PartitionMemberList => include_str!("../sql/sqlite/partition_member_list.sql"),
    PartitionMemberPut => include_str!("../sql/sqlite/partition_member_put.sql"),
    PartitionWrite => include_str!("../sql/sqlite/partition_write.sql"),
    ProbeRead => include_str!("../sql/sqlite/probe_read.sql"),
    ProbeWrite => include_str!("../sql/sqlite/probe_write.sql"),
    QuarantineCount => include_str!("../sql/sqlite/quarantine_count.sql"),
    QuarantineGet => include_str!("../sql/sqlite/quarantine_get.sql"),
    QuarantineInsert => include_str!("../sql/sqlite/quarantine_insert.sql"),
    QuarantineRemove => include_str!("../sql/sqlite/quarantine_remove.sql"),
    QuarantineWalk => include_str!("../sql/sqlite/quarantine_walk.sql"),
    ScheduleAt => include_str!("../sql/sqlite/schedule_at.sql"),
    ScheduleDue => include_str!("../sql/portable/schedule_due.sql"),
    ScheduleGet => include_str!("../sql/portable/schedule_get.sql"),
    ScheduleInsert => include_str!("../sql/portable/schedule_insert.sql"),
    ScheduleList => include_str!("../sql/portable/schedule_list.sql"),
    ScheduleNamed => include_str!("../sql/portable/schedule_named.sql"),
    ScheduleNextCheck => include_str!("../sql/portable/schedule_next_check.sql"),
    ScheduleRemove => include_str!("../sql/sqlite/schedule_remove.sql"),
    ScheduleReplace => include_str!("../sql/portable/schedule_replace.sql"),
    ScheduleAdvance => include_str!("../sql/sqlite/schedule_advance.sql"),
    QueueCounts => include_str!("../sql/sqlite/queue_counts.sql"),
    QueueGet => include_str!("../sql/sqlite/queue_get.sql"),
    QueueLanes => include_str!("../sql/portable/queue_lanes.sql"),
    QueueNames => include_str!("../sql/sqlite/queue_names.sql"),
    QueuePut => include_str!("../sql/portable/queue_put.sql"),
    QueueSpecial => include_str!("../sql/portable/queue_special.sql"),
    QueueUsed => include_str!("../sql/portable/queue_used.sql"),
    TaskAskToStop => include_str!("../sql/sqlite/task_ask_to_stop.sql"),
    TaskChange => include_str!("../sql/sqlite/task_change.sql"),
    TaskDelete => include_str!("../sql/sqlite/task_delete.sql"),
    TaskEdit => include_str!("../sql/sqlite/task_edit.sql"),
    TaskIsAstray => include_str!("../sql/sqlite/task_is_astray.sql"),
    TaskLeave => include_str!("../sql/sqlite/task_leave.sql"),
    TaskInsert => include_str!("../sql/sqlite/task_insert.sql"),
    TaskLanePlace => include_str!("../sql/sqlite/task_lane_place.sql"),
    TaskLook => include_str!("../sql/sqlite/task_look.sql"),
    TaskPlace => include_str!("../sql/sqlite/task_place.sql"),
    TaskRead => include_str!("../sql/sqlite/task_read.sql"),
    TaskStandings => include_str!("../sql/sqlite/task_standings.sql"),
    TaskName => include_str!("../sql/sqlite/task_name.sql"),
    TurnBefore => include_str!("../sql/sqlite/turn_before.sql"),
    TurnFirst => include_str!("../sql/sqlite/turn_first.sql"),
    TurnGive => include_str!("../sql/sqlite/turn_give.sql"),
    TurnHolder => include_str!("../sql/sqlite/turn_holder.sql"),
    TurnPlace => include_str!("../sql/sqlite/turn_place.sql"),
    TurnTake => include_str!("../sql/sqlite/turn_take.sql"),
    WaitingExpired => include_str!("../sql/sqlite/waiting_expired.sql"),
    WorkerForget => include_str!("../sql/portable/worker_forget.sql"),
    WorkerHolds => include_str!("../sql/sqlite/worker_holds.sql"),
    WorkerList => include_str!("../sql/portable/worker_list.sql"),
    WorkerSaw => include_str!("../sql/sqlite/worker_saw.sql"),
}

/// The statements that were used on a connection so far.
pub(crate) struct Statements<'c> {
    connection: &'c Connection,
    prepared: Vec<Option<Statement<'c>>>,
}

impl<'c> Statements<'c> {
    pub(crate) fn new(connection: &'c Connection) -> Self {
        Self { connection, prepared: Sql::ALL.iter().map(|_| None).collect() }
    }

    /// The statement, ready to be run.
    pub(crate) fn get(&mut self, sql: Sql) -> Result<&mut Statement<'c>, Fault> {
        let place = &mut self.prepared[sql as usize];
        match place {
            Some(statement) => Ok(statement),
            None => Ok(place.insert(self.connection.prepare(sql.text())?)),
        }
    }

    /// Two statements, to run the second over the rows of the first.
    pub(crate) fn two(&mut self, first: Sql, second: Sql) -> Result<[&mut Statement<'c>; 2], Fault> {
        self.get(first)?;
        self.get(second)?;
        let places = self.prepared.get_disjoint_mut([first as usize, second as usize]);
        let places = places.expect("invariant: the two are different and have places");
        Ok(places.map(|place| place.as_mut().expect("invariant: it was prepared above")))
    }

    /// Runs a statement that has neither parameters nor rows.
    pub(crate) fn run(&mut self, sql: Sql) -> Result<(), Fault> {
        self.get(sql)?.execute([])?;
        Ok(())
    }
}
