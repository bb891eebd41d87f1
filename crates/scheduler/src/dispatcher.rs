//! The dispatcher: brings due tasks and their claimants together.
//!
//! One loop owns the lanes ([`Lanes`](crate::lanes::Lanes)) and four parts with their own state:
//! pull (polls of workers), push (webhooks), probes (of breakers) and the sweep. A pass takes its
//! input, launches claims, and handles the first answers. Tasks of pull workers and of the webhook
//! worker of this process become `RUNNING`; others become `QUEUED` and go to a broker. The claims
//! of different tenants' pull workers run side by side; those of one tenant follow each other, and
//! one push claim covers all tenants. If not all can be served at once, [`fairness`] decides the
//! order.
//!
//! Invariant: a crash between any two lines loses nothing. The sweep finds tasks that were not
//! claimed, and the reaper finds those that were claimed and not started.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::backoff::ExponentialBackoff;
use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::store::{Store, StoreError};
use tokio_util::sync::CancellationToken;

use crate::breakers::Circuits;
use crate::fairness::{self, Band, LongestWaits};
use crate::hints::Hints;
use crate::lanes::ClaimScope;
use crate::ownership::OwnedPartitions;
use crate::polls::PollQueue;
use crate::targets::Targets;
use crate::webhook_path::{CallTurn, WebhookPath};

mod bands;
mod calls;
mod dispatch_core;
mod plan;
mod probes;
mod pull;
mod push;
mod sweep;

use calls::{ClaimPurpose, ClaimResult};
use dispatch_core::DispatchCore;
use probes::BreakerProbes;
use pull::Pull;
use push::Push;
use sweep::Sweep;

/// How the dispatcher works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Lanes that are due within this time are kept in memory.
    pub prefetch_window: Duration,
    /// How often the heads of all lanes are read from the store.
    pub sweep_interval: Duration,
    /// How long before they are due tasks are claimed for waiting polls. They are handed over when
    /// they are due, and by then the claim is written. Zero means that they are claimed when due.
    pub claim_ahead: Duration,
    /// The maximum number of tasks that a pass claims.
    pub claim_batch: usize,
    /// How long a published task may stay unstarted.
    pub visibility: Duration,
    /// The maximum number of waiting polls.
    pub waiting_workers: usize,
    /// The maximum number of tasks of the backlog that are claimed in a second; zero means any
    /// number.
    pub backlog_per_second: u32,
    /// How tenants and bands share what is claimed.
    pub fairness: fairness::Config,
}

/// What the dispatcher works with.
#[derive(Clone)]
pub struct Deps {
    /// The tasks.
    pub store: Arc<dyn Store>,
    /// The way of pushed tasks to their workers.
    pub webhooks: WebhookPath,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// Hints from the writers.
    pub hints: Arc<Hints>,
    /// The slots of webhook targets.
    pub targets: Arc<Targets>,
    /// The partitions whose webhooks this node dispatches.
    pub owned: Arc<OwnedPartitions>,
    /// The breakers.
    pub circuits: Arc<Circuits>,
    /// Where it reports how long each band has waited.
    pub waits: Arc<LongestWaits>,
    /// This process.
    pub node: NodeId,
}

/// The loop and its parts (see the module).
pub struct Dispatcher {
    core: DispatchCore,
    pull: Pull,
    push: Push,
    probes: BreakerProbes,
    sweep: Sweep,
    /// How many passes in a row have failed.
    failures: u32,
}

/// What a pass did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks granted to pull workers.
    pub pulled: usize,
    /// Tasks sent to webhook workers.
    pub pushed: usize,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// The longest wait between two passes, whatever the clocks show.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Pauses after passes that failed.
const FAILED_PASSES: ExponentialBackoff =
    ExponentialBackoff::new(Duration::from_millis(50), Duration::from_millis(800)).with_jitter(0.5);

impl Dispatcher {
    /// A dispatcher, and the queue in which workers poll it.
    pub fn new(deps: Deps, config: Config) -> (Self, PollQueue) {
        let (polls, receiver) = PollQueue::new(config.waiting_workers);
        let dispatcher = Self {
            pull: Pull::new(receiver, config.waiting_workers, &config.fairness),
            push: Push::new(&deps, &config),
            probes: BreakerProbes::new(),
            sweep: Sweep::new(deps.owned.generation()),
            core: DispatchCore::new(deps, config),
            failures: 0,
        };
        (dispatcher, polls)
    }

    /// Runs until the shutdown; then answers every waiting poll with an empty list.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let more = match self.run_once().await {
                Ok(report) => {
                    self.failures = 0;
                    report.more
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    if self.failures == 1 {
                        tracing::error!(error = %error, "cannot claim tasks; retrying until the store answers");
                    }
                    false
                }
            };
            if shutdown.is_cancelled() {
                break;
            }
            if more {
                tokio::task::yield_now().await;
            } else {
                tokio::select! {
                    () = self.wait_for_work() => {}
                    () = shutdown.cancelled() => {}
                }
            }
        }
        while !self.core.calls.is_empty() {
            // Another node finds the tasks of a claim that fails.
            drop(self.finish_claims(&mut Report::default()).await);
        }
        self.pull.close(&self.core).await;
    }

    /// One pass: takes the input, launches claims, and handles the first answers.
    pub async fn run_once(&mut self) -> Result<Report, StoreError> {
        let pass = self.pass().await;
        self.dismiss_impatient(pass.as_ref().err());
        self.pull.report_health(pass.as_ref().err());
        pass
    }

    async fn pass(&mut self) -> Result<Report, StoreError> {
        let mut report = Report::default();
        loop {
            self.take_input().await?;
            self.pull.launch(&mut self.core);
            self.push.launch(&mut self.core).await;
            self.probes.launch(&mut self.core, &mut self.pull, &self.push).await;
            self.report_waits();
            if self.core.calls.is_empty() {
                break;
            }
            self.dismiss_impatient(None);
            if self.wait_for_answer().await {
                self.finish_claims(&mut report).await?;
                break;
            }
        }
        report.more |= !self.core.calls.is_empty() || self.push.is_backlog_next() || self.sweep.has_more();
        Ok(report)
    }

    /// Answers the polls that do not wait, unless the sweep may still find tasks for them.
    fn dismiss_impatient(&mut self, failure: Option<&StoreError>) {
        if failure.is_some() || !self.sweep.is_incomplete() {
            self.pull.dismiss_impatient(&self.core, failure);
        }
    }

    /// Takes what has arrived since the last pass: polls, returned tasks, partitions, breakers,
    /// hints and the sweep. Then makes due lanes ready.
    async fn take_input(&mut self) -> Result<(), StoreError> {
        // Polls before hints: a worker that polls after a task was stored must find it.
        self.pull.take_polls(|tenant| self.probes.poll_arrived(tenant, self.core.lanes.breakers()));
        self.pull.give_back_abandoned(&self.core).await;
        self.sweep.follow_ownership(&mut self.core);
        self.core.lanes.set_breakers(self.core.deps.circuits.open(), self.core.now());
        for (lane, due_at) in self.core.deps.hints.take() {
            self.core.take_hint(&lane, due_at);
        }
        self.release_limited();
        if self.core.deps.hints.take_sweep_request() {
            self.sweep.request();
        }
        if self.sweep.is_due() {
            if self.sweep.is_at_start() {
                self.pull.forget_disconnected();
            }
            self.sweep.run(&mut self.core).await?;
        }
        self.core.retry();
        self.core.lanes.make_due_ready(self.core.now());
        self.pull.open(self.core.lanes.take_newly_ready());
        Ok(())
    }

    /// Releases the lanes whose queues may let tasks through again.
    fn release_limited(&mut self) {
        let (everywhere, queues) = self.core.deps.hints.take_freed();
        if self.core.lanes.release_limited(everywhere, queues, self.core.now()) {
            self.probes.hurry();
        }
    }

    /// Handles the claims that have been answered; waits for one if none has.
    async fn finish_claims(&mut self, report: &mut Report) -> Result<(), StoreError> {
        self.core.calls.wait().await;
        let mut failure = None;
        for ClaimResult { call, answers } in self.core.calls.take_answered() {
            let core = &mut self.core;
            core.lanes.end_claim(&call.scope);
            let answers = answers.inspect_err(|error| failure = Some(error.clone())).ok();
            match (call.purpose, answers) {
                (ClaimPurpose::Pull { splits, polls }, Some(answers)) => {
                    self.pull.finish(core, &splits, polls, answers, report);
                }
                (ClaimPurpose::Push(splits), Some(answers)) => self.push.finish(core, &splits, answers, report).await,
                (ClaimPurpose::Backlog(splits), Some(answers)) => {
                    self.push.finish_backlog(core, &splits, answers, report).await;
                }
                (ClaimPurpose::Probe { poll }, Some(answers)) => {
                    let ClaimScope::Probe(lane) = call.scope else { continue };
                    for answer in answers {
                        self.probes.take_answer(core, &lane, &answer);
                        if let Some(poll) = poll {
                            report.pulled += answer.tasks.len();
                            self.pull.grant(core, poll, answer.tasks);
                        } else {
                            report.pushed += push::send(core, self.push.tasks_of(core, answer), CallTurn::AtOnce).await;
                        }
                    }
                }
                (ClaimPurpose::Pull { splits, .. }, None) => self.pull.fail(core, &splits),
                (ClaimPurpose::Push(splits), None) => self.push.fail(core, &splits),
                (ClaimPurpose::Backlog(splits), None) => self.push.fail_backlog(core, &splits),
                (ClaimPurpose::Probe { .. }, None) => {}
            }
        }
        for (lane, due_at) in self.core.lanes.take_deferred() {
            self.core.take_hint(&lane, due_at);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Reports since when each band waits.
    fn report_waits(&self) {
        for band in Band::ALL {
            self.core.deps.waits.since(band, self.core.lanes.waits_since(band));
        }
    }

    /// Waits until a claim is answered, or until there is other work; returns whether a claim is
    /// answered.
    async fn wait_for_answer(&mut self) -> bool {
        let until_due = self.core.until_due().into_iter().chain(self.core.until_retry()).min();
        let is_due = async {
            match until_due {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let can_push = !self.core.lanes.claims().is_pushing();
        let DispatchCore { deps, calls, .. } = &mut self.core;
        tokio::select! {
            biased;
            () = calls.wait() => {}
            () = self.pull.wait() => {}
            () = deps.hints.wait() => {}
            () = deps.owned.wait() => {}
            () = deps.targets.wait_for_slot(), if can_push && self.push.waits_for_slots() => {}
            () = deps.webhooks.wait_for_room(), if can_push && self.push.waits_for_room() => {}
            () = is_due => {}
        }
        calls.has_answer()
    }

    /// Returns when a pass may have something to do. Dropping it loses nothing.
    async fn wait_for_work(&mut self) {
        let wait = self.longest_wait();
        let can_push = self.failures == 0;
        let DispatchCore { deps, calls, .. } = &mut self.core;
        tokio::select! {
            () = calls.wait() => {}
            () = self.pull.wait() => {}
            () = deps.hints.wait() => {}
            () = deps.owned.wait() => {}
            () = deps.targets.wait_for_slot(), if can_push && self.push.waits_for_slots() => {}
            () = deps.webhooks.wait_for_room(), if can_push && self.push.waits_for_room() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    fn longest_wait(&self) -> Duration {
        if self.failures > 0 {
            return FAILED_PASSES.pause(self.failures, rand::random());
        }
        let core = &self.core;
        let waits = [
            core.until_due(),
            core.until_retry(),
            self.push.until_tokens(core),
            self.probes.until_due(core),
            Some(self.sweep.until_due()),
        ];
        waits.into_iter().flatten().min().unwrap_or(WAIT_MAX).min(WAIT_MAX)
    }
}
