//! A reader who follows a page, with a few terminals.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Process;
use punctual_testkit::shared::Port;

use super::shown::{has_members, is_as_shown};
use super::steps::{Output, Step};
use super::terminal::Terminal;
use crate::it::world::{PUNCTUAL, SOON};

/// How a page begins a command that starts our own program.
const PROGRAMS: [&str; 3] = ["cargo run --release -- ", "target/release/punctual ", "punctual "];

/// A reader of one page.
pub struct Reader<'a> {
    home: &'a Path,
    own: Terminal,
    others: BTreeMap<String, Other>,
    /// The ports of the page and what stands in for them here.
    ports: Vec<(String, Port)>,
}

/// A terminal in which a program keeps running.
struct Other {
    process: Process,
    lines_seen: usize,
}

impl<'a> Reader<'a> {
    /// Opens a terminal in `home`, and reserves a port for each that `page` mentions.
    pub fn new(home: &'a Path, page: &str) -> Self {
        let mut ports: Vec<(String, Port)> = Vec::new();
        for (place, host) in ["127.0.0.1:", "localhost:"].iter().flat_map(|host| page.match_indices(host)) {
            let number: String = page[place + host.len()..].chars().take_while(char::is_ascii_digit).collect();
            if !number.is_empty() && ports.iter().all(|(known, _)| *known != number) {
                ports.push((number, Port::reserve()));
            }
        }
        Self { home, own: Terminal::open(home), others: BTreeMap::new(), ports }
    }

    /// Does what the page says next.
    pub async fn take(&mut self, step: Step) {
        match step {
            Step::Start { terminal, command, prints } => {
                self.start(&terminal, &self.here(&command), &self.here(&prints)).await;
            }
            Step::Type { command, prints } => self.type_in(&self.here(&command), prints).await,
            Step::Watch { terminal, prints } => self.watch(&terminal, &self.here(&prints)).await,
            Step::Write { file, content } => {
                std::fs::write(self.home.join(file), self.here(&content)).expect("a file can be written");
            }
        }
    }

    async fn start(&mut self, terminal: &str, command: &str, prints: &str) {
        let mut program = program(command, prints);
        program.current_dir(self.home).env("PYTHONUNBUFFERED", "1");
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PUNCTUAL_")) {
            program.env_remove(name);
        }
        let mut process = Process::spawn(program);
        if !prints.is_empty() {
            process.line(prints, SOON).await;
        }
        self.others.insert(terminal.to_owned(), Other { process, lines_seen: prints.lines().count() });
    }

    async fn type_in(&mut self, command: &str, prints: Output) {
        let shown = match &prints {
            Output::Any => String::new(),
            Output::Lines(text) | Output::Json(text) => self.here(text),
        };
        let only_looks = command.starts_with("curl") && ![" -d ", " -X "].iter().any(|verb| command.contains(verb));
        eventually(command, SOON, async || {
            let (code, printed) = self.own.run(command, SOON * 2);
            let is_shown = match prints {
                Output::Any => true,
                Output::Lines(_) => is_as_shown(&printed, &shown),
                Output::Json(_) => has_members(&printed, &shown),
            };
            if code == 0 && is_shown {
                return Ok(());
            }
            let difference = format!("exit code {code}, printed:\n{printed}\ninstead of:\n{shown}");
            assert!(only_looks, "$ {command}\n{difference}");
            Err(difference)
        })
        .await;
    }

    async fn watch(&mut self, terminal: &str, prints: &str) {
        let other = self.others.get_mut(terminal).expect("the page starts a program before it shows its output");
        let wanted = prints.lines().count();
        let seen = eventually(&format!("{terminal} prints {prints:?}"), SOON, async || {
            let (stdout, stderr) = (other.process.stdout(), other.process.stderr());
            let new: Vec<&str> = stdout.lines().skip(other.lines_seen).take(wanted).collect();
            if new.len() == wanted { Ok(new.join("\n")) } else { Err(stdout + &stderr) }
        })
        .await;
        assert!(is_as_shown(&seen, prints), "{terminal} printed\n{seen}\ninstead of\n{prints}");
        other.lines_seen += wanted;
    }

    /// The text with our ports in place of the page's.
    fn here(&self, text: &str) -> String {
        let (mut here, mut rest) = (String::new(), text);
        while let Some(begin) = rest.find(|c: char| c.is_ascii_digit()) {
            let (before, digits) = rest.split_at(begin);
            let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
            let (number, after) = digits.split_at(end);
            let port = self.ports.iter().find(|(shown, _)| shown == number);
            here.push_str(before);
            here.push_str(&port.map_or_else(|| number.to_owned(), |(_, real)| real.number().to_string()));
            rest = after;
        }
        here + rest
    }
}

/// Our own program, which gets the address that it prints as one to listen at; or any other.
fn program(command: &str, prints: &str) -> Command {
    let words: Vec<&str> = command.split_whitespace().collect();
    let Some(arguments) = PROGRAMS.iter().find_map(|program| command.strip_prefix(program)) else {
        let mut program = Command::new(words[0]);
        program.args(&words[1..]);
        return program;
    };
    let url = prints.strip_prefix("listening on ").expect("the page shows where it listens");
    let (_, listen) = url.split_once("://").expect("it listens at a URL");
    let mut program = Command::new(PUNCTUAL);
    program.args(arguments.split_whitespace()).args(["--listen", listen]);
    program
}
