//! The server and its document do not drift apart: schemathesis sends what the document allows and
//! what it does not, and compares every answer with it.
//!
//! All checks are on, which is the default. `drift/hooks.py` and `drift/schemathesis.toml` say what
//! it has to know besides. The server is one of its own without webhooks, which would call hosts
//! that were made up.

use std::path::Path;

use super::generated::tools::{PYTHON, command, printed};
use super::world::World;

/// What is tried with each operation, and the seconds after which nothing new is begun.
const EXAMPLES: &str = "6";
const SECONDS: &str = "45";

async fn compare(phases: &str, seed: u32) {
    let world = World::start_with(|serve| serve.arg("--roles").arg("api,leader")).await;
    let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/drift");
    let mut schemathesis = command(world.home(), PYTHON, "schemathesis");
    schemathesis.env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", &settings).env("PYTHONDONTWRITEBYTECODE", "1");
    schemathesis.arg("--config-file").arg(settings.join("schemathesis.toml")).arg("run");
    schemathesis.arg(format!("{}/openapi.json", world.server.url())).args(["--phases", phases]);
    schemathesis.args(["--seed", &seed.to_string(), "--max-examples", EXAMPLES, "--max-time", SECONDS]);
    schemathesis.args(["--generation-database", "none", "--continue-on-failure", "--no-color", "--warnings", "off"]);
    let output = schemathesis.output().expect("schemathesis runs");
    let printed = printed(&output);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("Tested: 78") || !phases.contains("fuzzing"), "{printed}");
}

#[tokio::test]
async fn the_server_keeps_its_document_with_one_seed() {
    compare("examples,fuzzing,stateful", 1).await;
}

#[tokio::test]
async fn the_server_keeps_its_document_with_another_seed() {
    compare("examples,fuzzing,stateful", 2).await;
}

#[tokio::test]
async fn the_server_keeps_its_document_with_a_third_seed() {
    compare("examples,fuzzing,stateful", 3).await;
}

#[tokio::test]
async fn every_bound_of_the_document_is_that_of_the_server() {
    compare("coverage", 1).await;
}
