//! Whether an output is the one that a page shows. `…` stands for anything on a line, or within a
//! JSON string.

use serde_json::Value;

/// Whether `text` is `shown`, line by line.
pub fn is_as_shown(text: &str, shown: &str) -> bool {
    let (text, shown): (Vec<&str>, Vec<&str>) = (text.trim_end().lines().collect(), shown.lines().collect());
    text.len() == shown.len() && text.iter().zip(shown).all(|(line, shown)| line_is_as_shown(line, shown))
}

/// Whether `text` is JSON with everything that `shown` has: an object may have more members.
pub fn has_members(text: &str, shown: &str) -> bool {
    let shown: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{error}: {shown}"));
    serde_json::from_str(text).is_ok_and(|value| has(&value, &shown))
}

fn has(value: &Value, shown: &Value) -> bool {
    match (value, shown) {
        (Value::Object(value), Value::Object(shown)) => {
            shown.iter().all(|(name, shown)| value.get(name).is_some_and(|value| has(value, shown)))
        }
        (Value::Array(value), Value::Array(shown)) => {
            value.len() == shown.len() && value.iter().zip(shown).all(|(value, shown)| has(value, shown))
        }
        (Value::String(value), Value::String(shown)) => line_is_as_shown(value, shown),
        (Value::Number(value), Value::Number(shown)) => value.as_f64() == shown.as_f64(),
        (value, shown) => value == shown,
    }
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

#[test]
fn an_ellipsis_stands_for_anything_on_a_line() {
    assert!(is_as_shown("{\"id\":\"task_1\",\"x\":1}", "{\"id\":\"task_…\",…}"));
    assert!(is_as_shown("a\nb c\n", "a\nb…"));
    assert!(is_as_shown("aXbXc", "a…b…c"));
    for (text, shown) in [("abc", "ab"), ("a\nb", "a…"), ("abc", "a…d"), ("xa", "a…"), ("ac", "a…b…c")] {
        assert!(!is_as_shown(text, shown), "{text:?} is not {shown:?}");
    }
}

#[test]
fn an_answer_has_the_members_that_are_shown() {
    let answer = r#"{"id": "task_1", "x": {"y": [1, {"a": null, "b": 2}]}, "z": 3.0}"#;
    for shown in ["{}", r#"{"id": "task_…"}"#, r#"{"x": {"y": [1, {"a": null}]}}"#, r#"{"z": 3}"#] {
        assert!(has_members(answer, shown), "{shown}");
    }
    for shown in ["[]", r#"{"id": "1…"}"#, r#"{"x": {"y": [1]}}"#, r#"{"w": null}"#, r#"{"z": "3"}"#] {
        assert!(!has_members(answer, shown), "{shown}");
    }
    assert!(!has_members("curl: (7)", "{}"));
}
