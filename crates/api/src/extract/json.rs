//! Reads JSON strictly, and explains its faults.
//!
//! Text that is not JSON, or that two parsers would read differently (a repeated key, a lone
//! surrogate, a number beyond every double), is 400 `invalid_json`. JSON of the wrong shape is 422
//! `invalid_request`, with a pointer to the fault. A good body takes one pass; only a bad one is
//! read again, to explain it.

use punctual_client::problem::FieldError;
use punctual_core::json::Json;
use punctual_submission::pointer_token;
use serde::Deserialize;
use serde_path_to_error::Segment;

use crate::problem::{Code, Problem};

/// Reads a whole body.
pub fn read<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<T, Problem> {
    read_text(text(body)?)
}

/// The text of a body.
pub fn text(body: &[u8]) -> Result<&str, Problem> {
    std::str::from_utf8(body)
        .map_err(|fault| not_json(&format!("the text is not UTF-8 from byte {} on", fault.valid_up_to())))
}

/// Reads one document.
pub fn read_text<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, Problem> {
    serde_json::from_str(text).map_err(|error| explain::<T>(text, &error))
}

fn not_json(why: &str) -> Problem {
    Problem::new(Code::InvalidJson, format!("the body is not acceptable JSON: {why}"))
}

/// Says why `text` is not a `T`.
fn explain<'de, T: Deserialize<'de>>(text: &'de str, error: &serde_json::Error) -> Problem {
    if let Err(fault) = Json::parse(text) {
        return not_json(&fault.to_string());
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(&mut reader) {
        Err(fault) => Problem::invalid(vec![fault_of(fault.path(), &said(fault.inner()))]),
        // Whatever came after the document, the strict reader has refused: what is left is a fault
        // of the whole.
        Ok(_) => Problem::invalid(vec![FieldError::new("", said(error))]),
    }
}

/// The parser's message without line and column, since the pointer says where, and with plain words
/// for types of numbers.
fn said(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = match text.rfind(" at line ") {
        Some(at) if error.line() > 0 => text[..at].to_owned(),
        _ => text,
    };
    let Some((before, expected)) = text.rsplit_once(", expected ") else { return text };
    let plain = match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number that is not negative",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "an object",
        _ => return text,
    };
    format!("{before}, expected {plain}")
}

/// The fault at `path`. For missing and unknown fields the pointer names the field.
fn fault_of(path: &serde_path_to_error::Path, said: &str) -> FieldError {
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Map { key } => push(&mut pointer, key),
            Segment::Seq { index } => push(&mut pointer, &index.to_string()),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    if let Some(name) = quoted(said, "missing field `") {
        push(&mut pointer, name);
        return FieldError::new(pointer, "is required");
    }
    if let Some(name) = quoted(said, "unknown field `") {
        let token = pointer_token(name);
        if pointer.rsplit('/').next() != Some(token.as_str()) {
            push(&mut pointer, name);
        }
        return FieldError::new(pointer, "is not a known field");
    }
    FieldError::new(pointer, said)
}

fn quoted<'a>(said: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = said.strip_prefix(prefix)?;
    // A field's name may hold a backtick itself; serde's text goes on with one of these, or ends.
    let end = rest.find("`, expected").or_else(|| rest.rfind('`'))?;
    Some(&rest[..end])
}

fn push(pointer: &mut String, token: &str) {
    pointer.push('/');
    pointer.push_str(&pointer_token(token));
}

#[cfg(test)]
mod tests {
    use punctual_client::{NewTask, SettleRequest};

    use super::*;

    fn fault<T: for<'de> Deserialize<'de>>(text: &str) -> (String, String) {
        let problem = read_text::<T>(text).err().expect("a fault");
        assert_eq!(problem.code(), Code::InvalidRequest, "{}", problem.detail());
        let [fault] = problem.errors() else { panic!("{problem:?}") };
        (fault.pointer.clone(), fault.message.clone())
    }

    #[test]
    fn text_that_is_not_json_is_invalid_json() {
        let deep = format!(r#"{{"type":"a","payload":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        for text in [
            "",
            "{",
            "nope",
            "{} {}",
            "\u{feff}{}",
            r#"{"type":"a","type":"b"}"#,
            r#"{"type":"a","payload":{"k":1,"k":2}}"#,
            r#"{"type":"a","metadata":{"k":"1","k":"2"}}"#,
            r#"{"type":"a","payload":1e400}"#,
            r#"{"type":"a","delay_seconds":1e400}"#,
            r#"{"type":"a","delay_seconds":NaN}"#,
            r#"{"type":"\ud800"}"#,
            r#"{"type":"a","payload":"\ud800"}"#,
            "{\"type\":\"a\u{0}\"}",
            &deep,
        ] {
            let problem = read_text::<NewTask>(text).expect_err("a fault");
            assert_eq!(problem.code(), Code::InvalidJson, "{}", &text[..text.len().min(60)]);
        }
        assert_eq!(read::<NewTask>(b"{\"type\":\"\xff\"}").err().unwrap().code(), Code::InvalidJson);
    }

    #[test]
    fn a_wrong_shape_is_pointed_at() {
        for (text, pointer, message) in [
            (r#"{"type":5}"#, "/type", "invalid type: integer `5`, expected a string"),
            ("{}", "/type", "is required"),
            (r#"{"type":"a","tenant":"b"}"#, "/tenant", "is not a known field"),
            (r#"{"type":"a","a/b~c":1}"#, "/a~1b~0c", "is not a known field"),
            (
                r#"{"type":"a","retry_policy":{"max_retries":"3"}}"#,
                "/retry_policy/max_retries",
                "invalid type: string \"3\", expected a whole number",
            ),
            (r#"{"type":"a","metadata":{"k":1}}"#, "/metadata/k", "invalid type: integer `1`, expected a string"),
            (r#"{"type":"a","retry_policy":{"retries":1}}"#, "/retry_policy/retries", "is not a known field"),
            (
                r#"{"type":"a","delay_seconds":"1"}"#,
                "/delay_seconds",
                "invalid type: string \"1\", expected a number of seconds",
            ),
        ] {
            assert_eq!(fault::<NewTask>(text), (pointer.to_owned(), message.to_owned()), "{text}");
        }
        let (pointer, _) = fault::<SettleRequest>(r#"{"items":[{"task_id":"x","token":1,"outcome":"completed"}]}"#);
        assert_eq!(pointer, "/items/0/task_id");
        assert_eq!(fault::<NewTask>("[]").0, "");
        assert_eq!(fault::<NewTask>("null").0, "");
    }

    #[test]
    fn a_fault_beside_a_payload_is_found() {
        let (pointer, _) = fault::<NewTask>(r#"{"payload":{"a":[1,2,{"b":null}]},"type":"a","priority":true}"#);
        assert_eq!(pointer, "/priority");
    }
}
