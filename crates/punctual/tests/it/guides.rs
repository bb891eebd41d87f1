//! The README's tour and the pages in `docs`, followed word for word.
//!
//! Each command is typed as it stands there, and must print what the page shows. Only two things
//! differ: the program is the one under test, and other ports stand in for those of the page. A
//! command that only reads is repeated for a while, as by a reader who typed too fast.
//!
//! `steps.rs` says which blocks of a page do what.

mod reader;
mod shown;
mod steps;
mod terminal;

use std::path::{Path, PathBuf};

use self::reader::Reader;
use self::steps::{Block, blocks, steps};

/// Follows a page from its first block to its last.
macro_rules! follow {
    ($($test:ident: $page:literal;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                follow($page).await;
            }
        )*

        /// The pages that the tests above follow.
        const FOLLOWED: &[&str] = &[$($page),*];
    };
}

follow! {
    the_tour_does_what_it_says: "README.md";
    breakers_md_does_what_it_says: "docs/breakers.md";
    errors_md_does_what_it_says: "docs/errors.md";
    explain_md_does_what_it_says: "docs/explain.md";
    operations_md_does_what_it_says: "docs/operations.md";
    order_md_does_what_it_says: "docs/order.md";
    queues_md_does_what_it_says: "docs/queues.md";
    retries_md_does_what_it_says: "docs/retries.md";
    schedules_md_does_what_it_says: "docs/schedules.md";
    security_md_does_what_it_says: "docs/security.md";
    tls_md_does_what_it_says: "docs/tls.md";
    webhooks_md_does_what_it_says: "docs/webhooks.md";
    workers_md_does_what_it_says: "docs/workers.md";
}

async fn follow(page: &str) {
    let page = read(page);
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let mut reader = Reader::new(home.path(), &page);
    let steps = steps(&page);
    assert!(!steps.is_empty(), "the page has nothing to follow");
    for step in steps {
        reader.take(step).await;
    }
}

/// Blocks that another test runs, or that are no code: the page and the language.
const RUN_ELSEWHERE: &[(&str, &str)] = &[
    // sql_document.rs
    ("docs/sql.md", "sql"),
    // A doc test of the client's `Ledger` has it.
    ("docs/sql.md", "rust"),
    // replica.rs
    ("docs/operations.md", "sql"),
    // Drawn from the state machine by a test of the core.
    ("docs/states.md", "mermaid"),
];

#[test]
fn every_code_block_is_run() {
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        for Block { language, line, is_followed, .. } in blocks(&text) {
            let elsewhere = RUN_ELSEWHERE.contains(&(page.as_str(), language));
            let here = is_followed && FOLLOWED.contains(&page.as_str());
            assert!(here || elsewhere, "{page}:{line} has a block {language:?} that no test runs");
            seen += 1;
        }
    }
    assert!(seen > 60, "the pages were not read: {seen} blocks");
}

#[test]
fn the_ledger_of_sql_md_is_a_doc_test() {
    let (page, ledger) = (read("docs/sql.md"), read("crates/client/src/ledger.rs"));
    let rust: Vec<Block> = blocks(&page).into_iter().filter(|block| block.language == "rust").collect();
    let [block] = rust.as_slice() else { panic!("sql.md has {} blocks of Rust", rust.len()) };
    let example = block.lines.iter().fold(String::new(), |text, line| text + "//! " + line + "\n");
    assert!(ledger.contains(&example), "ledger.rs does not have\n{example}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The README and the pages in `docs`, from the root.
fn pages() -> Vec<String> {
    let docs = std::fs::read_dir(root().join("docs")).into_iter().flatten().flatten();
    let names = docs.map(|entry| PathBuf::from(entry.file_name()));
    let pages = names.filter(|name| name.extension().is_some_and(|ending| ending == "md"));
    let pages = pages.map(|name| format!("docs/{}", name.display()));
    pages.chain(["README.md".to_owned()]).collect()
}
