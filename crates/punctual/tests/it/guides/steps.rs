//! Reads out of a page what its reader does: the commands and their output, the files to write, and
//! the output of the programs in other terminals.
//!
//! | block | what the reader does |
//! |---|---|
//! | `console` | types it into the own terminal |
//! | `console terminal=NAME` | starts a program that keeps running in another terminal |
//! | `text terminal=NAME` | sees that program print this next |
//! | `json` after a `console` | sees that the last command answered with these members, among others |
//! | `LANGUAGE file=NAME` | writes it into that file |
//!
//! A command begins with `$ ` and continues in the indented lines below it; `…` stands for anything
//! on a line. What a reader need not see, such as the start of a server that the page presumes, is
//! in a comment: `<!-- console`, the lines, `-->`. A block with `by=NAME` is not followed here.

/// One thing that a page does or shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A program is started in a terminal of its own and prints this.
    Start { terminal: String, command: String, prints: String },
    /// A command is typed and prints this; if empty, its output does not matter.
    Type { command: String, prints: Output },
    /// The program in a terminal prints this.
    Watch { terminal: String, prints: String },
    /// A file has this content.
    Write { file: String, content: String },
}

/// What a command prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// It does not matter.
    Any,
    /// These lines.
    Lines(String),
    /// An object or array with these members.
    Json(String),
}

/// A block of a page.
#[derive(Clone, Debug)]
pub struct Block<'a> {
    /// Its first word: `console`, `json` or a language.
    pub language: &'a str,
    /// Its lines.
    pub lines: Vec<&'a str>,
    /// The number of its first line in the page, from 1.
    pub line: usize,
    /// Whether following the page runs it, or it says who does.
    pub is_followed: bool,
    is_run_elsewhere: bool,
    terminal: Option<&'a str>,
    file: Option<&'a str>,
}

/// The blocks of a page, also those in comments.
pub fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut lines = (1..).zip(page.lines());
    let mut blocks: Vec<Block> = Vec::new();
    while let Some((line, text)) = lines.next() {
        let (info, end) = match (text.strip_prefix("```"), text.strip_prefix("<!-- console")) {
            (Some(info), _) => (info, "```"),
            (None, Some(_)) => (text.trim_start_matches("<!-- "), "-->"),
            (None, None) => continue,
        };
        let content = lines.by_ref().map(|(_, text)| text).take_while(|text| *text != end).collect();
        let word = |name: &str| info.split(' ').find_map(|word| word.strip_prefix(name));
        let (language, terminal, file) = (info.split(' ').next().unwrap_or(""), word("terminal="), word("file="));
        let after_console = blocks.last().is_some_and(|block| block.language == "console" && block.terminal.is_none());
        let is_step = match language {
            "console" => true,
            "text" => terminal.is_some(),
            "json" => file.is_some() || after_console,
            _ => file.is_some(),
        };
        let is_run_elsewhere = word("by=").is_some();
        let is_followed = is_step || is_run_elsewhere;
        blocks.push(Block { language, lines: content, line, is_followed, is_run_elsewhere, terminal, file });
    }
    blocks
}

/// The steps of a page.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let followed = blocks(page).into_iter().filter(|block| !block.is_run_elsewhere);
    for Block { language, lines, terminal, file, .. } in followed {
        let own = str::to_owned;
        match (language, terminal.map(own), file.map(own)) {
            (_, _, Some(file)) => steps.push(Step::Write { file, content: lines.join("\n") + "\n" }),
            ("console", None, None) => {
                let typed = commands(&lines).into_iter();
                steps.extend(typed.map(|(command, prints)| Step::Type { command, prints: output(prints) }));
            }
            ("console", Some(terminal), None) => {
                for (command, prints) in commands(&lines) {
                    steps.push(Step::Start { terminal: terminal.clone(), command, prints });
                }
            }
            ("text", Some(terminal), None) => steps.push(Step::Watch { terminal, prints: lines.join("\n") }),
            ("json", _, None) => {
                if let Some(Step::Type { prints: prints @ Output::Any, .. }) = steps.last_mut() {
                    *prints = Output::Json(lines.join("\n"));
                }
            }
            _ => {}
        }
    }
    steps
}

fn output(prints: String) -> Output {
    if prints.is_empty() { Output::Any } else { Output::Lines(prints) }
}

fn commands(block: &[&str]) -> Vec<(String, String)> {
    let mut commands: Vec<(String, Vec<&str>)> = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
            (None, Some((command, prints))) if prints.is_empty() && line.starts_with("    ") => {
                command.push('\n');
                command.push_str(line);
            }
            (None, Some((_, prints))) => prints.push(line),
            (None, None) => panic!("a console block begins with a command: {block:?}"),
        }
    }
    commands.into_iter().map(|(command, prints)| (command, prints.join("\n"))).collect()
}

#[test]
fn the_steps_of_a_page_are_in_order() {
    let page = "# X\nSo:\n<!-- console terminal=a\n$ serve\nready\n-->\n\
        ```console\n$ one \\\n    more\nout 1\nout 2\n$ two\n```\n```json\n{}\n```\n\
        ```text terminal=a\nhit\n```\n```python file=x.py\nx = 1\n```\n```sql\nSELECT 1\n```\n";
    let own = str::to_owned;
    let expected = [
        Step::Start { terminal: own("a"), command: own("serve"), prints: own("ready") },
        Step::Type { command: own("one \\\n    more"), prints: Output::Lines(own("out 1\nout 2")) },
        Step::Type { command: own("two"), prints: Output::Json(own("{}")) },
        Step::Watch { terminal: own("a"), prints: own("hit") },
        Step::Write { file: own("x.py"), content: own("x = 1\n") },
    ];
    assert_eq!(steps(page), expected);
    let followed: Vec<bool> = blocks(page).iter().map(|block| block.is_followed).collect();
    assert_eq!(followed, [true, true, true, true, true, false]);
}
