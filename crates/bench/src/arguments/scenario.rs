//! The scenarios of `punctual bench`, and which servers each of them needs.

use clap::{Subcommand, ValueEnum};

use super::up_to;

/// More than any machine can serve; their sums and products do not overflow.
const TIMES_MAX: usize = 1_000;
const ROUNDS_MAX: usize = 100;
const TASKS_MAX: usize = 1_000_000_000;
const RATE_MAX: usize = 1_000_000;
const SECONDS_MAX: usize = 86_400;

/// How a server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExitMode {
    /// It is stopped by SIGTERM and started again.
    Graceful,
    /// It is killed by SIGKILL and stays away.
    Kill,
}

/// What is measured.
#[derive(Subcommand)]
pub(crate) enum Scenario {
    /// Acknowledged submissions a second.
    Submit {
        /// How many tasks.
        #[arg(long, default_value_t = 100_000, value_parser = up_to(TASKS_MAX))]
        tasks: usize,
        /// One task a call, instead of a batch a call.
        #[arg(long)]
        single: bool,
    },
    /// Tasks leased and settled a second, from a standing backlog.
    Drain {
        /// How many tasks.
        #[arg(long, default_value_t = 200_000, value_parser = up_to(TASKS_MAX))]
        tasks: usize,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// How late tasks arrive at a steady rate.
    Lateness {
        /// Tasks a second.
        #[arg(long, default_value_t = 1_000, value_parser = up_to(RATE_MAX))]
        rate: usize,
        /// The length in seconds.
        #[arg(long, default_value_t = 60, value_parser = up_to(SECONDS_MAX))]
        seconds: usize,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// Many tasks due at one instant.
    Herd {
        /// How many tasks.
        #[arg(long, default_value_t = 100_000, value_parser = up_to(TASKS_MAX))]
        tasks: usize,
        /// Have the queue spread them over this many seconds, and report how evenly they came.
        #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600))]
        jitter: u64,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// What waiting tasks cost: submissions and claims beside this many of them.
    #[command(visible_alias = "waiting")]
    Backlog {
        /// How many tasks wait.
        #[arg(long, visible_alias = "tasks", default_value_t = 1_000_000, value_parser = up_to(TASKS_MAX))]
        waiting: usize,
        /// Tasks that are submitted and drained in each measurement.
        #[arg(long, default_value_t = 50_000, value_parser = up_to(TASKS_MAX))]
        probe: usize,
    },
    /// How late one tenant's tasks arrive alone, and beside another tenant's backlog.
    Fairness {
        /// The other tenant's backlog, all of it due.
        #[arg(long, default_value_t = 1_000_000, value_parser = up_to(TASKS_MAX))]
        backlog: usize,
        /// Tasks a second of the tenant that is watched.
        #[arg(long, default_value_t = 10, value_parser = up_to(RATE_MAX))]
        rate: usize,
        /// The length of each case in seconds.
        #[arg(long, default_value_t = 20, value_parser = up_to(SECONDS_MAX))]
        seconds: usize,
        /// How often both cases are measured, each time beside a new backlog; the report covers all
        /// rounds.
        #[arg(long, default_value_t = 1, value_parser = up_to(ROUNDS_MAX))]
        rounds: usize,
        /// Push all of it to sinks in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// What a server still accepts when clients submit far more than it can take.
    Overload {
        /// The length in seconds.
        #[arg(long, default_value_t = 60, value_parser = up_to(SECONDS_MAX))]
        seconds: usize,
        /// How many connections flood for each one that reaches the peak.
        #[arg(long, default_value_t = 10, value_parser = up_to(TIMES_MAX))]
        times: usize,
    },
    /// What an idle server costs.
    Idle {
        /// The length in seconds.
        #[arg(long, default_value_t = 10, value_parser = up_to(SECONDS_MAX))]
        seconds: usize,
    },
    /// How late tasks pushed to a sink arrive while one of several servers ends.
    Handover {
        /// How it ends.
        #[arg(long, value_enum, default_value_t = ExitMode::Graceful)]
        how: ExitMode,
        /// Tasks a second.
        #[arg(long, default_value_t = 1_000, value_parser = up_to(RATE_MAX))]
        rate: usize,
        /// The length in seconds; the server ends after a third of it.
        #[arg(long, default_value_t = 30, value_parser = up_to(SECONDS_MAX))]
        seconds: usize,
    },
    /// What an open transaction costs: drains without it, with it, and without it again.
    Held {
        /// Tasks of each drain.
        #[arg(long, default_value_t = 50_000, value_parser = up_to(TASKS_MAX))]
        tasks: usize,
        /// How long it is open, and how long it is not, in seconds.
        #[arg(long, default_value_t = 60, value_parser = up_to(SECONDS_MAX))]
        seconds: usize,
    },
}

impl Scenario {
    /// Whether pull workers lease whole batches in it.
    pub(super) fn leases(&self) -> bool {
        match self {
            Self::Drain { webhook, .. }
            | Self::Lateness { webhook, .. }
            | Self::Herd { webhook, .. }
            | Self::Fairness { webhook, .. } => !webhook,
            Self::Backlog { .. } | Self::Held { .. } => true,
            Self::Submit { .. } | Self::Overload { .. } | Self::Idle { .. } | Self::Handover { .. } => false,
        }
    }

    /// Whether it needs PostgreSQL.
    pub(super) fn needs_postgres(&self) -> bool {
        matches!(self, Self::Handover { .. } | Self::Held { .. })
    }

    /// Whether one server takes over from another in it.
    pub(super) fn hands_over(&self) -> bool {
        matches!(self, Self::Handover { .. })
    }

    /// Settings of the servers that differ from the defaults.
    pub(crate) fn settings(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Handover { how, .. } => crate::handover::settings(*how),
            _ => &[],
        }
    }
}
