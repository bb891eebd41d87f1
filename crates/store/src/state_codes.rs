//! Checks that every state number in a statement is the one that the enum gives its name.
//!
//! SQL knows states by their numbers. Each number stands before a comment with its name, such as
//! `state = 1 /* PENDING */`, and this test compares the two. Migrations are not checked: they
//! never change.

use std::fs;
use std::path::{Path, PathBuf};

use punctual_core::state::State;

/// The comparisons that a statement may make with a state.
const OPERATORS: [&str; 7] = [">=", "<=", "<>", "=", ">", "<", "IN ("];

fn statements() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
    let mut found = Vec::new();
    for folder in ["portable", "sqlite", "postgres"] {
        for entry in fs::read_dir(root.join(folder)).expect("the folder of statements can be read") {
            let path = entry.expect("the folder can be listed").path();
            let text = fs::read_to_string(&path).expect("a statement can be read");
            let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
            found.push((path, code.join("\n")));
        }
    }
    found
}

/// The number at the start of a text, and what follows it.
fn number(text: &str) -> Option<(u8, &str)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
    Some((text[..text.len() - rest.len()].parse().ok()?, rest))
}

/// The state that a comment at the start of a text names, and what follows it.
fn named(text: &str) -> Option<(State, &str)> {
    let (name, rest) = text.strip_prefix(" /* ")?.split_once(" */")?;
    Some((State::from_name(name)?, rest))
}

/// The texts behind every comparison of a state.
fn compared(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("state").filter_map(|(at, word)| {
        let is_word = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let rest = code[at + word.len()..].trim_start();
        OPERATORS.iter().find_map(|operator| rest.strip_prefix(operator)).filter(|_| is_word).map(str::trim_start)
    })
}

#[test]
fn every_state_number_in_sql_carries_its_name() {
    let mut checked = 0;
    for (path, code) in statements() {
        for mut rest in compared(&code) {
            while let Some((number, behind)) = number(rest) {
                let (state, behind) =
                    named(behind).unwrap_or_else(|| panic!("{}: {number} has no name", path.display()));
                assert_eq!(number, state.code(), "{}: {state:?}", path.display());
                rest = behind.trim_start_matches([',', ' ']);
                checked += 1;
            }
        }
    }
    assert!(checked >= 40, "only {checked} state numbers were found");
}

#[test]
fn every_name_of_a_state_in_sql_stands_behind_its_number() {
    for (path, code) in statements() {
        for (at, _) in code.match_indices(" /* ") {
            let Some((state, _)) = named(&code[at..]) else { continue };
            let digits = code[..at].trim_end_matches(|c: char| c.is_ascii_digit()).len();
            assert_eq!(code[digits..at].parse(), Ok(state.code()), "{}: {state:?}", path.display());
        }
    }
}

/// Statements say `>= QUEUED` for held tasks and `<= PENDING` for tasks that have not begun.
#[test]
fn live_states_are_ordered_as_statements_compare_them() {
    for state in State::ALL.into_iter().filter(|state| !state.is_final()) {
        assert_eq!(state.code() >= State::Queued.code(), state.is_held(), "{state:?}");
        assert_eq!(state.code() <= State::Pending.code(), !state.is_held(), "{state:?}");
    }
}
