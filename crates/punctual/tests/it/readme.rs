//! The README's tour, followed word for word.
//!
//! Each command is typed as it stands there, and must print what the README shows. Only two things
//! differ: the program is the one under test, and another port stands in for one that is taken on
//! this machine. A command that only reads is repeated for a while, as by a reader who typed too
//! fast.

mod terminal;
mod tour;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Process;

use self::terminal::Terminal;
use self::tour::{Step, is_as_shown};
use super::world::{PUNCTUAL, SOON};

const README: &str = include_str!("../../../../README.md");

#[tokio::test]
async fn the_tour_does_what_it_says() {
    let home = tempfile::tempdir().unwrap();
    let mut reader = Reader::new(home.path());
    let steps = tour::steps(README, "A five-minute tour");
    assert!(steps.len() > 10, "the tour was not found: {steps:?}");
    for step in steps {
        match step {
            Step::Start { terminal, command, prints } => reader.start(&terminal, &command, &prints).await,
            Step::Type { command, prints } => reader.type_in(&command, &prints).await,
            Step::Watch { terminal, prints } => reader.watch(&terminal, &prints).await,
        }
    }
}

/// A reader with a few terminals.
struct Reader<'a> {
    home: &'a Path,
    own: Terminal,
    others: BTreeMap<String, Other>,
    /// Addresses of the README and what stands in for them here.
    addresses: Vec<(String, String)>,
}

/// A terminal in which a program keeps running.
struct Other {
    process: Process,
    lines_seen: usize,
}

impl<'a> Reader<'a> {
    fn new(home: &'a Path) -> Self {
        Self { home, own: Terminal::open(home), others: BTreeMap::new(), addresses: Vec::new() }
    }

    async fn start(&mut self, terminal: &str, command: &str, prints: &str) {
        let arguments = ["cargo run --release --", "target/release/punctual"]
            .into_iter()
            .find_map(|program| command.strip_prefix(program))
            .unwrap_or_else(|| panic!("{command:?} does not start the program"));
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let shown = prints.strip_prefix("listening on http://").expect("the README shows where it listens");
        let listen = if std::net::TcpListener::bind(shown).is_ok() { shown } else { "127.0.0.1:0" };
        let mut program = Command::new(PUNCTUAL);
        program.args(arguments).args(["--listen", listen]).current_dir(self.home);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PUNCTUAL_")) {
            program.env_remove(name);
        }
        let mut process = Process::spawn(program);
        let ready = process.line("listening on http://", SOON).await;
        self.addresses.push((shown.to_owned(), ready.trim_start_matches("listening on http://").to_owned()));
        self.others.insert(terminal.to_owned(), Other { process, lines_seen: 1 });
    }

    async fn type_in(&mut self, command: &str, prints: &str) {
        let (command, prints) = (self.here(command), self.here(prints));
        let only_looks = command.starts_with("curl") && ![" -d ", " -X "].iter().any(|verb| command.contains(verb));
        eventually(&command.clone(), SOON, async || {
            let (code, printed) = self.own.run(&command, SOON * 2);
            if code == 0 && (prints.is_empty() || is_as_shown(&printed, &prints)) {
                return Ok(());
            }
            let difference = format!("exit code {code}, printed:\n{printed}\ninstead of:\n{prints}");
            assert!(only_looks, "$ {command}\n{difference}");
            Err(difference)
        })
        .await;
    }

    async fn watch(&mut self, terminal: &str, prints: &str) {
        let prints = self.here(prints);
        let other = self.others.get_mut(terminal).expect("the README starts a program before it shows its output");
        let wanted = prints.lines().count();
        let seen = eventually(&format!("{terminal} prints {prints:?}"), SOON, async || {
            let stdout = other.process.stdout();
            let new: Vec<&str> = stdout.lines().skip(other.lines_seen).take(wanted).collect();
            if new.len() == wanted { Ok(new.join("\n")) } else { Err(stdout) }
        })
        .await;
        assert!(is_as_shown(&seen, &prints), "{terminal} printed\n{seen}\ninstead of\n{prints}");
        other.lines_seen += wanted;
    }

    fn here(&self, text: &str) -> String {
        self.addresses.iter().fold(text.to_owned(), |text, (shown, real)| text.replace(shown, real))
    }
}
