//! The writers: connections that write, each driven by a task of its own.
//!
//! A writer takes a batch of one verb from the [`WriteQueues`], runs it in one transaction with
//! set-based statements, and answers after the commit. Only the writer touches its connection, so
//! a caller that stops waiting never leaves a transaction open. When the connection is lost, the
//! callers of the batch learn that its outcome is unknown. The writer reconnects; the other calls
//! wait in their queues.

mod in_doubt;
mod verbs;
mod write_queues;

use std::any::type_name_of_val;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::backoff::ExponentialBackoff;
use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::state::By;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use tracing::{error, info, warn};

use super::claim::held_places::HeldPlaces;
use super::claim::scan_cursors::ScanCursors;
use super::cluster::NodeLock;
use super::cluster::notifier::Notifier;
use super::connection::{Address, Parameters, Session};
use super::fault::Fault;
use super::forecast::Minutes;
use super::lanes::LaneDirectory;
use super::limits::LimitsCache;
use super::outbox::{FirstNotes, Outbox, OutboxNotes};
use super::overdue::LowWatermarks;
use super::statements::{OF_WRITERS, Sql};
use super::{apply, claim, extend, insert::lane_room, quarantine, resolve, schedules, start};
use crate::tally::{self, TransactionTally};

pub(crate) use in_doubt::TasksInDoubt;
use verbs::{JobReply, Jobs, WriteBatch};
pub(crate) use write_queues::WriteQueues;

/// How long a writer pauses before it tries to connect again.
const BACKOFF: ExponentialBackoff = ExponentialBackoff::new(Duration::from_millis(50), Duration::from_secs(2));

/// How often a transaction is tried if other transactions are in its way.
const TRIES_MAX: usize = 4;

/// What the writers of a store share.
pub(crate) struct WriterShared {
    pub address: Address,
    pub write_queues: Arc<WriteQueues>,
    pub lanes: Arc<LaneDirectory>,
    /// The maximum number of lanes of a tenant.
    pub tenant_lanes: u64,
    pub cursors: Arc<ScanCursors>,
    pub held_places: HeldPlaces,
    pub low_watermarks: LowWatermarks,
    pub notifier: Notifier,
    pub in_doubt: TasksInDoubt,
    pub limits: LimitsCache,
    pub outbox: Outbox,
    pub clock: Arc<dyn Clock>,
    pub node: NodeId,
    pub node_lock: NodeLock,
}

/// A connection that writes, and what a transaction works with.
pub(crate) struct Writer {
    pub shared: Arc<WriterShared>,
    pub session: Session,
    pub tally: TransactionTally,
    /// The notes that the transaction under way leaves for the resolver.
    pub notes: OutboxNotes,
    /// The shard of `counts` that this writer adds to: the column `slot`.
    pub slot: i32,
    /// How long a statement may wait for a lock; none if the session has its first setting.
    lock_timeout: Option<Duration>,
}

impl Writer {
    /// A writer over a new session.
    pub(crate) fn new(shared: Arc<WriterShared>, session: Session, slot: i32) -> Self {
        let (tally, notes) = (TransactionTally::default(), OutboxNotes::default());
        Self { shared, session, tally, notes, slot, lock_timeout: None }
    }
}

impl WriterShared {
    /// Serves until the queues are closed and empty. A writer that panics is replaced.
    /// It begins with `session`, if there is one.
    pub(crate) async fn run_writer(self: Arc<Self>, slot: i32, mut session: Option<Session>) {
        loop {
            let writer = tokio::spawn(Arc::clone(&self).serve(slot, session.take()));
            match writer.await {
                Err(fault) if fault.is_panic() => {
                    error!("a PostgreSQL writer panicked; its calls fail, and another starts");
                }
                _ => return,
            }
        }
    }

    async fn serve(self: Arc<Self>, slot: i32, mut first: Option<Session>) {
        let (mut failures, mut is_failing) = (0_u32, false);
        loop {
            let opened = match first.take() {
                Some(session) => session.prepare(OF_WRITERS).await.map(|()| session),
                None => Session::open(&self.address, OF_WRITERS).await,
            };
            match opened {
                Ok(session) => {
                    if std::mem::take(&mut is_failing) {
                        info!("PostgreSQL answers again");
                    }
                    failures = 0;
                    match Writer::new(Arc::clone(&self), session, slot).work().await {
                        Ok(()) => return,
                        Err(fault) => {
                            warn!(error = %fault.to_store_error(), "a writer lost its connection to PostgreSQL; reconnecting");
                        }
                    }
                }
                Err(fault) => {
                    if !std::mem::replace(&mut is_failing, true) {
                        warn!(error = %fault.to_store_error(), "cannot connect to PostgreSQL; retrying");
                    }
                }
            }
            // Closing the store does not wait for a lost server.
            if self.write_queues.is_closed() {
                self.write_queues.abandon();
                return;
            }
            failures = failures.saturating_add(1);
            tokio::time::sleep(BACKOFF.pause(failures, rand::random())).await;
        }
    }
}

impl Writer {
    /// Serves until the queues are closed, or until the connection is lost.
    async fn work(mut self) -> Result<(), Fault> {
        let write_queues = Arc::clone(&self.shared.write_queues);
        loop {
            let taken = tokio::select! {
                biased;
                // A lost connection is replaced before the next call needs it.
                () = self.session.ended() => return Err(Fault::Silent),
                taken = write_queues.take() => taken,
            };
            let Some((batch, slot)) = taken else { return Ok(()) };
            self.bound_lock_waits(slot.lock_timeout()).await?;
            match batch {
                WriteBatch::Insert(jobs) => self.run_batch(jobs, lane_room::insert).await?,
                // One transaction per call, here and below, so a refusal affects only that call.
                WriteBatch::InsertAll(jobs) => {
                    for job in jobs {
                        self.run_batch(vec![job], lane_room::insert_all).await?;
                    }
                }
                WriteBatch::Claim(jobs) => self.run_batch(jobs, claim::claim).await?,
                WriteBatch::Start(jobs) => self.run_batch(jobs, start::start).await?,
                WriteBatch::Apply(jobs) => self.run_batch(jobs, apply::apply).await?,
                WriteBatch::ApplyAs(jobs) => {
                    for job in jobs {
                        self.run_batch(vec![job], apply::apply_as).await?;
                    }
                }
                WriteBatch::Extend(jobs) => self.run_batch(jobs, extend::extend).await?,
                WriteBatch::Quarantine(jobs) => self.run_batch(jobs, quarantine::put_away_unreadable).await?,
                WriteBatch::Resolve(jobs) => self.run_batch(jobs, resolve::resolve).await?,
                WriteBatch::Advance(jobs) => {
                    for job in jobs {
                        self.run_batch(vec![job], schedules::advance).await?;
                    }
                }
            }
        }
    }

    /// Sets how long a statement may wait for a lock.
    async fn bound_lock_waits(&mut self, lock_timeout: Duration) -> Result<(), Fault> {
        if self.lock_timeout != Some(lock_timeout) {
            self.session.run(&format!("SET lock_timeout = {}", lock_timeout.as_millis())).await?;
            self.lock_timeout = Some(lock_timeout);
        }
        Ok(())
    }

    /// Runs jobs in one transaction and answers them. Fails only if the connection is lost.
    async fn run_batch<I, A>(
        &mut self,
        jobs: Jobs<I, A>,
        verb: impl AsyncFn(&mut Writer, &[I]) -> Result<Vec<A>, Fault>,
    ) -> Result<(), Fault> {
        let (mut items, mut replies) = (Vec::new(), Vec::with_capacity(jobs.len()));
        for mut job in jobs.into_iter().filter(|job| !job.reply.is_closed()) {
            replies.push((job.items.len(), job.reply));
            items.append(&mut job.items);
        }
        if replies.is_empty() {
            return Ok(());
        }
        match self.transact(&items, &verb).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for (count, reply) in replies {
                    drop(reply.send(Ok(answers.by_ref().take(count).collect())));
                }
                Ok(())
            }
            Err(fault) if fault.may_be_of_one_call() && replies.len() > 1 => self.run_each(items, replies, &verb).await,
            Err(fault) => {
                for (_, reply) in replies {
                    drop(reply.send(Err(fault.to_store_error())));
                }
                if fault.breaks_connection() { Err(fault) } else { Ok(()) }
            }
        }
    }

    /// Runs the calls of a batch that failed, each by itself, because one of them may have caused
    /// it. The first fault that is not of one call fails the rest.
    async fn run_each<I, A>(
        &mut self,
        items: Vec<I>,
        replies: Vec<(usize, JobReply<A>)>,
        verb: &impl AsyncFn(&mut Writer, &[I]) -> Result<Vec<A>, Fault>,
    ) -> Result<(), Fault> {
        let (mut items, mut common) = (items.into_iter(), None);
        for (count, reply) in replies {
            let own: Vec<I> = items.by_ref().take(count).collect();
            let done = match &common {
                _ if reply.is_closed() => continue,
                Some(fault) => Err(Fault::to_store_error(fault)),
                None => match self.transact(&own, verb).await {
                    Ok(answers) => Ok(answers),
                    Err(fault) => {
                        let error = fault.to_store_error();
                        common = Some(fault).filter(|fault| !fault.may_be_of_one_call());
                        Err(error)
                    }
                },
            };
            drop(reply.send(done));
        }
        common.filter(Fault::breaks_connection).map_or(Ok(()), Err)
    }

    /// Runs one transaction, again if other transactions were in its way.
    async fn transact<I, A>(
        &mut self,
        items: &[I],
        verb: &impl AsyncFn(&mut Writer, &[I]) -> Result<Vec<A>, Fault>,
    ) -> Result<Vec<A>, Fault> {
        let mut tries = 1;
        loop {
            let fault = match verb(self, items).await {
                Ok(answers) => return Ok(answers),
                Err(fault) => fault,
            };
            if fault.breaks_connection() {
                self.forget();
                self.shared.cursors.doubt_all();
                return Err(fault);
            }
            self.roll_back().await?;
            if !fault.is_conflict() || tries == TRIES_MAX {
                error!(verb = type_name_of_val(verb), error = %fault.to_store_error(), "a transaction failed; its calls fail");
                return Err(fault);
            }
            tries += 1;
        }
    }

    /// The store's time.
    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// This node, acting for `actor`.
    pub(crate) fn by<'a>(&self, now: Timestamp, actor: Actor<'a>) -> By<'a> {
        By { now, node: self.shared.node, actor }
    }

    /// Ends a transaction that failed, as if it had not begun.
    pub(crate) async fn roll_back(&mut self) -> Result<(), Fault> {
        self.forget();
        // The rollback unlocks rows that other claims may have skipped.
        self.shared.cursors.doubt_all();
        self.session.run("ROLLBACK").await
    }

    /// Drops the counts and the notes of a transaction that failed.
    pub(crate) fn forget(&mut self) {
        self.tally.clear();
        self.notes = OutboxNotes::default();
    }

    /// Writes the counts and the notes of the transaction, and commits.
    pub(crate) async fn commit(&mut self) -> Result<(), Fault> {
        let end = TransactionEnd::of(self);
        self.shared.outbox.wake_resolver(end.commit(&self.session).await?);
        self.report_freed(&end);
        Ok(())
    }

    /// Leaves hints for places in queues that the transaction freed.
    fn report_freed(&self, end: &TransactionEnd) {
        let shared = &self.shared;
        if shared.limits.is_empty() {
            return;
        }
        let freed = shared.lanes.peek(tally::freed(end.changed()));
        for lane in freed.iter().filter(|lane| shared.limits.has_places(&lane.key)) {
            shared.limits.watch.freed(&lane.key.tenant, &lane.key.queue);
            shared.notifier.freed(lane.id.number());
        }
    }
}

/// What a transaction writes last: the counts, as columns, the forecast and the notes.
pub(crate) struct TransactionEnd {
    lanes: Vec<i64>,
    states: Vec<i16>,
    tasks: Vec<i64>,
    forecast: Minutes,
    notes: OutboxNotes,
    slot: i32,
}

impl TransactionEnd {
    /// Takes what the transaction has counted and noted.
    pub(crate) fn of(writer: &mut Writer) -> Self {
        let Writer { tally, notes, slot, .. } = writer;
        tally.keep();
        let (mut lanes, mut states, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for (lane, state, change) in tally.take() {
            lanes.push(lane);
            states.push(i16::from(state));
            tasks.push(change);
        }
        let forecast = Minutes::take(&mut tally.forecast);
        Self { lanes, states, tasks, forecast, notes: std::mem::take(notes), slot: *slot }
    }

    fn changed(&self) -> impl Iterator<Item = (i64, u8, i64)> {
        let states = self.states.iter().map(|state| u8::try_from(*state).unwrap_or(u8::MAX));
        self.lanes.iter().zip(states).zip(&self.tasks).map(|((lane, state), tasks)| (*lane, state, *tasks))
    }

    /// Writes all of it and commits. The statements are sent at once, behind those of the caller.
    /// If the connection is lost, the commit is in doubt.
    pub(crate) async fn commit(&self, session: &Session) -> Result<FirstNotes, Fault> {
        let counts = async {
            if !self.lanes.is_empty() {
                let parameters: Parameters<'_> = &[&self.lanes, &self.states, &self.tasks, &self.slot];
                let (of_lanes, of_queues) = tokio::join!(
                    biased;
                    session.execute(Sql::CountsAdd, parameters),
                    session.execute(Sql::QueueCountsAdd, parameters),
                );
                of_lanes?;
                of_queues?;
            }
            Ok::<_, Fault>(())
        };
        let (counted, forecast, noted, committed) = tokio::join!(
            biased;
            counts,
            self.forecast.write(session, self.slot),
            self.notes.write(session),
            session.run("COMMIT"),
        );
        counted?;
        forecast?;
        let noted = noted?;
        committed?;
        Ok(noted)
    }
}
