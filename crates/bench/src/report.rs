//! What was measured: a table for people, a line of JSON for programs.

use std::io::Write;

use hdrhistogram::Histogram;
use serde_json::{Map, Value};

use crate::machine;

/// The figures of one scenario, in the order in which they were added.
pub struct Report {
    scenario: &'static str,
    figures: Vec<(&'static str, Value)>,
}

impl Report {
    /// An empty report.
    pub fn new(scenario: &'static str) -> Self {
        Self { scenario, figures: vec![("store", "sqlite".into()), ("broker", "embedded".into())] }
    }

    /// What a figure means nothing without.
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

    /// Adds a figure, rounded to what a reader can use.
    pub fn number(&mut self, name: &'static str, figure: f64) {
        let digits = if figure.abs() >= 100.0 { 0 } else { 2 };
        let rounded: f64 = format!("{figure:.digits$}").parse().unwrap_or(figure);
        self.figures.push((name, rounded.into()));
    }

    /// Adds the usual figures of lateness, which was recorded in microseconds.
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
            let mut line = Map::new();
            line.insert("scenario".into(), self.scenario.into());
            line.extend(
                Self::circumstances()
                    .iter()
                    .chain(&self.figures)
                    .map(|(name, value)| ((*name).to_owned(), value.clone())),
            );
            writeln!(out, "{}", Value::Object(line))?;
        }
        Ok(())
    }
}

/// A histogram of microseconds up to an hour.
pub fn lateness_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("invariant: these bounds are in order")
}
