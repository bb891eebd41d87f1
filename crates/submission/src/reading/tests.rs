//! Documents of wrong shapes, and that the shapes and the types agree.

use punctual_client::{
    Backfill, BulkRedrive, BulkRequest, Complete, Fail, FieldError, Heartbeat, LeaseRequest, NewBatch, NewSchedule,
    NewTask, PauseRequest, PauseSchedule, QueueSettings, Redrive, Release, RequestBody, ResetBreaker, SchedulePatch,
    SettleRequest, TaskPatch,
};

use super::shape::Kind;
use super::*;

/// Words of the parser and of Rust, which a caller cannot know.
const FOREIGN: &[&str] = &[
    "invalid type",
    "invalid value",
    "invalid length",
    "expected",
    "variant",
    "a map",
    "sequence",
    "integer",
    "floating",
    "boolean",
    "null value",
    "struct",
    "missing field",
    "i64",
    "u64",
    "u8",
    "f64",
    "not what this request takes",
];

fn faults<T: RequestBody>(text: &str) -> Vec<FieldError> {
    let sent = read::<T>(text).expect("JSON");
    sent.check(|_, _| Some(())).map_or_else(|error| error.faults, |()| Vec::new())
}

/// Place, message and value of every fault.
fn listed<T: RequestBody>(text: &str) -> Vec<(String, String, Option<String>)> {
    let listed = faults::<T>(text).into_iter();
    listed.map(|fault| (fault.pointer, fault.message, fault.value.map(|value| value.get().to_owned()))).collect()
}

#[test]
fn all_faults_of_a_document_come_at_once() {
    let text = r#"{"queue": 5, "prioirty": 3, "retry_policy": {"max_retries": "x", "jitter": "ful", "retries": 1},
        "metadata": {"a": 1, "b": "2"}, "depends_on": [null, -1, 3], "priority": "hihg", "callback_headers": {"h": 7}}"#;
    let rows = [
        ("/callback_headers/h", "must be a string", None),
        ("/depends_on/0", "must be a string, or a whole number that is at least 0", Some("null")),
        ("/depends_on/1", "must be a string, or a whole number that is at least 0", Some("-1")),
        ("/metadata/a", "must be a string", Some("1")),
        (
            "/priority",
            "must be a whole number from 0 to 9, or one of low, normal, high; did you mean `high`?",
            Some("\"hihg\""),
        ),
        ("/queue", "must be a string", Some("5")),
        ("/retry_policy/jitter", "must be one of none, full; did you mean `full`?", Some("\"ful\"")),
        ("/retry_policy/max_retries", "must be a whole number from 0 to 1000", Some("\"x\"")),
        ("/retry_policy/retries", "is not a known field; did you mean `max_retries`?", Some("1")),
        ("/type", "is required", None),
        ("/prioirty", "is not a known field; did you mean `priority`?", Some("3")),
    ];
    let rows = rows.map(|(at, message, value)| (at.to_owned(), message.to_owned(), value.map(str::to_owned)));
    assert_eq!(listed::<NewTask>(text), rows);
}

#[test]
fn what_is_left_of_a_document_can_be_checked() {
    let text = r#"{"type": 5, "queue": "no blanks", "payload": {"n": [1.50, 1e2]}, "delay_seconds": "x"}"#;
    let error = read::<NewTask>(text).unwrap().check(|new, faults| {
        assert_eq!((new.kind.as_str(), new.payload.unwrap().get()), ("", r#"{"n": [1.50, 1e2]}"#));
        faults.name("/type", &new.kind);
        faults.name("/queue", new.queue.as_deref().unwrap_or_default());
        Some(())
    });
    let pointers: Vec<String> = error.unwrap_err().faults.into_iter().map(|fault| fault.pointer).collect();
    assert_eq!(pointers, ["/delay_seconds", "/type", "/queue"]);
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let text =
        r#"{"type": "t", "priority": 5.0, "retry_policy": {"max_retries": 3.0}, "depends_on": [1.0], "payload": 5.0}"#;
    let new = read::<NewTask>(text).unwrap().check(|new, _| Some(new)).unwrap();
    assert_eq!(new.priority.unwrap().level(), Some(5));
    assert_eq!(new.retry_policy.unwrap().max_retries, Some(3));
    assert_eq!(new.payload.unwrap().get(), "5.0", "a payload is not touched");
    for token in ["3.0", "3e0", "18446744073709551615"] {
        assert_eq!(listed::<Complete>(&format!(r#"{{"token": {token}}}"#)), []);
    }
    for token in ["3.5", "-1", "18446744073709551616", "1e300", "\"3\"", "null", "true"] {
        let rule = "must be a whole number that is at least 0".to_owned();
        assert_eq!(listed::<Complete>(&format!(r#"{{"token": {token}}}"#)), [("/token".to_owned(), rule, None)]);
    }
}

#[test]
fn what_is_not_an_object_is_said_once() {
    for text in ["[]", "5", "null", "\"x\""] {
        assert_eq!(listed::<NewTask>(text), [(String::new(), "must be an object".to_owned(), None)], "{text}");
    }
}

#[test]
fn what_can_only_be_read_is_ignored() {
    let text = r#"{"name": "q", "version": 3.5, "counts": [], "pause": 1, "max_depth": 1.0}"#;
    assert_eq!(listed::<QueueSettings>(text), []);
    let text = r#"{"version": 3, "verison": 4, "max_depth": true}"#;
    let pointers: Vec<String> = faults::<QueueSettings>(text).into_iter().map(|fault| fault.pointer).collect();
    assert_eq!(pointers, ["/max_depth", "/verison"]);
}

#[test]
fn a_wide_document_has_a_short_list_of_faults() {
    let wide = (0..50_000).map(|n| format!("\"{n}\":1,")).collect::<Vec<_>>().concat();
    let error = read::<NewTask>(&format!("{{{wide}\"type\":\"t\"}}")).unwrap().check(|_, _| Some(())).unwrap_err();
    assert_eq!((error.faults.len(), error.more), (20, 49_980));
    let many = format!(r#"{{"type":"t","depends_on":[{}]}}"#, vec!["0"; 10_001].join(","));
    assert_eq!(faults::<NewTask>(&many)[0].message, "must have at most 10000 entries");
    let labels = wide.trim_end_matches(',');
    let error = read::<NewTask>(&format!(r#"{{"metadata":{{{labels}}}}}"#)).unwrap().check(|_, _| Some(()));
    assert_eq!(error.unwrap_err().faults.len(), 2);
}

#[test]
fn an_empty_document_is_called_so() {
    for text in ["", " \n"] {
        assert_eq!(read::<NewTask>(text).unwrap_err().to_string(), "the body is empty; send a JSON object");
    }
}

/// Values of every kind, most of which are wrong in most places.
const VALUES: &[&str] = &[
    "null",
    "true",
    "-1",
    "5",
    "5.0",
    "5.5",
    "1e300",
    "99999999999999999999",
    r#""""#,
    r#""x""#,
    r#""5""#,
    "[]",
    "[5]",
    "[null]",
    r#"["x"]"#,
    "[[]]",
    "{}",
    r#"{"a":1}"#,
    r#"{"a":"x"}"#,
];

/// Documents of a shape with one odd value each, and where it is.
fn odd_documents(shape: &Shape) -> Vec<(String, String)> {
    let mut documents: Vec<_> = VALUES.iter().map(|value| (String::new(), (*value).to_owned())).collect();
    match &shape.kind {
        Kind::Object(object) => {
            for member in &object.members {
                let others = object.members.iter().filter(|other| other.is_required && other.name != member.name);
                let others = others.map(|other| format!(",\"{}\":{}", other.name, other.shape.placeholder()));
                let others = others.collect::<Vec<_>>().concat();
                for (pointer, odd) in odd_documents(&member.shape) {
                    let name = &member.name;
                    documents.push((format!("/{name}{pointer}"), format!("{{\"{name}\":{odd}{others}}}")));
                }
            }
        }
        Kind::List { item, .. } => {
            for (pointer, odd) in odd_documents(item) {
                documents.push((format!("/1{pointer}"), format!("[{},{odd}]", item.placeholder())));
            }
        }
        _ => {}
    }
    documents
}

/// Reads every odd document: its type and its shape agree, and every fault is in plain words.
fn agrees<T: RequestBody>() -> usize {
    let shape = Shape::of::<T>();
    let placeholder = shape.placeholder();
    assert!(serde_json::from_str::<T>(&placeholder).is_ok(), "{}: {placeholder}", T::name());
    let documents = odd_documents(&shape);
    for (pointer, text) in &documents {
        let is_taken = serde_json::from_str::<T>(text).is_ok();
        let found = faults::<T>(text);
        let has_odd_number = text.contains("5.0");
        assert!(!is_taken || found.is_empty(), "{}: {text}: {found:?}", T::name());
        assert!(is_taken || has_odd_number || !found.is_empty(), "{}: {text} has no fault", T::name());
        for fault in found {
            let is_there = fault.pointer.starts_with(pointer) || pointer.starts_with(&fault.pointer);
            assert!(is_there, "{}: {text}: {fault:?} is not at {pointer}", T::name());
            let foreign = FOREIGN.iter().find(|word| fault.message.contains(**word));
            assert_eq!(foreign, None, "{}: {text}: {fault:?}", T::name());
        }
    }
    documents.len()
}

#[test]
fn every_type_of_a_request_agrees_with_its_schema() {
    let documents = [
        agrees::<NewTask>(),
        agrees::<TaskPatch>(),
        agrees::<Redrive>(),
        agrees::<NewBatch>(),
        agrees::<NewSchedule>(),
        agrees::<SchedulePatch>(),
        agrees::<PauseSchedule>(),
        agrees::<Backfill>(),
        agrees::<QueueSettings>(),
        agrees::<PauseRequest>(),
        agrees::<BulkRequest>(),
        agrees::<BulkRedrive>(),
        agrees::<LeaseRequest>(),
        agrees::<SettleRequest>(),
        agrees::<Complete>(),
        agrees::<Fail>(),
        agrees::<Heartbeat>(),
        agrees::<Release>(),
        agrees::<ResetBreaker>(),
    ];
    assert!(documents.iter().sum::<usize>() > 2_000, "{documents:?}");
}
