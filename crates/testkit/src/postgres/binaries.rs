//! Where PostgreSQL's programs are, and which user runs them: they refuse to run as root.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shared;

/// Names the directory of the programs to use instead of those found.
const CHOSEN: &str = "PUNCTUAL_TEST_POSTGRES_BIN";

/// Where Debian keeps its versions.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The default version.
const VERSION: &str = "15";

/// The programs of one version, and the user that runs them.
#[derive(Clone, Debug)]
pub(super) struct Binaries {
    directory: PathBuf,
    account: Option<Account>,
}

impl Binaries {
    /// Finds the programs: those of `PUNCTUAL_TEST_POSTGRES_BIN`, else version 15 as Debian
    /// installs it, else those on the `PATH`, else the newest version that Debian has installed.
    pub(super) fn find() -> Self {
        let directory = match std::env::var_os(CHOSEN) {
            Some(chosen) => {
                let chosen = PathBuf::from(chosen);
                assert!(is_complete(&chosen), "{CHOSEN}={}: there is no postgres and initdb in it", chosen.display());
                chosen
            }
            None => default_directory().unwrap_or_else(|| {
                panic!("no PostgreSQL found: run scripts/install-test-deps, or set {CHOSEN} to its bin directory")
            }),
        };
        let account = (shared::user() == 0).then(|| Account::named("postgres"));
        Self { directory: std::path::absolute(directory).expect("a directory has an absolute path"), account }
    }

    /// One of the programs, to be run as a user that it accepts.
    pub(super) fn command(&self, program: &str) -> Command {
        self.as_user(self.directory.join(program))
    }

    /// Any program, to be run as the user that owns the servers' files.
    pub(super) fn as_user(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        // The environment of the test run must not set the language of messages or the default
        // server.
        command.env("LC_ALL", "C").current_dir("/");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        if let Some(Account { user, group }) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    /// Gives a file or directory to the user that runs the programs.
    pub(super) fn own(&self, path: &Path) {
        if let Some(Account { user, group }) = self.account {
            let given = std::os::unix::fs::chown(path, Some(user), Some(group));
            given.unwrap_or_else(|error| panic!("{} cannot be given to postgres: {error}", path.display()));
        }
    }

    /// What `postgres --version` says, and where it is: the same for the same programs.
    pub(super) fn identity(&self) -> String {
        format!("{}{}", self.directory.display(), run(self.command("postgres").arg("--version")))
    }
}

#[derive(Clone, Copy, Debug)]
struct Account {
    user: u32,
    group: u32,
}

impl Account {
    fn named(name: &str) -> Self {
        let number = |flag| {
            let printed = run(Command::new("id").args([flag, name]));
            printed.trim().parse().unwrap_or_else(|_| panic!("id {flag} {name} prints {printed:?}"))
        };
        Self { user: number("-u"), group: number("-g") }
    }
}

/// Runs a command to its end and returns what it printed; panics with all of it when it fails.
pub(super) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}

fn is_complete(directory: &Path) -> bool {
    ["postgres", "initdb"].iter().all(|program| directory.join(program).is_file())
}

fn default_directory() -> Option<PathBuf> {
    let debian = |version: &str| Path::new(DEBIAN).join(version).join("bin");
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // A link on the PATH leads to the directory that has all of the programs.
    let on_path = std::env::split_paths(&paths).filter_map(|path| path.join("postgres").canonicalize().ok());
    let on_path = on_path.filter_map(|program| program.parent().map(Path::to_owned));
    let installed = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let mut installed: Vec<u32> =
        installed.filter_map(|entry| entry.file_name().to_str().and_then(|version| version.parse().ok())).collect();
    installed.sort_unstable_by(|one, other| other.cmp(one));
    let newest_first = installed.iter().map(|version| debian(&version.to_string()));
    std::iter::once(debian(VERSION)).chain(on_path).chain(newest_first).find(|directory| is_complete(directory))
}
