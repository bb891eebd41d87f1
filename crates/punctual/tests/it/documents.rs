//! Every file that the documents name exists.

use std::path::Path;

#[test]
fn every_file_that_a_document_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut named = 0;
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/breakers.md",
        "docs/explain.md",
        "docs/glossary.md",
        "docs/operations.md",
        "docs/order.md",
        "docs/performance.md",
        "docs/queues.md",
        "docs/schedules.md",
        "docs/sql.md",
        "docs/states.md",
    ] {
        let text = std::fs::read_to_string(root.join(document)).unwrap_or_else(|error| panic!("{document}: {error}"));
        let quoted = text.split('`').skip(1).step_by(2);
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for path in quoted.chain(linked).filter(|text| is_path(text)) {
            named += 1;
            let places = ["", "docs", "crates", "crates/punctual"];
            assert!(places.iter().any(|place| root.join(place).join(path).exists()), "{document} names {path}");
        }
    }
    assert!(named > 20, "the documents were not read: {named} files named");
}

/// `crate/src/file.rs` and the like: a path with a folder and one of our file extensions.
fn is_path(text: &str) -> bool {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    plain && text.contains('/') && [".rs", ".md", ".toml", ".sql"].iter().any(|ending| text.ends_with(ending))
}
