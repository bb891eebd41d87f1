//! The documents name files and functions that exist, and are laid out to be read.

use std::path::{Path, PathBuf};

/// No line of prose is longer; tables, code, links and single long words may be.
const COLUMNS: usize = 100;
/// A newcomer reads it in one sitting.
const ARCHITECTURE_LINES: usize = 300;

#[test]
fn every_file_that_a_document_names_exists() {
    let mut named = 0;
    for document in documents() {
        let text = read(&document);
        let quoted = text.split('`').skip(1).step_by(2);
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for path in quoted.chain(linked).filter(|text| is_path(text)) {
            named += 1;
            assert!(find(path).is_some(), "{} names {path}", document.display());
        }
    }
    assert!(named > 20, "the documents were not read: {named} files named");
}

#[test]
fn every_function_on_a_walk_is_in_its_file() {
    let architecture = read(&root().join("ARCHITECTURE.md"));
    let mut named = 0;
    for line in architecture.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let Some(file) = cells.iter().position(|cell| is_path(cell.trim_matches('`'))) else { continue };
        let source = read(&find(cells[file].trim_matches('`')).unwrap_or_else(|| panic!("no such file: {line}")));
        for function in cells.get(file + 1).into_iter().flat_map(|cell| cell.split('`').skip(1).step_by(2)) {
            named += 1;
            let name = function.rsplit("::").next().unwrap_or(function);
            let is_defined = ["fn", "struct", "enum", "trait"].iter().any(|word| has_word(&source, word, name));
            assert!(is_defined, "{} does not define {name}", cells[file]);
        }
    }
    assert!(named > 40, "the walks were not read: {named} functions named");
}

#[test]
fn architecture_is_short() {
    let lines = read(&root().join("ARCHITECTURE.md")).lines().count();
    assert!(lines <= ARCHITECTURE_LINES, "ARCHITECTURE.md has {lines} lines");
}

#[test]
fn prose_is_wrapped() {
    for document in documents() {
        let (text, mut is_code) = (read(&document), false);
        for (number, line) in (1..).zip(text.lines()) {
            // A comment holds commands that a reader need not see.
            is_code ^= ["```", "<!--", "-->"].iter().any(|fence| line.trim_start().starts_with(fence));
            let is_text = !line.starts_with(['|', '#']) && !line.contains("](") && line.trim().contains(' ');
            let is_free = is_code || !is_text;
            let length = line.chars().count();
            assert!(is_free || length <= COLUMNS, "{}:{number} has {length} columns", document.display());
        }
    }
}

#[test]
fn comments_are_wrapped() {
    let mut folders = vec![root().join("crates")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                files += 1;
                check_comments(&path);
            }
        }
    }
    assert!(files > 500, "the sources were not read: {files} files");
}

/// No comment of a source file is too wide, examples and tables apart.
fn check_comments(path: &Path) {
    let mut is_example = false;
    for (number, line) in (1..).zip(read(path).lines()) {
        let comment = line.trim_start();
        is_example = comment.starts_with("//") && (is_example ^ comment.contains("```"));
        let is_prose = comment.starts_with("//") && !is_example && !comment.contains(" | ");
        let length = line.chars().count();
        assert!(!is_prose || length <= COLUMNS, "{}:{number} has {length} columns", path.display());
    }
}

/// Every document of the repository.
fn documents() -> Vec<PathBuf> {
    let mut documents: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    let docs = std::fs::read_dir(root().join("docs")).into_iter().flatten().flatten().map(|entry| entry.path());
    documents.extend(docs.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    assert!(documents.len() > 10, "the documents were not found: {documents:?}");
    documents
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A path as the documents write it: from the root, from `docs`, from `crates` or from the
/// product's crate.
fn find(path: &str) -> Option<PathBuf> {
    let places = ["", "docs", "crates", "crates/punctual"];
    places.iter().map(|place| root().join(place).join(path)).find(|path| path.exists())
}

/// `crate/src/file.rs` and the like: with a folder and an ending that we use.
fn is_path(text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && text.contains('/') && [".rs", ".md", ".toml", ".sql"].iter().any(|ending| text.ends_with(ending))
}

/// Whether `word name` stands in the source, and not only as the beginning of a longer name.
fn has_word(source: &str, word: &str, name: &str) -> bool {
    source
        .split(&format!("{word} {name}"))
        .skip(1)
        .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
}
