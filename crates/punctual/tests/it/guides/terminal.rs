//! A terminal to type a tour into: one bash that lives as long as the tour, so that variables stay
//! set.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::it::world::PUNCTUAL;

/// Printed after each command, with its exit code; no command of a tour prints it.
const END: &str = "--end-of-command--";

/// A shell that takes one command after the other.
pub struct Terminal {
    shell: Child,
    typed: ChildStdin,
    lines: Receiver<String>,
}

impl Terminal {
    /// Opens a terminal in a directory.
    pub fn open(directory: &Path) -> Self {
        // The program under test is called by its name, without the settings of the test run.
        let programs = Path::new(PUNCTUAL).parent().expect("a program is in a directory");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command.env("PATH", format!("{}:{path}", programs.display()));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PUNCTUAL_")) {
            command.env_remove(name);
        }
        command.args(["--noprofile", "--norc", "-s"]).current_dir(directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut shell = command.spawn().expect("bash runs");
        let mut typed = shell.stdin.take().expect("invariant: stdin is piped");
        let printed = BufReader::new(shell.stdout.take().expect("invariant: stdout is piped"));
        writeln!(typed, "exec 2>&1").expect("bash reads");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in printed.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { shell, typed, lines }
    }

    /// Types a command; returns its exit code and its output.
    pub fn run(&mut self, command: &str, within: Duration) -> (i32, String) {
        // A command that reads its input must not consume the commands after it.
        writeln!(self.typed, "{{ {command}\n}} </dev/null; echo {END}$?").expect("bash reads");
        let mut printed = String::new();
        loop {
            let Ok(line) = self.lines.recv_timeout(within) else { panic!("{command}\nhangs; so far: {printed}") };
            // The output of a command need not end with a newline.
            if let Some((before, code)) = line.split_once(END) {
                printed.push_str(before);
                return (code.parse().expect("an exit code"), printed);
            }
            printed.push_str(&line);
            printed.push('\n');
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.shell.kill().is_ok() {
            self.shell.wait().ok();
        }
    }
}

#[test]
fn a_terminal_keeps_its_variables() {
    let mut terminal = Terminal::open(Path::new("/"));
    let within = Duration::from_secs(20);
    assert_eq!(terminal.run("a=1 b='2 3'", within), (0, String::new()));
    assert_eq!(terminal.run("printf '%s\\n%s' $a \"$b\"", within), (0, "1\n2 3".to_owned()));
    assert_eq!(terminal.run("cat; echo oops >&2; false", within), (1, "oops\n".to_owned()));
}
