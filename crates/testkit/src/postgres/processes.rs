//! The processes of a server: all those whose working directory is its data directory.
//!
//! This finds the children even after the postmaster has died, and leaves out zombie processes.

use std::path::Path;
use std::process::Command;

/// The processes that are alive, including the postmaster.
pub(super) fn of(data: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc").flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()));
    numbers.filter(|pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|path| path == data)).collect()
}

/// Whether it is stopped by a signal, or gone.
pub(super) fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name, the second field, is in brackets and may contain anything; the state follows.
    stat.rsplit_once(')').is_none_or(|(_, fields)| matches!(fields.trim_start().chars().next(), Some('T' | 'Z' | 'X')))
}

/// Sends a signal, by its name, to all of them that are still alive.
pub(super) fn signal(name: &str, pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    // The shell's own kill needs no unsafe code. A process may have ended meanwhile.
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let script = format!("kill -{name} {} 2>/dev/null; true", pids.join(" "));
    let sent = Command::new("sh").args(["-c", &script]).status().expect("sh runs");
    assert!(sent.success(), "{script} failed: {sent}");
}
