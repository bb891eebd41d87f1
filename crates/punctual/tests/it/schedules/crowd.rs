//! Many triggers of one schedule at the same time: each gets the outcome of its own run.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{create, occurrences, path, read, tasks, yearly};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, World};

const CALLERS: usize = 50;

/// How often each outcome was returned.
type Outcomes = BTreeMap<String, usize>;

/// Triggers a schedule with this policy, all callers at once; returns the responses and the
/// schedule.
async fn trigger_at_once(callers: &[Caller], policy: &str) -> (Vec<Value>, Value) {
    let made = create(&callers[0], &yearly(policy, json!({"overlap_policy": policy}))).await;
    let mut calls = JoinSet::new();
    for caller in callers.iter().cycle().take(CALLERS) {
        let (api, path) = (caller.api.apart(), path(&made, "/trigger"));
        calls.spawn(async move { api.post(&path, &json!({})).await.expect_any(&[200, 201, 202]) });
    }
    (calls.join_all().await, made)
}

async fn each_has_an_occurrence_of_its_own(callers: &[Caller]) {
    let all = CALLERS;
    for (policy, expected) in [
        ("allow_all", vec![("fired", all)]),
        ("skip", vec![("fired", 1), ("skipped", all - 1)]),
        ("buffer_one", vec![("buffered", 1), ("fired", 1), ("skipped", all - 2)]),
        ("buffer_all", vec![("buffered", all - 1), ("fired", 1)]),
        ("terminate_other", vec![("fired", all)]),
        ("cancel_other", vec![("fired", all)]),
    ] {
        let (answers, made) = trigger_at_once(callers, policy).await;
        let instants: BTreeSet<String> = answers.iter().map(|occurrence| occurrence["instant"].to_string()).collect();
        assert_eq!(instants.len(), all, "{policy}: {answers:#?}");
        let recorded = occurrences(&callers[0], &made).await;
        assert_eq!(recorded.len(), all, "{policy}");
        let now = read(&callers[0], &made).await;
        let counted = now["run_count"].as_u64().zip(now["skipped_count"].as_u64());
        let mut outcomes = Outcomes::new();
        for answer in &answers {
            *outcomes.entry(answer["outcome"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        if policy == "cancel_other" {
            // Later triggers overtook those that had to wait: the order is not visible from
            // outside.
            assert_eq!(
                outcomes.get("fired").copied().unwrap_or(0) + outcomes.get("buffered").copied().unwrap_or(0),
                all
            );
            continue;
        }
        let expected: Outcomes = expected.into_iter().map(|(outcome, count)| (outcome.to_owned(), count)).collect();
        assert_eq!(outcomes, expected, "{policy}");
        let of = |outcome: &str| outcomes.get(outcome).copied().unwrap_or(0);
        assert_eq!(counted, Some((of("fired") as u64, of("skipped") as u64)), "{policy}: {now:#}");
        let ids: BTreeSet<String> =
            answers.iter().filter_map(|occurrence| Some(occurrence["task_id"].as_str()?.to_owned())).collect();
        assert_eq!((ids.len(), tasks(&callers[0], &made).await.len()), (of("fired"), of("fired")), "{policy}");
    }
}

#[tokio::test]
async fn each_of_many_triggers_is_an_occurrence() {
    let world = World::start().await;
    each_has_an_occurrence_of_its_own(&[world.caller()]).await;
}

#[tokio::test]
async fn each_of_many_triggers_on_many_nodes_is_an_occurrence() {
    let cluster = Cluster::start(2).await;
    each_has_an_occurrence_of_its_own(&[cluster.caller(0), cluster.caller(1)]).await;
}
