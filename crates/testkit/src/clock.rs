//! A wall clock that jumps while a program runs, for black-box tests.
//!
//! A program that is started under a [`WallClock`] reads a wall clock with an offset that the test
//! sets, at once. Its monotonic clock continues. A preloaded library does that, so the program must
//! be linked to the system's C library.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use jiff::SignedDuration;
use tempfile::NamedTempFile;

use crate::shared;

/// The library's source.
const SHIM: &str = include_str!("clock/shim.c");

/// The wall clock of programs that are started under it.
#[derive(Debug)]
pub struct WallClock {
    library: PathBuf,
    offset: NamedTempFile,
}

impl WallClock {
    /// A clock that is right.
    pub fn right() -> Self {
        let offset = NamedTempFile::new().expect("a temporary file can be made");
        let clock = Self { library: built(), offset };
        clock.set_ahead(SignedDuration::ZERO);
        clock
    }

    /// Sets the clock ahead by this much, or behind if it is negative.
    pub fn set_ahead(&self, by: SignedDuration) {
        let nanoseconds = i64::try_from(by.as_nanos()).expect("a test shifts the clock by less than centuries");
        // Eight bytes of a mapped page: a reader sees all old ones or all new ones.
        let written = self.offset.as_file().write_all_at(&nanoseconds.to_ne_bytes(), 0);
        written.expect("the offset file can be written");
    }

    /// The command that starts a program under this clock: `env` with its variables.
    pub fn starter(&self) -> Vec<String> {
        let path = |path: &std::path::Path| path.to_str().expect("a path of ours is text").to_owned();
        vec![
            "env".to_owned(),
            format!("LD_PRELOAD={}", path(&self.library)),
            format!("TESTKIT_CLOCK={}", path(self.offset.path())),
        ]
    }
}

/// The path of the library. The first process builds it, while the others wait.
fn built() -> PathBuf {
    let mut key = DefaultHasher::new();
    SHIM.hash(&mut key);
    let name = format!("clock-{:016x}", key.finish());
    let library = shared::directory().join(format!("{name}.so"));
    let lock = shared::lockable(&format!("{name}.lock"));
    lock.lock().expect("the lock file can be locked");
    if !library.exists() {
        let source = shared::directory().join(format!("{name}.c"));
        std::fs::write(&source, SHIM).expect("the source can be written");
        let making = shared::directory().join(format!("{name}.making"));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&making).arg(&source).arg("-ldl");
        let compiled = compiler.output().unwrap_or_else(|error| {
            panic!("there is no C compiler `cc`; run scripts/install-test-deps: {error}");
        });
        assert!(compiled.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&compiled.stderr));
        std::fs::rename(&making, &library).expect("the library can be renamed");
    }
    library
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;

    use jiff::Timestamp;

    use super::*;

    /// Prints the time of the wall clock for every line of input.
    const PRINT_TIME: &str = "while read line; do date +%s; done";

    #[test]
    fn only_the_program_under_the_clock_sees_it_jump() {
        let clock = WallClock::right();
        let starter = clock.starter();
        let mut shell = Command::new(&starter[0])
            .args(&starter[1..])
            .args(["sh", "-c", PRINT_TIME])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let mut ask = shell.stdin.take().expect("stdin is piped");
        let mut found = BufReader::new(shell.stdout.take().expect("stdout is piped")).lines();
        for hours in [0, 5, -7, 0] {
            clock.set_ahead(SignedDuration::from_hours(hours));
            writeln!(ask, "time").expect("it reads");
            let shown: i64 = found.next().expect("it prints a line").expect("text").parse().expect("seconds");
            let ahead = shown - Timestamp::now().as_second();
            assert!((ahead - hours * 3_600).abs() <= 5, "ahead by {ahead} s instead of {hours} h");
        }
        drop(ask);
        shell.wait().expect("it ends");
    }
}
