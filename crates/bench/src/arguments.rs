//! What can be asked for on the command line. Whatever makes no sense is refused before anything is started.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use punctual_core::task::limits;
use reqwest::Url;

/// Connections where nothing else is given and many callers at once are what is measured.
const MANY: usize = 64;
/// Connections and workers elsewhere: each submits, leases and settles whole batches, so few keep a server busy.
const FEW: usize = 4;

/// More than any machine can keep up with; sums and products of them do not overflow.
const MOST_CONNECTIONS: usize = 10_000;
const MOST_TIMES: usize = 1_000;
const MOST_TASKS: usize = 1_000_000_000;
const MOST_RATE: usize = 1_000_000;
const MOST_SECONDS: usize = 86_400;

/// What to measure, and how.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What all scenarios share.
#[derive(Args)]
pub(crate) struct Options {
    /// A running server to measure instead of one that is started for it.
    #[arg(long, global = true, value_parser = server_url)]
    pub(crate) url: Option<Url>,
    /// Where the started server keeps its data; a directory below it is made and removed [default: the system's].
    #[arg(long, global = true)]
    pub(crate) data: Option<PathBuf>,
    /// Print one line of JSON last on stdout.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Connections that submit, and pull workers [default: 64 for submit, overload and the workers of lateness, 4
    /// elsewhere].
    #[arg(long, global = true, value_parser = up_to(MOST_CONNECTIONS))]
    connections: Option<usize>,
    /// Tasks a call submits, leases or settles; a call leases and settles at most 1,000.
    #[arg(long, global = true, default_value_t = 1_000, value_parser = up_to(limits::BATCH))]
    pub(crate) batch: usize,
}

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
    },
    /// What waiting tasks cost: submissions and claims beside this many of them.
    Backlog {
        /// How many tasks wait.
        #[arg(long, default_value_t = 1_000_000, value_parser = up_to(MOST_TASKS))]
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
}

impl Arguments {
    /// Refuses what each argument allows by itself, but the scenario does not.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (batch, most) = (self.options.batch, limits::LEASE_BATCH);
        if self.scenario.leases() && batch > most {
            bail!("a call leases and settles at most {most} tasks: this scenario cannot work with --batch {batch}");
        }
        match (&self.scenario, &self.options.url) {
            (Scenario::Idle { .. }, Some(_)) => bail!("idle measures a server that it starts itself: leave out --url"),
            (Scenario::Overload { .. }, Some(url)) if url.scheme() != "http" => {
                bail!("overload speaks plain HTTP only: give it an http:// address")
            }
            _ => Ok(()),
        }
    }
}

impl Scenario {
    /// Whether pull workers lease whole batches in it.
    fn leases(&self) -> bool {
        match self {
            Self::Drain { webhook, .. } | Self::Lateness { webhook, .. } => !webhook,
            Self::Herd { .. } | Self::Backlog { .. } | Self::Fairness { .. } => true,
            Self::Submit { .. } | Self::Overload { .. } | Self::Idle { .. } => false,
        }
    }
}

impl Options {
    /// Connections or workers, for a scenario that is about many callers at once.
    pub(crate) fn many_connections(&self) -> usize {
        self.connections.unwrap_or(MANY)
    }

    /// Connections or workers, where few are enough.
    pub(crate) fn few_connections(&self) -> usize {
        self.connections.unwrap_or(FEW)
    }
}

/// A whole number from 1 to `most`.
fn up_to(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
    }
}

/// Where a server can be.
fn server_url(text: &str) -> Result<Url, String> {
    let plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none()
    };
    let url = Url::parse(text).ok().filter(plain);
    url.ok_or_else(|| "must be the address of a server, such as http://127.0.0.1:7400".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, String> {
        let words = ["bench"].into_iter().chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.arguments).map_err(|error| error.to_string())
    }

    fn check(line: &str) -> Result<(), String> {
        parse(line)?.check().map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_is_measured_with_none() {
        for line in [
            "submit --tasks 0",
            "submit --batch 0",
            "submit --connections 0",
            "drain --tasks 0",
            "lateness --rate 0",
            "lateness --seconds 0",
            "herd --tasks 0",
            "backlog --waiting 0",
            "backlog --probe 0",
            "fairness --backlog 0",
            "fairness --rate 0",
            "fairness --seconds 0",
            "overload --seconds 0",
            "overload --times 0",
            "idle --seconds 0",
        ] {
            let refusal = check(line).expect_err(line);
            assert!(refusal.contains("invalid value '0' for '--"), "{line}: {refusal}");
            assert!(refusal.contains("must be a whole number from 1 to "), "{line}: {refusal}");
            assert_eq!(check(&line.replace('0', "1")), Ok(()), "{line} with 1");
        }
    }

    #[test]
    fn what_would_overflow_is_refused() {
        for line in ["submit --tasks 18446744073709551615", "lateness --rate 1000001", "idle --seconds 86401"] {
            assert!(check(line).expect_err(line).contains("must be a whole number"), "{line}");
        }
    }

    #[test]
    fn a_batch_is_no_larger_than_a_call_may_lease() {
        for scenario in ["drain", "herd", "lateness", "backlog", "fairness"] {
            assert_eq!(check(&format!("{scenario} --batch 1000")), Ok(()));
            let refusal = check(&format!("{scenario} --batch 1001")).expect_err(scenario);
            assert!(refusal.contains("at most 1000 tasks"), "{scenario}: {refusal}");
        }
        for scenario in ["submit", "overload", "drain --webhook", "lateness --webhook"] {
            assert_eq!(check(&format!("{scenario} --batch 10000")), Ok(()));
            assert!(check(&format!("{scenario} --batch 10001")).is_err(), "{scenario}");
        }
    }

    #[test]
    fn connections_are_what_was_given() {
        let connections = |line| parse(line).map(|it| (it.options.few_connections(), it.options.many_connections()));
        assert_eq!(connections("drain"), Ok((4, 64)));
        assert_eq!(connections("drain --connections 64"), Ok((64, 64)));
        assert_eq!(connections("drain --connections 2"), Ok((2, 2)));
    }

    #[test]
    fn a_url_is_the_address_of_a_server() {
        for url in ["http://127.0.0.1:7400", "http://[::1]:7400/", "https://punctual.example/scheduler"] {
            assert_eq!(check(&format!("submit --url {url}")), Ok(()));
        }
        for url in ["nonsense", "localhost:7400", "127.0.0.1:7400", "ftp://a.example", "http://", "http://a.example/?b"]
        {
            let refusal = check(&format!("submit --url {url}")).expect_err(url);
            assert!(refusal.contains("must be the address of a server"), "{url}: {refusal}");
        }
        assert!(check("idle --url http://127.0.0.1:7400").expect_err("idle").contains("leave out --url"));
        assert!(check("overload --url https://a.example").expect_err("https").contains("plain HTTP"));
    }
}
