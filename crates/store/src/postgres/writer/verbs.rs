//! The write verbs of this store, each with its queue, listed once.
//!
//! Called by `write_queues`, under its lock. Adding a verb is one line of `write_verbs!` and one
//! arm of the writer's `match`. Invariant: a verb has no more writers at work than its slots allow.

use std::time::Instant;

use punctual_core::ids::TaskId;
use punctual_core::schedules::Advanced;
use punctual_core::state::Change;
use punctual_core::store::{Applied, Beat, Claim, Claimed, Inserted, Start, StoreError};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::upkeep::Resolved;
use tokio::sync::oneshot;

use crate::postgres::apply::LeaderChanges;
use crate::postgres::resolve::ResolverStep;
use crate::postgres::schedules::LedAdvances;
use crate::write_queue::{BatchLimit, Size, WriteQueue};

/// A call that waits, and where its answer goes.
pub(crate) struct WriteJob<I, A> {
    pub items: Vec<I>,
    pub reply: JobReply<A>,
}

/// Where the answers to a call go. It is closed once nobody waits for them.
pub(crate) type JobReply<A> = oneshot::Sender<Result<Vec<A>, StoreError>>;

/// Jobs of one verb.
pub(crate) type Jobs<I, A> = Vec<WriteJob<I, A>>;

/// Generates the code for each verb from one list of `field, Variant: item => answer, slots`.
macro_rules! write_verbs {
    ($($field:ident, $variant:ident: $item:ty => $answer:ty, $slots:ident;)+) => {
        /// The name of a verb.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(super) enum WriteVerb {
            $($variant,)+
        }

        /// The jobs of one verb, on their way to a writer.
        pub(crate) enum WriteBatch {
            $($variant(Jobs<$item, $answer>),)+
        }

        /// A queue for each verb.
        pub(crate) struct VerbQueues {
            $(pub $field: VerbQueue<$item, $answer>,)+
        }

        impl VerbQueues {
            /// Empty queues, where a verb with `some` slots has that many.
            pub(super) fn new(some: usize) -> Self {
                Self { $($field: VerbQueue::new($slots(some)),)+ }
            }

            /// The verb and the size whose first job has waited longest among those that may be
            /// taken, and since when it waits.
            pub(super) fn oldest(&self, sizes: &[Size]) -> Option<(Instant, Size, WriteVerb)> {
                let firsts = [$((self.$field.first(sizes), WriteVerb::$variant),)+];
                let firsts = firsts.into_iter().filter_map(|(first, verb)| first.map(|(since, size)| (since, size, verb)));
                firsts.min()
            }

            /// Takes a batch of a verb, which has one slot fewer until it is freed.
            pub(super) fn take(&mut self, verb: WriteVerb, size: Size, limit: BatchLimit) -> WriteBatch {
                match verb {
                    $(WriteVerb::$variant => WriteBatch::$variant(self.$field.take(size, limit)),)+
                }
            }

            /// A writer is done with a batch of this verb.
            pub(super) fn free(&mut self, verb: WriteVerb, size: Size) {
                match verb {
                    $(WriteVerb::$variant => self.$field.at_work[size as usize] -= 1,)+
                }
            }

            /// Whether no job waits.
            pub(super) fn is_empty(&self) -> bool {
                $(self.$field.jobs.is_empty())&&+
            }

            /// Drops the jobs that wait. Their callers are woken when the result is dropped.
            pub(super) fn abandon(&mut self) -> impl Sized + use<> {
                ($(std::mem::take(&mut self.$field.jobs),)+)
            }
        }
    };
}

write_verbs! {
    insert, Insert: NewTask => Inserted, several;
    insert_all, InsertAll: Vec<NewTask> => Vec<Inserted>, several;
    claim, Claim: Claim => Claimed, one;
    start, Start: Start => Option<Task>, one;
    apply, Apply: (TaskId, Change) => Applied, several;
    apply_as, ApplyAs: LeaderChanges => Option<Vec<Applied>>, one;
    extend, Extend: Beat => Option<Hold>, one;
    quarantine, Quarantine: TaskId => (), one;
    resolve, Resolve: ResolverStep => Resolved, one;
    advance, Advance: LedAdvances => Option<Vec<Advanced>>, one;
}

/// One writer at a time. Of two concurrent claims, one would skip the rows that the other has
/// locked, and skipping a row costs as much as taking it.
const fn one(_some: usize) -> usize {
    1
}

/// As many writers as the store can spare.
const fn several(some: usize) -> usize {
    some
}

/// The jobs of one verb that wait, and the writers that are at work on others.
pub(crate) struct VerbQueue<I, A> {
    pub(super) jobs: WriteQueue<WriteJob<I, A>>,
    /// How many writers are at work on small jobs, and on large ones.
    at_work: [usize; 2],
    slots: usize,
}

impl<I, A> VerbQueue<I, A> {
    fn new(slots: usize) -> Self {
        Self { jobs: WriteQueue::default(), at_work: [0; 2], slots }
    }

    /// The age and size of the oldest job of these sizes that a writer may take. Small jobs have
    /// one slot more than the verb, so that they never wait for large ones.
    fn first(&self, sizes: &[Size]) -> Option<(Instant, Size)> {
        let [small, large] = self.at_work;
        let is_allowed = |size: Size| match size {
            Size::Small => small < self.slots && small + large <= self.slots,
            Size::Large => small + large < self.slots || large == 0,
        };
        let allowed = sizes.iter().copied().filter(|size| is_allowed(*size));
        allowed.filter_map(|size| Some((self.jobs.front(size)?.since, size))).min()
    }

    /// Takes jobs of a size up to a limit. Jobs whose callers are gone are dropped without an
    /// effect.
    fn take(&mut self, size: Size, limit: BatchLimit) -> Jobs<I, A> {
        self.at_work[size as usize] += 1;
        debug_assert!(self.at_work.iter().sum::<usize>() <= self.slots + 1, "a verb stays within its slots");
        let (mut jobs, mut rows) = (Vec::new(), 0_usize);
        while jobs.len() < limit.jobs
            && let Some(next) = self.jobs.front(size)
            && (jobs.is_empty() || rows.saturating_add(next.weight.rows) <= limit.rows)
            && let Some(queued) = self.jobs.pop(size)
        {
            if !queued.job.reply.is_closed() {
                rows = rows.saturating_add(queued.weight.rows);
                jobs.push(queued.job);
            }
        }
        jobs
    }
}
