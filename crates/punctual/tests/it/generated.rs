//! Clients that generators make of `/openapi.json`: they compile without a fault, and a program
//! that uses one submits, leases, completes and lists tasks, makes a schedule, and pauses a queue.
//!
//! The programs are in `generated/`. Each has a server of its own, whose document it is made of.

pub mod tools;

use std::path::Path;

use tools::{NODE, PYTHON, run};

use super::world::World;

/// A server, and its document in a file beside its data.
async fn documented() -> World {
    let world = World::start().await;
    let document = world.caller().api.get("/openapi.json").await.expect(200);
    std::fs::write(world.home().join("openapi.json"), document.to_string()).expect("the document can be written");
    world
}

/// A file of `generated/`, copied to `to`.
fn copy(name: &str, to: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/generated").join(name);
    std::fs::copy(&from, to).unwrap_or_else(|error| panic!("cannot copy {}: {error}", from.display()));
}

/// Compiles the program beside its client in `home`, and runs it against the server.
fn compile_and_use(world: &World, program: &str) {
    let home = world.home();
    copy("tsconfig.json", &home.join("tsconfig.json"));
    copy(program, &home.join("program.ts"));
    std::os::unix::fs::symlink(tools::folder().join("node/node_modules"), home.join("node_modules"))
        .expect("the tools can be linked to");
    run(home, NODE, "tsc", &["-p", "."]);
    // What was compiled finds its packages from its own folder upwards.
    let printed = run(home, "", "node", &["out/program.js", world.server.url()]);
    assert_eq!(printed.trim(), "used");
}

#[tokio::test]
async fn the_client_of_openapi_python_client_works() {
    let world = documented().await;
    let home = world.home();
    copy("program.py", &home.join("program.py"));
    let generate = ["generate", "--path", "openapi.json", "--output-path", "punctual_client", "--meta", "none"];
    let printed = run(home, PYTHON, "openapi-python-client", &generate);
    // It leaves out the other form of a batch, which it does not know, and nothing else.
    assert!(printed.contains("Unsupported content type application/x-ndjson"), "{printed}");
    assert_eq!(printed.matches("WARNING").count(), 1, "{printed}");
    // Faults in the generator's own base are none of ours: what it made of the document is checked.
    let checked = ["--follow-imports=silent", "program.py", "punctual_client/api", "punctual_client/models"];
    run(home, PYTHON, "mypy", &checked);
    let printed = run(home, PYTHON, "python", &["program.py", world.server.url()]);
    assert_eq!(printed.trim(), "used");
}

#[tokio::test]
async fn the_client_of_openapi_typescript_works() {
    let world = documented().await;
    run(world.home(), NODE, "openapi-typescript", &["openapi.json", "-o", "api.d.ts"]);
    compile_and_use(&world, "openapi_fetch.ts");
}

#[tokio::test]
async fn the_client_of_hey_api_works() {
    let world = documented().await;
    let generate = ["-i", "openapi.json", "-o", "client", "-c", "@hey-api/client-fetch", "--no-log-file"];
    run(world.home(), NODE, "openapi-ts", &generate);
    compile_and_use(&world, "hey_api.ts");
}
