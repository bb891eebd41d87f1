//! The legal outcomes of races: the table that every round is compared with.
//!
//! A kind of race has a few [`Legal`] outcomes, each with the exact answers to the contenders and
//! the final state of the task. All other outcomes are illegal. A race with only one outcome is no
//! race, so the trial counts the outcomes.

use std::fmt;

use punctual_core::ids::TaskId;

use crate::history::CallAnswer;

/// One legal outcome.
#[derive(Clone, Copy, Debug)]
pub struct Legal {
    /// In a few words.
    pub name: &'static str,
    /// The answers to the contenders, in their order, and the rest of the outcome.
    pub answers: &'static [&'static str],
    /// The state of the task then.
    pub end: &'static str,
    /// The contender that was answered first, if nothing else shows which was faster.
    pub first: Option<usize>,
    /// It may happen, but the trial does not require it.
    pub rare: bool,
}

impl Legal {
    /// An outcome that must be seen.
    pub const fn new(name: &'static str, answers: &'static [&'static str], end: &'static str) -> Self {
        Self { name, answers, end, first: None, rare: false }
    }

    /// The outcome with this contender answered first.
    #[must_use]
    pub const fn first(self, contender: usize) -> Self {
        Self { first: Some(contender), ..self }
    }

    /// An outcome that may be seen.
    #[must_use]
    pub const fn rare(self) -> Self {
        Self { rare: true, ..self }
    }
}

/// The outcome of one round.
#[derive(Clone, Debug)]
pub struct RoundOutcome {
    /// The answers to the contenders, and the rest of the outcome.
    pub answers: Vec<String>,
    /// The state of the task then.
    pub end: String,
    /// Which contender was answered first.
    pub first: usize,
    /// Whether the contenders' calls were under way at the same time.
    pub raced: bool,
    /// The task they were about.
    pub task: Option<TaskId>,
}

impl RoundOutcome {
    /// The round could not run: its task was not delivered.
    pub fn never_began() -> Self {
        Self { answers: Vec::new(), end: "the race never began".to_owned(), first: 0, raced: false, task: None }
    }

    /// The legal outcome that it matches, if any.
    pub fn among<'a>(&self, table: &'a [Legal]) -> Option<&'a Legal> {
        let alike = |legal: &&Legal| {
            self.answers == legal.answers
                && self.end == legal.end
                && legal.first.is_none_or(|first| first == self.first)
        };
        table.iter().find(alike)
    }
}

impl fmt::Display for RoundOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.answers.join(" | "), self.end)?;
        if let Some(task) = self.task {
            write!(f, " ({task})")?;
        }
        Ok(())
    }
}

/// An answer as the tables have it: `200`, `409 stale_token`.
pub fn shown(answer: &CallAnswer) -> String {
    match answer {
        CallAnswer::Ok(shown) => shown.status.to_string(),
        CallAnswer::Refused { status, code } => format!("{status} {code}"),
        CallAnswer::Unknown => "no answer".to_owned(),
    }
}

/// The same with the state that a 2xx showed: `202 RUNNING`.
pub fn shown_with_state(answer: &CallAnswer) -> String {
    let state = answer.shown().and_then(|shown| shown.state.as_deref()).unwrap_or("");
    format!("{} {state}", shown(answer)).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Legal] = &[
        Legal::new("the first", &["200", "409 stale_token"], "COMPLETED").first(0),
        Legal::new("the second", &["409 stale_token", "200"], "COMPLETED"),
    ];

    fn found(answers: &[&str], end: &str, first: usize) -> Option<&'static str> {
        let answers = answers.iter().map(|&word| word.to_owned()).collect();
        let outcome = RoundOutcome { answers, end: end.to_owned(), first, raced: true, task: None };
        outcome.among(TABLE).map(|legal| legal.name)
    }

    #[test]
    fn only_outcomes_in_the_table_are_legal() {
        assert_eq!(found(&["200", "409 stale_token"], "COMPLETED", 0), Some("the first"));
        assert_eq!(found(&["409 stale_token", "200"], "COMPLETED", 0), Some("the second"));
        assert_eq!(found(&["200", "409 stale_token"], "COMPLETED", 1), None);
        assert_eq!(found(&["200", "200"], "COMPLETED", 0), None);
        assert_eq!(found(&["200"], "COMPLETED", 0), None);
        assert_eq!(found(&["409 stale_token", "200"], "PENDING", 0), None);
    }
}
