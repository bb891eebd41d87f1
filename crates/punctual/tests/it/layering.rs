//! Which crate may depend on which: ARCHITECTURE.md's rule, checked against the manifests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The layer of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    /// Domain and ports.
    Core,
    /// Wire types and SDK.
    Client,
    /// Implements ports.
    Adapter,
    /// Calls ports.
    Service,
    /// Talks to a running server, as a user does.
    Tool,
    /// For tests and proofs only.
    Testkit,
    /// Puts everything together.
    Binary,
    /// Runs the whole product and tries to break it.
    Trials,
}

fn layer(name: &str) -> Layer {
    match name {
        "punctual-core" => Layer::Core,
        "punctual-client" => Layer::Client,
        "punctual-store" | "punctual-broker" => Layer::Adapter,
        "punctual-auth"
        | "punctual-submission"
        | "punctual-scheduler"
        | "punctual-leader"
        | "punctual-worker"
        | "punctual-outbound"
        | "punctual-api" => Layer::Service,
        "punctual-bench" => Layer::Tool,
        "punctual-testkit" | "punctual-model" => Layer::Testkit,
        "punctual" => Layer::Binary,
        "punctual-trials" => Layer::Trials,
        _ => panic!("{name} is new here: say in this test where it stands"),
    }
}

/// Whether a crate of one layer may depend on a crate of another, apart from tests.
fn may_know(from: Layer, to: Layer) -> bool {
    match from {
        Layer::Core => false,
        Layer::Client | Layer::Adapter => to == Layer::Core,
        Layer::Service => [Layer::Core, Layer::Client, Layer::Service].contains(&to),
        Layer::Tool | Layer::Testkit => [Layer::Core, Layer::Client].contains(&to),
        Layer::Binary => ![Layer::Testkit, Layer::Trials].contains(&to),
        Layer::Trials => [Layer::Core, Layer::Client, Layer::Testkit, Layer::Binary].contains(&to),
    }
}

#[test]
fn dependencies_point_inwards() {
    let crates = workspace();
    assert!(crates.contains_key("punctual-core") && crates.contains_key("punctual"), "the workspace was not found");
    let mut faults = Vec::new();
    for (name, dependencies) in &crates {
        for dependency in dependencies.iter().filter(|dependency| crates.contains_key(*dependency)) {
            if !may_know(layer(name), layer(dependency)) {
                faults.push(format!("{name} must not depend on {dependency}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Only the benchmark, which is a client, uses the SDK, and of it the HTTP client alone.
#[test]
fn the_server_has_the_wire_types_and_not_the_sdk() {
    for package in packages() {
        let client = |dependency: &&Value| dependency["name"] == "punctual-client" && dependency["kind"] != "dev";
        let allowed: &[&str] = if package["name"] == "punctual-bench" { &["http"] } else { &[] };
        for dependency in list(&package["dependencies"]).iter().filter(client) {
            assert_eq!(list(&dependency["features"]), allowed, "{} asks for features of the client", package["name"]);
        }
    }
}

#[test]
fn only_the_testkit_can_forge_changes() {
    for package in packages() {
        let core = |dependency: &&Value| dependency["name"] == "punctual-core";
        for dependency in list(&package["dependencies"]).iter().filter(core) {
            let forges = list(&dependency["features"]).iter().any(|feature| feature == "testing");
            assert_eq!(forges, package["name"] == "punctual-testkit", "{} asks for `testing`", package["name"]);
        }
    }
}

/// What the server calls for others goes through the guard of `punctual-outbound`: no other service
/// opens a connection of its own.
#[test]
fn services_connect_through_the_guard_alone() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = packages()
        .iter()
        .filter_map(|package| package["name"].as_str())
        .filter(|name| layer(name) == Layer::Service && *name != "punctual-outbound")
        .map(|name| crates.join(name.trim_start_matches("punctual-")).join("src"))
        .collect();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).expect("a folder of sources").flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("tests.rs") {
                files += 1;
                let text = std::fs::read_to_string(&path).expect("a source can be read");
                for way in ["HttpConnector", "reqwest", "TcpStream::connect", "TcpSocket", "UdpSocket"] {
                    assert!(!text.contains(way), "{} connects by {way}", path.display());
                }
            }
        }
    }
    assert!(files > 200, "the sources were not read: {files} files");
}

/// Every crate of the workspace with its dependencies outside of tests.
fn workspace() -> BTreeMap<String, Vec<String>> {
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let outside_tests = |dependency: &&Value| dependency["kind"] != "dev";
    let dependencies =
        |package: &Value| list(&package["dependencies"]).iter().filter(outside_tests).map(name).collect();
    packages().iter().map(|package| (name(package), dependencies(package))).collect()
}

/// What cargo reports about the crates of the workspace.
fn packages() -> Vec<Value> {
    let asked = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let metadata: Value = serde_json::from_slice(&asked.stdout).expect("cargo answers JSON");
    list(&metadata["packages"])
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().expect("a list").clone()
}
