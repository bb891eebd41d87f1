//! The report of a scenario: a table for people, a line of JSON for programs.

use std::io::Write;

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

use crate::machine;
use crate::site::{Site, StoreFacts};

/// The figures of one scenario, in the order of their addition.
pub struct BenchReport {
    scenario: &'static str,
    figures: Vec<(&'static str, Value)>,
}

impl BenchReport {
    /// An empty report.
    pub fn new(scenario: &'static str) -> Self {
        Self { scenario, figures: Vec::new() }
    }

    /// Adds the facts about the servers. The store and memory of a given server are not known.
    pub fn site(&mut self, site: &Site) {
        if let Some(StoreFacts { kind, version }) = site.store() {
            let version = version.map(|version| ("store_version", version.into()));
            let nodes = ("nodes", site.servers().len().into());
            let facts =
                [("store", kind.into())].into_iter().chain(version).chain([("broker", "embedded".into()), nodes]);
            self.figures.splice(..0, facts);
        }
        self.number_if_known("rss_mb", site.rss_megabytes());
    }

    /// Adds how many calls were refused and repeated, if any.
    pub fn refused(&mut self, calls: usize) {
        if calls > 0 {
            self.count("refused", calls);
        }
    }

    /// What every figure depends on.
    fn circumstances() -> [(&'static str, Value); 4] {
        [
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("commit", env!("PUNCTUAL_COMMIT").into()),
            ("machine", machine::describe().into()),
            ("cores", std::thread::available_parallelism().map_or(0, usize::from).into()),
        ]
    }

    /// Adds a count.
    pub fn count(&mut self, name: &'static str, count: usize) {
        self.figures.push((name, count.into()));
    }

    /// Adds a figure, if it is known.
    pub fn number_if_known(&mut self, name: &'static str, figure: Option<f64>) {
        if let Some(figure) = figure {
            self.number(name, figure);
        }
    }

    /// Adds a figure, rounded for a reader. A ratio with nothing to divide by is left out.
    pub fn number(&mut self, name: &'static str, figure: f64) {
        if !figure.is_finite() {
            return;
        }
        let digits = if figure.abs() >= 100.0 { 0 } else { 2 };
        let rounded: f64 = format!("{figure:.digits$}").parse().unwrap_or(figure);
        self.figures.push((name, rounded.into()));
    }

    /// Adds the usual figures of lateness, recorded in microseconds.
    pub fn lateness(&mut self, lateness: &Histogram<u64>, early: usize) {
        let millis = |micros: u64| micros as f64 / 1_000.0;
        self.number("late_p50_ms", millis(lateness.value_at_quantile(0.5)));
        self.number("late_p99_ms", millis(lateness.value_at_quantile(0.99)));
        self.number("late_p999_ms", millis(lateness.value_at_quantile(0.999)));
        self.number("late_max_ms", millis(lateness.max()));
        self.count("early", early);
    }

    /// Prints the table, and the JSON line if it is wanted.
    pub fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", self.scenario)?;
        for (name, value) in Self::circumstances().iter().chain(&self.figures) {
            writeln!(out, "  {name:<16} {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))?;
        }
        if json {
            writeln!(out, "{}", Value::Object(self.line()))?;
        }
        Ok(())
    }

    fn line(&self) -> Map<String, Value> {
        let mut line = Map::new();
        line.insert("scenario".into(), self.scenario.into());
        let figures = Self::circumstances().into_iter().chain(self.figures.iter().cloned());
        line.extend(figures.map(|(name, value)| (name.to_owned(), value)));
        line
    }
}

/// A histogram of microseconds up to an hour.
pub fn lateness_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("invariant: these bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> url::Url {
        "http://127.0.0.1:7400".parse().expect("a URL")
    }

    #[test]
    fn a_given_server_adds_no_facts() {
        let mut report = BenchReport::new("submit");
        report.site(&Site::given(url()));
        report.refused(0);
        let line = report.line();
        for unknown in ["store", "store_version", "broker", "nodes", "rss_mb", "refused"] {
            assert!(!line.contains_key(unknown), "{unknown} in {line:?}");
        }
    }

    #[test]
    fn a_started_server_adds_all_facts() {
        let mut report = BenchReport::new("submit");
        report.site(&Site::of_this_process(url()));
        report.refused(3);
        let line = report.line();
        assert_eq!(
            (&line["store"], &line["broker"], &line["nodes"], &line["refused"]),
            (&"sqlite".into(), &"embedded".into(), &1.into(), &3.into())
        );
        assert!(line["rss_mb"].as_f64().is_some_and(|megabytes| megabytes > 0.0), "{line:?}");
    }

    #[test]
    fn a_share_of_nothing_is_left_out() {
        let mut report = BenchReport::new("overload");
        report.number("goodput_percent", f64::NAN);
        report.number("offered_ratio", f64::INFINITY);
        report.number("broken", 0.0);
        let line = report.line();
        assert!(!line.contains_key("goodput_percent") && !line.contains_key("offered_ratio"), "{line:?}");
        assert_eq!(line["broken"], 0.0);
    }
}
