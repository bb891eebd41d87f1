//! Why a text is not acceptable JSON, in plain words.

use std::fmt;

/// A text that is not JSON, or that two parsers would read differently. The sentence is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotJson(String);

/// What the parser says, and what we say. The parser's sentences are compared from their start.
const PLAIN: &[(&str, &str)] = &[
    ("EOF while parsing a string", "it ends inside a string"),
    ("EOF while parsing a list", "it ends inside a list"),
    ("EOF while parsing an object", "it ends inside an object"),
    ("EOF while parsing", "it ends too early"),
    ("expected `:`", "there is no colon after a name"),
    ("expected `,` or `]`", "there is no comma or ] after an item of a list"),
    ("expected `,` or `}`", "there is no comma or } after a member of an object"),
    ("trailing comma", "there is a comma before the end of a list or an object"),
    ("trailing characters", "there is more text after the document"),
    ("key must be a string", "a name in an object is not in double quotes"),
    ("invalid escape", "a string has an unknown escape"),
    ("invalid number", "a number is malformed"),
    ("number out of range", "a number is beyond the range of a double"),
    ("control character", "a string has a control character that is not escaped"),
    ("lone leading surrogate", "a string has half of a surrogate pair"),
    ("unexpected end of hex escape", "a string has half of a surrogate pair"),
    ("invalid unicode code point", "a string has an escape for no character"),
    ("recursion limit exceeded", "it is nested more than 127 levels deep"),
    ("duplicate key", "a name is twice in one object"),
];

impl NotJson {
    /// The text is empty.
    pub(super) fn empty() -> Self {
        Self("the body is empty; send a JSON object".to_owned())
    }

    /// The bytes are no text from `valid` on.
    pub fn not_utf8(valid: usize) -> Self {
        Self(format!("the body is not acceptable JSON: the text is not UTF-8 from byte {valid} on"))
    }

    /// The parser refused the text.
    pub(super) fn of(fault: &serde_json::Error) -> Self {
        let theirs = fault.to_string();
        let plain = PLAIN.iter().find(|(begin, _)| theirs.starts_with(begin)).map(|(_, plain)| *plain);
        let plain = plain.unwrap_or("this is not the beginning of a value");
        Self(format!("the body is not acceptable JSON: {plain} (line {}, column {})", fault.line(), fault.column()))
    }
}

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::json::Json;

    use super::*;

    #[test]
    fn what_is_no_json_is_said_in_plain_words() {
        let deep = "[".repeat(200);
        for (text, plain) in [
            ("{", "inside an object"),
            ("[1", "inside a list"),
            ("\"a", "inside a string"),
            ("tru", "too early"),
            ("nope", "not the beginning of a value"),
            ("{a:1}", "not in double quotes"),
            ("{\"a\" 1}", "no colon"),
            ("[1 2]", "no comma or ]"),
            ("{\"a\":1 \"b\":2}", "no comma or }"),
            ("[1,]", "a comma before the end"),
            ("{} {}", "more text"),
            ("[01]", "malformed"),
            ("1e400", "range of a double"),
            ("\"\\x\"", "unknown escape"),
            ("\"\u{1}\"", "control character"),
            ("\"\\ud800\"", "surrogate"),
            ("\"\\udc00\"", "surrogate"),
            (&deep, "127 levels"),
            ("{\"a\":1,\"a\":2}", "twice in one object"),
        ] {
            let said = NotJson::of(&Json::parse(text).unwrap_err()).to_string();
            assert!(said.contains(plain) && said.contains("(line 1, column "), "{text}: {said}");
        }
    }
}
