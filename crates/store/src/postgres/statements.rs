//! Every SQL statement of the store, by name.

macro_rules! statements {
    ($($name:ident => $text:expr,)+) => {
        /// The name of a statement.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Sql {
            $($name,)+
        }

        impl Sql {
            /// Every statement.
            pub(crate) const ALL: &[Sql] = &[$(Sql::$name,)+];

            /// Its text.
            pub(crate) const fn text(self) -> &'static str {
                match self {
                    $(Sql::$name => $text,)+
                }
            }
        }
    };
}

statements! {
    ClaimDue => include_str!("../sql/postgres/claim_due.sql"),
    CountsAdd => include_str!("../sql/postgres/counts_add.sql"),
    CountsFold => include_str!("../sql/postgres/counts_fold.sql"),
    CountsList => include_str!("../sql/postgres/counts_list.sql"),
    HistoryAhead => include_str!("../sql/postgres/history_ahead.sql"),
    HistoryMonthWalk => include_str!("../sql/postgres/history_month_walk.sql"),
    HistoryPartitions => include_str!("../sql/postgres/history_partitions.sql"),
    HistoryRemove => include_str!("../sql/postgres/history_remove.sql"),
    HistoryRestWalk => include_str!("../sql/postgres/history_rest_walk.sql"),
    HoldExtend => include_str!("../sql/postgres/hold_extend.sql"),
    HoldLook => include_str!("../sql/postgres/hold_look.sql"),
    IdempotencyBlocks => include_str!("../sql/postgres/idempotency_blocks.sql"),
    IdempotencyFree => include_str!("../sql/postgres/idempotency_free.sql"),
    IdempotencyGet => include_str!("../sql/postgres/idempotency_get.sql"),
    IdempotencyInsert => include_str!("../sql/postgres/idempotency_insert.sql"),
    Identity => include_str!("../sql/postgres/identity.sql"),
    InboxFront => include_str!("../sql/postgres/inbox_front.sql"),
    InboxKeysPrune => include_str!("../sql/postgres/inbox_keys_prune.sql"),
    InboxLimit => include_str!("../sql/postgres/inbox_limit.sql"),
    InboxOfTransaction => include_str!("../sql/postgres/inbox_of_transaction.sql"),
    InboxOne => include_str!("../sql/postgres/inbox_one.sql"),
    InboxRefusedPrune => include_str!("../sql/postgres/inbox_refused_prune.sql"),
    InboxSettle => include_str!("../sql/postgres/inbox_settle.sql"),
    InboxWatch => include_str!("../sql/postgres/inbox_watch.sql"),
    LaneFind => include_str!("../sql/postgres/lane_find.sql"),
    LaneFront => include_str!("../sql/postgres/lane_front.sql"),
    LaneGet => include_str!("../sql/postgres/lane_get.sql"),
    LaneMake => include_str!("../sql/postgres/lane_make.sql"),
    LaneNextDue => include_str!("../sql/postgres/lane_next_due.sql"),
    LanePage => include_str!("../sql/postgres/lane_page.sql"),
    LeaseAcquire => include_str!("../sql/postgres/lease_acquire.sql"),
    LeaseGet => include_str!("../sql/postgres/lease_get.sql"),
    LeaseHold => include_str!("../sql/postgres/lease_hold.sql"),
    LeaseRelease => include_str!("../sql/postgres/lease_release.sql"),
    LeaseRenew => include_str!("../sql/postgres/lease_renew.sql"),
    LedgerPrune => include_str!("../sql/postgres/ledger_prune.sql"),
    Lineage => include_str!("../sql/postgres/lineage.sql"),
    ListDeadNewest => include_str!("../sql/postgres/list_dead_newest.sql"),
    ListNewest => include_str!("../sql/postgres/list_newest.sql"),
    ListSoonest => include_str!("../sql/postgres/list_soonest.sql"),
    NodeBury => include_str!("../sql/postgres/node_bury.sql"),
    NodeList => include_str!("../sql/postgres/node_list.sql"),
    NodeSaw => include_str!("../sql/postgres/node_saw.sql"),
    NodeSilent => include_str!("../sql/postgres/node_silent.sql"),
    LogReplayed => include_str!("../sql/postgres/log_replayed.sql"),
    LogWritten => include_str!("../sql/postgres/log_written.sql"),
    Notify => include_str!("../sql/postgres/notify.sql"),
    Now => include_str!("../sql/postgres/now.sql"),
    Overdue => include_str!("../sql/postgres/overdue.sql"),
    OverdueSince => include_str!("../sql/postgres/overdue_since.sql"),
    PartitionHold => include_str!("../sql/postgres/partition_hold.sql"),
    PartitionLeave => include_str!("../sql/postgres/partition_leave.sql"),
    PartitionList => include_str!("../sql/postgres/partition_list.sql"),
    PartitionLock => include_str!("../sql/postgres/partition_lock.sql"),
    PartitionMake => include_str!("../sql/postgres/partition_make.sql"),
    PartitionMemberSaw => include_str!("../sql/postgres/partition_member_saw.sql"),
    PartitionTake => include_str!("../sql/postgres/partition_take.sql"),
    PartitionWrite => include_str!("../sql/postgres/partition_write.sql"),
    Probe => include_str!("../sql/postgres/probe.sql"),
    QuarantineGet => include_str!("../sql/postgres/quarantine_get.sql"),
    QuarantinePrune => include_str!("../sql/postgres/quarantine_prune.sql"),
    QuarantinePut => include_str!("../sql/postgres/quarantine_put.sql"),
    SchemaSteps => include_str!("../sql/postgres/schema_steps.sql"),
    StartLook => include_str!("../sql/postgres/start_look.sql"),
    TaskChange => include_str!("../sql/postgres/task_change.sql"),
    TaskEdit => include_str!("../sql/postgres/task_edit.sql"),
    TaskFinish => include_str!("../sql/postgres/task_finish.sql"),
    TaskGet => include_str!("../sql/postgres/task_get.sql"),
    TaskInsert => include_str!("../sql/postgres/task_insert.sql"),
    TaskInsertOnce => include_str!("../sql/postgres/task_insert_once.sql"),
    TaskLanes => include_str!("../sql/postgres/task_lanes.sql"),
    TaskLock => include_str!("../sql/postgres/task_lock.sql"),
    TaskPayloads => include_str!("../sql/postgres/task_payloads.sql"),
    TaskRedrive => include_str!("../sql/postgres/task_redrive.sql"),
    TaskTake => include_str!("../sql/postgres/task_take.sql"),
    UpkeepLock => include_str!("../sql/postgres/upkeep_lock.sql"),
    WorkerForget => include_str!("../sql/postgres/worker_forget.sql"),
    WorkerList => include_str!("../sql/postgres/worker_list.sql"),
    WorkerSaw => include_str!("../sql/postgres/worker_saw.sql"),
}

/// What a hand writes with. It has all of them prepared, so that a transaction can be sent without waiting in between.
pub(crate) const OF_HANDS: &[Sql] = &[
    Sql::ClaimDue,
    Sql::CountsAdd,
    Sql::HoldExtend,
    Sql::HoldLook,
    Sql::IdempotencyGet,
    Sql::IdempotencyInsert,
    Sql::LaneNextDue,
    Sql::LeaseHold,
    Sql::PartitionHold,
    Sql::StartLook,
    Sql::TaskChange,
    Sql::TaskEdit,
    Sql::TaskFinish,
    Sql::TaskGet,
    Sql::TaskInsert,
    Sql::TaskInsertOnce,
    Sql::TaskLock,
    Sql::TaskPayloads,
    Sql::TaskRedrive,
    Sql::TaskTake,
];

/// What a turn at the partitions is taken with, likewise.
pub(crate) const OF_TURNS: &[Sql] = &[
    Sql::Notify,
    Sql::PartitionLeave,
    Sql::PartitionLock,
    Sql::PartitionMake,
    Sql::PartitionMemberSaw,
    Sql::PartitionTake,
    Sql::PartitionWrite,
];

/// What takes from the inbox, likewise.
pub(crate) const OF_INBOX: &[Sql] = &[
    Sql::CountsAdd,
    Sql::IdempotencyGet,
    Sql::IdempotencyInsert,
    Sql::InboxFront,
    Sql::InboxOfTransaction,
    Sql::InboxOne,
    Sql::InboxSettle,
    Sql::InboxWatch,
    Sql::TaskInsert,
];
