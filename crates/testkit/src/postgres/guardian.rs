//! Ensures that no server outlives its test, however the test ends.
//!
//! A small shell script waits for the end of its input, which comes when the guardian is dropped or
//! the test's process is killed. Then it ends the server and removes its directory. Nothing else
//! does either.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ends the server of a directory, and removes the directory, when dropped or when the process
/// dies.
#[derive(Debug)]
pub(super) struct Guardian {
    shell: Child,
}

impl Guardian {
    /// Takes charge of a directory and of the server whose data is in `directory`/data.
    pub(super) fn over(directory: &Path) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", include_str!("guardian.sh"), "guardian"]).arg(directory);
        command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // In its own process group, so that the test runner's signal to a hanging test does not
        // reach it.
        command.process_group(0);
        Self { shell: command.spawn().expect("sh runs") }
    }

    /// Ends the server and removes its directory now. Further calls do nothing.
    pub(super) fn end(&mut self) {
        drop(self.shell.stdin.take());
        self.shell.wait().ok();
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.end();
    }
}
