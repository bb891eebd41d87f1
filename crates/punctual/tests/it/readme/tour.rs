//! Reads the tour out of the README: its commands, their expected output, and the output of the
//! programs in the other terminals.
//!
//! A fenced block ```` ```console ```` is typed into the reader's own terminal. ```` ```console
//! terminal=NAME ```` starts a program that keeps running in another, and ```` ```text
//! terminal=NAME ```` is what that program prints next. A command begins with `$ ` and continues in
//! the indented lines below it; `…` stands for anything on a line.

/// One thing that the tour does or shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A program is started in a terminal of its own and prints this.
    Start { terminal: String, command: String, prints: String },
    /// A command is typed and prints this; if empty, its output does not matter.
    Type { command: String, prints: String },
    /// The program in a terminal prints this.
    Watch { terminal: String, prints: String },
}

/// The steps in the section of `markdown` under the heading `## {title}`.
pub fn steps(markdown: &str, title: &str) -> Vec<Step> {
    let (_, section) = markdown.split_once(&format!("\n## {title}\n")).expect("the README has this section");
    let mut lines = section.lines().take_while(|line| !line.starts_with("## "));
    let mut steps = Vec::new();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        let terminal = info.split_once(" terminal=").map(|(_, name)| name.to_owned());
        match (info.split(' ').next(), terminal) {
            (Some("console"), None) => {
                steps.extend(commands(&block).into_iter().map(|(command, prints)| Step::Type { command, prints }));
            }
            (Some("console"), Some(terminal)) => {
                for (command, prints) in commands(&block) {
                    steps.push(Step::Start { terminal: terminal.clone(), command, prints });
                }
            }
            (Some("text"), Some(terminal)) => steps.push(Step::Watch { terminal, prints: block.join("\n") }),
            _ => {}
        }
    }
    steps
}

/// Whether `text` is what the tour shows as `shown`.
pub fn is_as_shown(text: &str, shown: &str) -> bool {
    let (text, shown): (Vec<&str>, Vec<&str>) = (text.trim_end().lines().collect(), shown.lines().collect());
    text.len() == shown.len() && text.iter().zip(shown).all(|(line, shown)| line_is_as_shown(line, shown))
}

fn line_is_as_shown(line: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
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
fn the_steps_of_a_tour_are_in_order() {
    let markdown = "# X\n```console\n$ not this\n```\n\n## Tour\nSo:\n```console terminal=a\n$ serve\nready\n```\n\
        ```console\n$ one \\\n    more\nout 1\nout 2\n$ two\n```\n```text terminal=a\nhit\n```\n```json\n{}\n```\n## Next\n```console\n$ nor this\n```\n";
    let own = str::to_owned;
    let expected = [
        Step::Start { terminal: own("a"), command: own("serve"), prints: own("ready") },
        Step::Type { command: own("one \\\n    more"), prints: own("out 1\nout 2") },
        Step::Type { command: own("two"), prints: String::new() },
        Step::Watch { terminal: own("a"), prints: own("hit") },
    ];
    assert_eq!(steps(markdown, "Tour"), expected);
}

#[test]
fn an_ellipsis_stands_for_anything_on_a_line() {
    assert!(is_as_shown("{\"id\":\"task_1\",\"x\":1}", "{\"id\":\"task_…\",…}"));
    assert!(is_as_shown("a\nb c\n", "a\nb…"));
    assert!(is_as_shown("aXbXc", "a…b…c"));
    for (text, shown) in [("abc", "ab"), ("a\nb", "a…"), ("abc", "a…d"), ("xa", "a…"), ("ac", "a…b…c")] {
        assert!(!is_as_shown(text, shown), "{text:?} is not {shown:?}");
    }
}
