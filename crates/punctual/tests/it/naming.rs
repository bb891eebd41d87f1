//! One word, one thing: a type name that is defined more than once in the sources needs a reason.
//!
//! The test reads the items at the left margin of `crates/*/src`, apart from test modules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Every loop and tool has its own.
const LOOP: &str = "one per loop or tool, always named with its module";
/// The client crate and the domain have a type for the same thing.
const WIRE: &str = "the wire type, and the domain type or port for the same thing";
/// Both stores have a type for the same thing.
const STORES: &str = "the same part in each store";

/// Names that are defined more than once for one concept, each with its reason.
const REASONS: &[(&str, &str)] = &[
    ("Allowances", STORES),
    ("Beat", WIRE),
    ("Caller", "who calls the server: of a request, and in a trial"),
    ("Cli", "the command line of a binary"),
    ("Config", LOOP),
    ("Covers", WIRE),
    ("Deps", LOOP),
    ("DueRow", STORES),
    ("Failure", WIRE),
    ("Fault", STORES),
    ("Grant", "what a poll was granted, in the product and in the history of a trial"),
    ("History", "what happened in a random test or a trial, for its checker"),
    ("KeyEntry", STORES),
    ("LaneDirectory", STORES),
    ("Law", "a law that the checker of the trials, or the model, holds"),
    ("LimitsCache", STORES),
    ("ListRow", STORES),
    ("Listed", STORES),
    ("LiveTask", "a live task, of a schedule and of a random test"),
    ("Migrator", STORES),
    ("Model", "the model that a random test holds an adapter against"),
    ("Nemesis", "the part of a trial that injects faults"),
    ("NewTask", WIRE),
    ("NotedRow", STORES),
    ("Occurrence", WIRE),
    ("Operation", "a bulk operation on the wire, and a call of the store in the model"),
    ("Options", "what a module is opened or started with; named with its module"),
    ("Page", WIRE),
    ("Partition", WIRE),
    ("Pause", "a pause, of a queue or of a schedule, on the wire and in the domain"),
    ("Problem", WIRE),
    ("Queue", WIRE),
    ("QueuesState", STORES),
    ("RateLimit", WIRE),
    ("Report", LOOP),
    ("RetryPolicy", WIRE),
    ("ReviewCursor", STORES),
    ("Route", "who takes a task, in the product and in the model"),
    ("Run", "a run, on the wire, in the trail and in a trial"),
    ("RunError", WIRE),
    ("Schedule", WIRE),
    ("Session", STORES),
    ("Shared", "the state behind a handle; private to its module"),
    ("Task", WIRE),
    ("Tenant", "a tenant on the wire, and the name of one in a request"),
    ("TenantLimits", WIRE),
    ("Walks", STORES),
];

#[test]
fn a_type_name_stands_for_one_thing() {
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let sources = sources();
    assert!(sources.len() > 300, "the sources were not read: {} files", sources.len());
    for path in sources {
        let text = read(&path);
        for name in product_code(&text).lines().filter_map(defined) {
            places.entry(name.to_owned()).or_default().push(path.clone());
        }
    }
    places.retain(|_, places| places.len() > 1);
    let known: BTreeSet<&str> = REASONS.iter().map(|(name, _)| *name).collect();
    assert_eq!(known.len(), REASONS.len(), "a name is listed twice");
    let new: Vec<_> = places.iter().filter(|(name, _)| !known.contains(name.as_str())).collect();
    assert!(new.is_empty(), "these names are defined more than once; rename them, or give a reason: {new:#?}");
    let unique: Vec<_> = known.iter().filter(|name| !places.contains_key(**name)).collect();
    assert!(unique.is_empty(), "these names are defined once by now; take them off the list: {unique:?}");
}

/// The name of the type that a line defines, if it does so at the left margin.
fn defined(line: &str) -> Option<&str> {
    let line =
        ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|prefix| line.strip_prefix(prefix)).unwrap_or(line);
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|keyword| line.strip_prefix(keyword))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// A file without its inline test module, which stands at its end.
fn product_code(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

/// Every source file of every crate, apart from test modules.
fn sources() -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in entries(&crates) {
        collect(&folder.join("src"), &mut files);
    }
    let tests: Vec<PathBuf> = files.iter().flat_map(|file| test_modules(file)).collect();
    files.retain(|file| !tests.iter().any(|module| file.with_extension("").starts_with(module)));
    files
}

/// Adds the files below a folder that are not tests by their names.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && name != "tests" {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests.rs" {
            files.push(path);
        }
    }
}

/// The modules, as paths without an extension, that a file declares for tests only.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let is_root = ["lib.rs", "main.rs"].iter().any(|root| file.ends_with(root));
    let folder = if is_root { file.with_file_name("") } else { file.with_extension("") };
    let text = read(file);
    let declared = text.split("#[cfg(test)]\n").skip(1).filter_map(|rest| rest.lines().next());
    let names = declared.filter_map(|line| line.split_once("mod ")?.1.strip_suffix(';'));
    names.map(|name| folder.join(name)).collect()
}

/// What is in a folder; nothing if it does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("a folder can be read").path()).collect()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
