//! `/metrics`: text that Prometheus can read, with counters that count.

use std::collections::{BTreeMap, BTreeSet};

use punctual_testkit::eventually::eventually;
use serde_json::json;

use crate::it::world::{SOON, World};

/// A parsed page of metrics.
#[derive(Debug, Default)]
struct Page {
    /// The type of each family.
    kinds: BTreeMap<String, String>,
    /// The value of each series, by its name and labels.
    series: BTreeMap<String, f64>,
}

impl Page {
    /// Reads a page strictly.
    #[track_caller]
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        assert!(text.ends_with('\n'), "the last line is cut off");
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                page.comment(comment, line);
            } else {
                page.sample(line);
            }
        }
        page
    }

    #[track_caller]
    fn comment(&mut self, comment: &str, line: &str) {
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("TYPE"), Some(name), Some(kind)) => {
                let known = [
                    "counter",
                    "gauge",
                    "histogram",
                    "summary",
                    "untyped",
                    "unknown",
                    "info",
                    "stateset",
                    "gaugehistogram",
                ];
                assert!(known.contains(&kind), "an unknown type: {line:?}");
                assert!(self.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "a family twice: {line:?}");
            }
            (Some("HELP" | "UNIT"), Some(name), _) => assert!(is_name(name), "a bad name: {line:?}"),
            (Some("EOF"), None, None) => {}
            _ => panic!("neither HELP nor TYPE: {line:?}"),
        }
    }

    #[track_caller]
    fn sample(&mut self, line: &str) {
        let (series, value) = match line.rfind('}') {
            Some(end) => line.split_at(end + 1),
            None => line.split_once(' ').unwrap_or_else(|| panic!("a sample without a value: {line:?}")),
        };
        let name = series.split('{').next().unwrap_or_default();
        assert!(is_name(name), "a bad name: {line:?}");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            assert!(labels.starts_with('{') && labels.ends_with('}'), "bad labels: {line:?}");
            assert!(labels.matches('"').count().is_multiple_of(2) || labels.contains("\\\""), "bad labels: {line:?}");
        }
        let value = value.split_whitespace().next().unwrap_or_default();
        let value = match value {
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            number => number.parse().unwrap_or_else(|_| panic!("not a number: {line:?}")),
        };
        assert!(self.series.insert(series.to_owned(), value).is_none(), "a series twice: {line:?}");
    }

    /// The counters, and everything else that only grows.
    fn counters(&self) -> BTreeMap<&str, f64> {
        let counted = |series: &str| {
            let name = series.split('{').next().unwrap_or_default();
            let family = ["_total", "_count", "_sum", "_bucket", "_created"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .unwrap_or(name);
            [name, family]
                .iter()
                .any(|name| matches!(self.kinds.get(*name).map(String::as_str), Some("counter" | "histogram")))
        };
        self.series
            .iter()
            .filter(|(series, _)| counted(series))
            .map(|(series, value)| (series.as_str(), *value))
            .collect()
    }
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || c == ':';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

async fn page(world: &World) -> Page {
    let answer = world.caller().api.get("/metrics").await;
    assert_eq!(answer.status(), 200, "{answer}");
    let media = answer.header("content-type").unwrap_or_default().to_owned();
    assert!(media.starts_with("text/plain") || media.starts_with("application/openmetrics-text"), "{media}");
    Page::parse(answer.text())
}

#[tokio::test]
async fn the_page_can_be_read_and_its_counters_count() {
    let world = World::start().await;
    let caller = world.caller();
    let before = page(&world).await;
    assert!(!before.kinds.is_empty(), "no families");
    for n in 0..7 {
        caller.submit(json!({"type": "t", "queue": "q", "payload": n})).await;
    }
    for _ in 0..7 {
        let lease = caller.lease_one("q").await;
        caller.report("complete", &lease, json!({})).await.expect(200);
    }
    let risen = eventually("a counter has counted the seven tasks", SOON, async || {
        let after = page(&world).await;
        let (old, new) = (before.counters(), after.counters());
        for (series, value) in &old {
            let now = new.get(series).unwrap_or_else(|| panic!("{series} vanished"));
            assert!(now >= value, "{series} fell from {value} to {now}");
        }
        let risen: BTreeSet<String> = new
            .iter()
            .filter(|(series, value)| (**value - old.get(*series).copied().unwrap_or_default() - 7.0).abs() < 0.5)
            .map(|(series, _)| (*series).to_owned())
            .collect();
        // Submissions, starts, completions: at least two different things were counted to seven.
        if risen.len() >= 2 { Ok(risen) } else { Err(format!("{risen:?} of {new:#?}")) }
    })
    .await;
    assert!(risen.iter().any(|series| series.starts_with("punctual")), "metrics have the product's name: {risen:?}");
}

#[tokio::test]
async fn input_of_callers_never_becomes_a_label() {
    let world = World::start().await;
    let caller = world.caller();
    let canary = "canary4711";
    let task = json!({"type": "t", "delay_seconds": 600, "metadata": {"k": canary}, "idempotency_key": canary});
    caller.submit(task).await;
    for path in [format!("/v1/tasks/{canary}"), format!("/{canary}"), format!("/v1/tasks?metadata.{canary}=1")] {
        caller.api.get(&path).await;
    }
    caller.api.call(&canary.to_uppercase(), "/v1/tasks").send().await;
    let series = page(&world).await.series;
    let leaked: Vec<&String> = series.keys().filter(|series| series.to_lowercase().contains(canary)).collect();
    assert!(leaked.is_empty(), "{leaked:?}");
}
