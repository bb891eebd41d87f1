//! The conformance suites of the ports, and fixtures for all tests.
//!
//! Adapters stamp the suites ([`store_conformance!`], [`broker_conformance!`],
//! [`coordinator_conformance!`], [`partitions_conformance!`], [`registry_conformance!`],
//! [`retention_conformance!`]) in their own test files: every sentence of a port's contract becomes
//! a test of the same name. The suites know the ports, not the adapters.

#![allow(clippy::unwrap_used, reason = "this crate is tests: a panic is their verdict")]

use std::time::Duration;

pub mod breakers;
pub mod broker;
pub mod bulk;
pub mod certificates;
pub mod clock;
pub mod coordinator;
pub mod eventually;
pub mod fixtures;
pub mod forecast;
pub mod http;
pub mod obstacles;
pub mod partitions;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod queues;
pub mod registry;
pub mod resolver;
pub mod retention;
pub mod schedules;
pub mod shared;
pub mod sink;
pub mod store;
pub mod tenants;
pub mod webhook_secrets;
mod wire;

/// A test of a suite that takes this long hangs.
const HANGS_AFTER: Duration = Duration::from_mins(2);

/// Runs one test of a suite on its own runtime, and fails it if it hangs.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("a runtime can be built");
    runtime.block_on(async { tokio::time::timeout(HANGS_AFTER, test).await.expect("the test hangs") });
    runtime.shutdown_background();
}

/// Makes a `#[test]` of each named function of a suite, each with its own factory.
#[doc(hidden)]
#[macro_export]
macro_rules! stamp {
    ($suite:ident, $factory:expr; $($sentence:ident),+ $(,)?) => {
        $(
            #[test]
            fn $sentence() {
                $crate::run(async { $crate::$suite::$sentence(&$factory).await });
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    /// The names of the sentences in the contract at the head of a port's file.
    fn sentences(port: &'static str) -> Vec<&'static str> {
        let named = |line: &'static str| line.strip_prefix("//! - `").and_then(|rest| rest.split('`').next());
        port.lines().filter_map(named).collect()
    }

    #[test]
    fn every_sentence_of_a_contract_is_stamped() {
        for (port, suites) in [
            (include_str!("../../core/src/store.rs"), &[include_str!("store.rs")][..]),
            (include_str!("../../core/src/breakers.rs"), &[include_str!("breakers.rs")]),
            (include_str!("../../core/src/bulk.rs"), &[include_str!("bulk.rs")]),
            (include_str!("../../core/src/broker.rs"), &[include_str!("broker.rs")]),
            (
                include_str!("../../core/src/coordinator.rs"),
                &[include_str!("coordinator.rs"), include_str!("partitions.rs")],
            ),
            (include_str!("../../core/src/registry.rs"), &[include_str!("registry.rs")]),
            (include_str!("../../core/src/obstacles.rs"), &[include_str!("obstacles.rs")]),
            (include_str!("../../core/src/forecast.rs"), &[include_str!("forecast.rs")]),
            (include_str!("../../core/src/upkeep.rs"), &[include_str!("resolver.rs"), include_str!("retention.rs")]),
            (include_str!("../../core/src/schedules.rs"), &[include_str!("schedules.rs")]),
            (include_str!("../../core/src/queues.rs"), &[include_str!("queues.rs")]),
            (include_str!("../../core/src/tenants.rs"), &[include_str!("tenants.rs")]),
            (include_str!("../../core/src/webhook_secrets.rs"), &[include_str!("webhook_secrets.rs")]),
        ] {
            let stamps = |suite: &&'static str| suite.split_once("$crate::stamp!").expect("a suite stamps its tests").1;
            let words = |stamps: &'static str| stamps.split(|c: char| !c.is_alphanumeric() && c != '_');
            let stamped: Vec<&str> = suites.iter().map(stamps).flat_map(words).collect();
            let sentences = sentences(port);
            assert!(sentences.len() > 3, "the contract was not found");
            for sentence in sentences {
                assert!(stamped.contains(&sentence), "{sentence} is a sentence of a contract, but no test");
            }
        }
    }
}
