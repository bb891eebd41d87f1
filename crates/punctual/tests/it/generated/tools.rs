//! The programs that `scripts/install-test-deps` installs for the tests of the OpenAPI document, in
//! a folder of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Where the Python programs are in that folder.
pub const PYTHON: &str = "python/bin";
/// Where those of Node are.
pub const NODE: &str = "node/node_modules/.bin";

/// The folder, as the script finds it.
pub fn folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("PUNCTUAL_TEST_TOOLS").unwrap_or_else(|| {
        let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        cache.expect("HOME is set").join("punctual-test-tools")
    })
}

/// A program of the folder, to be run in `home`; with no place, one of the system.
pub fn command(home: &Path, place: &str, program: &str) -> Command {
    let bin = folder().join(place);
    let path = if place.is_empty() { PathBuf::from(program) } else { bin.join(program) };
    assert!(place.is_empty() || path.exists(), "{program} is missing; scripts/install-test-deps installs it");
    let mut command = Command::new(path);
    // Generators call their formatters by name.
    let others = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(bin).chain(std::env::split_paths(&others));
    command.current_dir(home).env("PATH", std::env::join_paths(found).expect("the folders can be joined"));
    command
}

/// Runs a program, which must succeed, and returns what it printed.
pub fn run(home: &Path, place: &str, program: &str, arguments: &[&str]) -> String {
    let output = command(home, place, program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program} (scripts/install-test-deps installs it): {error}"));
    let printed = printed(&output);
    assert!(output.status.success(), "{program} failed ({}):\n{printed}", output.status);
    printed
}

/// What a program printed.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
