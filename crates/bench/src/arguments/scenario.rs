//! What can be measured.

use clap::{Subcommand, ValueEnum};

use super::up_to;

/// More than any machine can keep up with; sums and products of them do not overflow.
const MOST_TIMES: usize = 1_000;
const MOST_ROUNDS: usize = 100;
const MOST_TASKS: usize = 1_000_000_000;
const MOST_RATE: usize = 1_000_000;
const MOST_SECONDS: usize = 86_400;

/// How a server goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum How {
    /// By SIGTERM, and it is started again.
    Graceful,
    /// By SIGKILL, and it stays away.
    Kill,
}

/// What is measured.
#[derive(Subcommand)]
pub(crate) enum Scenario {
    /// Acknowledged submissions a second.
    Submit {
        /// How many tasks.
        #[arg(long, default_value_t = 100_000, value_parser = up_to(MOST_TASKS))]
        tasks: usize,
        /// One task a call, instead of a batch a call.
        #[arg(long)]
        single: bool,
    },
    /// Tasks leased and settled a second, from a standing backlog.
    Drain {
        /// How many tasks.
        #[arg(long, default_value_t = 200_000, value_parser = up_to(MOST_TASKS))]
        tasks: usize,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// How late tasks arrive at a steady rate.
    Lateness {
        /// Tasks a second.
        #[arg(long, default_value_t = 1_000, value_parser = up_to(MOST_RATE))]
        rate: usize,
        /// For how long.
        #[arg(long, default_value_t = 60, value_parser = up_to(MOST_SECONDS))]
        seconds: usize,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// Many tasks due at one instant.
    Herd {
        /// How many tasks.
        #[arg(long, default_value_t = 100_000, value_parser = up_to(MOST_TASKS))]
        tasks: usize,
        /// Have the queue spread them over so many seconds, and tell how evenly they came.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600))]
        jitter: u64,
    },
    /// What waiting tasks cost: submissions and claims beside this many of them.
    #[command(visible_alias = "waiting")]
    Backlog {
        /// How many tasks wait.
        #[arg(long, visible_alias = "tasks", default_value_t = 1_000_000, value_parser = up_to(MOST_TASKS))]
        waiting: usize,
        /// Tasks that are submitted and drained in each measurement.
        #[arg(long, default_value_t = 50_000, value_parser = up_to(MOST_TASKS))]
        probe: usize,
    },
    /// How late one tenant's tasks arrive alone, and beside another tenant's backlog.
    Fairness {
        /// The other tenant's backlog, all of it due.
        #[arg(long, default_value_t = 1_000_000, value_parser = up_to(MOST_TASKS))]
        backlog: usize,
        /// Tasks a second of the tenant that is watched.
        #[arg(long, default_value_t = 10, value_parser = up_to(MOST_RATE))]
        rate: usize,
        /// For how long, in each case.
        #[arg(long, default_value_t = 20, value_parser = up_to(MOST_SECONDS))]
        seconds: usize,
        /// How often, each time alone and then beside a new backlog: what is told is of all rounds.
        #[arg(long, default_value_t = 1, value_parser = up_to(MOST_ROUNDS))]
        rounds: usize,
        /// Push all of it to sinks in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// What is still accepted when far more is submitted than the server can take.
    Overload {
        /// For how long.
        #[arg(long, default_value_t = 60, value_parser = up_to(MOST_SECONDS))]
        seconds: usize,
        /// How many connections flood for each one that reaches the peak.
        #[arg(long, default_value_t = 10, value_parser = up_to(MOST_TIMES))]
        times: usize,
    },
    /// What an idle server costs.
    Idle {
        /// For how long.
        #[arg(long, default_value_t = 10, value_parser = up_to(MOST_SECONDS))]
        seconds: usize,
    },
    /// How late tasks pushed to a sink arrive while one of several servers goes.
    Handover {
        /// How it goes.
        #[arg(long, value_enum, default_value_t = How::Graceful)]
        how: How,
        /// Tasks a second.
        #[arg(long, default_value_t = 1_000, value_parser = up_to(MOST_RATE))]
        rate: usize,
        /// For how long; the server goes after a third of it.
        #[arg(long, default_value_t = 30, value_parser = up_to(MOST_SECONDS))]
        seconds: usize,
    },
    /// What a transaction costs that somebody holds open: drains without it, with it, and without it again.
    Held {
        /// Tasks of each drain.
        #[arg(long, default_value_t = 50_000, value_parser = up_to(MOST_TASKS))]
        tasks: usize,
        /// For how long it is held open, and for how long in all it is not.
        #[arg(long, default_value_t = 60, value_parser = up_to(MOST_SECONDS))]
        seconds: usize,
    },
}

impl Scenario {
    /// Whether pull workers lease whole batches in it.
    pub(super) fn leases(&self) -> bool {
        match self {
            Self::Drain { webhook, .. } | Self::Lateness { webhook, .. } | Self::Fairness { webhook, .. } => !webhook,
            Self::Herd { .. } | Self::Backlog { .. } | Self::Held { .. } => true,
            Self::Submit { .. } | Self::Overload { .. } | Self::Idle { .. } | Self::Handover { .. } => false,
        }
    }

    /// Whether it means nothing on another store.
    pub(super) fn needs_postgres(&self) -> bool {
        matches!(self, Self::Handover { .. } | Self::Held { .. })
    }

    /// Whether one server takes over from another in it.
    pub(super) fn hands_over(&self) -> bool {
        matches!(self, Self::Handover { .. })
    }

    /// What the servers are set to, apart from the defaults.
    pub(crate) fn settings(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Handover { .. } => &crate::handover::SETTINGS,
            _ => &[],
        }
    }
}
