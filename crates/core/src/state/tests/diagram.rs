//! `docs/states.md` is written by the machine itself: `UPDATE_DOCS=1 cargo test -p punctual-core
//! states_md` rewrites it, and without that the committed file must be what would be written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::table::{events, positions};
use super::*;

const HEAD: &str = "\
# The states of a task

| state | what it means |
|---|---|
";

/// What a state means, in one line.
fn meaning(state: State) -> &'static str {
    match state {
        State::Blocked => "waits for the tasks in its `depends_on`",
        State::Pending => "waits: for its time, for a retry, or for a worker to take it",
        State::Queued => "was claimed and is in a broker, on its way to its worker; never without a broker",
        State::Running => "is with a worker or at its webhook",
        State::Completed => "is done",
        State::Cancelled => "will not run: it was cancelled or purged, or a task it depends on did not complete",
        State::Failed => {
            "**did not get to run**: it expired while it waited, or a task it depends on did not complete \
             (`on_dependency_failure: fail`)"
        }
        State::DeadLettered => {
            "its runs failed: the retries are used up, or the error was not worth a retry. It can be re-driven"
        }
    }
}

const FAILED_IS_NOT_DEAD: &str = "
A task whose runs failed is `DEAD_LETTERED`, never `FAILED`. Those who come from Celery or BullMQ
look for it under `FAILED` first. `COMPLETED`, `CANCELLED`, `FAILED` and `DEAD_LETTERED` are final:
such a task has finished, and only a re-drive or a purge of a dead letter changes it.

## Every step

A test writes this page from the state machine (`crates/core/src/state.rs`). After a change of the
machine run `UPDATE_DOCS=1 cargo test -p punctual-core states_md`.

A claim that starts the run (`lease`) is two steps in one write: PENDING → QUEUED → RUNNING. So only
a task that goes through a broker is ever seen as `QUEUED`. The table has steps that leave a task in
its state (an edit, \"run now\", a request to stop); the diagram does not. A – in the table means
that the event is refused and changes nothing.
";

/// Each step that the machine takes, in the order of the table: from, to, and what happened.
fn steps() -> Vec<(State, State, &'static str)> {
    let mut steps = Vec::new();
    for position in positions() {
        for (name, event) in events() {
            let Ok(change) = transition(&position, event, &by()) else { continue };
            let mut from = position.state;
            for entry in change.trail.entries() {
                let name = if position.cancel_requested { "asked to stop, and ended" } else { name };
                steps.push((from, entry.to, name));
                from = entry.to;
            }
        }
    }
    steps
}

fn written() -> String {
    let mut text = HEAD.to_owned();
    for state in State::ALL {
        writeln!(text, "| `{}` | {} |", state.as_str(), meaning(state)).unwrap();
    }
    text.push_str(FAILED_IS_NOT_DEAD);
    let steps = steps();
    text.push_str("\n```mermaid\nstateDiagram-v2\n    [*] --> BLOCKED: submitted, depends on others\n    [*] --> PENDING: submitted\n");
    let mut drawn = BTreeSet::new();
    for (from, to, _) in steps.iter().filter(|(from, to, _)| from != to) {
        if drawn.insert((from, to)) {
            let mut names: Vec<&str> = Vec::new();
            for (_, _, name) in steps.iter().filter(|step| (step.0, step.1) == (*from, *to)) {
                if !names.contains(name) {
                    names.push(name);
                }
            }
            writeln!(text, "    {} --> {}: {}", from.as_str(), to.as_str(), names.join(" / ")).unwrap();
        }
    }
    for state in [State::Completed, State::Cancelled, State::Failed, State::DeadLettered] {
        writeln!(text, "    {} --> [*]", state.as_str()).unwrap();
    }
    text.push_str("```\n\n| event |");
    for position in positions() {
        let asked = if position.cancel_requested { ", asked to stop" } else { "" };
        write!(text, " {}{asked} |", position.state.as_str()).unwrap();
    }
    writeln!(text, "\n|---|{}", "---|".repeat(positions().len())).unwrap();
    for (name, event) in events() {
        write!(text, "| {name} |").unwrap();
        for position in positions() {
            let cell = match transition(&position, event.clone(), &by()) {
                Ok(change) if change.cancel_requested => "RUNNING, asked to stop",
                Ok(change) => change.to.as_str(),
                Err(Illegal { .. }) => "–",
            };
            write!(text, " {cell} |").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn states_md_is_what_the_machine_does() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/states.md");
    let written = written();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &written).expect("docs/states.md can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == written, "docs/states.md is out of date: UPDATE_DOCS=1 cargo test -p punctual-core states_md");
}

#[test]
fn every_edge_of_the_api_is_taken_and_no_other() {
    let taken: BTreeSet<(State, State)> = steps().into_iter().map(|(from, to, _)| (from, to)).collect();
    assert_eq!(taken, super::lives::EDGES.into_iter().collect());
}
