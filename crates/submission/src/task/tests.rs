use proptest::prelude::*;
use punctual_core::lane::Route;
use punctual_core::networks::AllowedNetworks;
use punctual_core::retry::{Backoff, Jitter, RetryPolicy};
use punctual_core::task::CallbackBody;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::*;
use crate::{ErrorCode, Sent, SubmissionError};

const NOW: &str = "2026-05-22T18:00:00.000Z";

fn now() -> Timestamp {
    Timestamp::parse(NOW).unwrap()
}

fn submit_text(text: &str, header_key: Option<&str>, rules: &SubmissionRules) -> Result<NewTask, SubmissionError> {
    let not_a_task = |fault: serde_json::Error| {
        let faults = vec![wire::FieldError::new("", fault.to_string())];
        SubmissionError { code: ErrorCode::Invalid, detail: String::new(), faults, more: 0 }
    };
    let new = serde_json::from_str(text).map_err(not_a_task)?;
    let validator = TaskValidator::new(rules, "acme", now(), NodeId::new(7));
    let header_key = header_key.map(str::to_owned);
    Sent::good(new).check(|new, faults| validator.check(faults, new, header_key, &BatchContext::none()))
}

fn submit(body: &Value) -> Result<NewTask, SubmissionError> {
    submit_text(&body.to_string(), None, &SubmissionRules::default())
}

/// The faults of a task of type `t` with these other fields.
fn faults(more: Value) -> Vec<String> {
    let Value::Object(mut body) = more else { panic!("an object of fields") };
    body.insert("type".to_owned(), json!("t"));
    match submit(&Value::Object(body)) {
        Ok(_) => Vec::new(),
        Err(error) => error.faults.iter().map(|fault| fault.pointer.clone()).collect(),
    }
}

fn key_of(task: &NewTask) -> (&str, [u8; 32]) {
    let idempotency = task.idempotency.as_ref().unwrap();
    (&idempotency.key, idempotency.fingerprint)
}

#[test]
fn a_type_is_enough() {
    let task = submit(&json!({"type": "mail.send"})).unwrap();
    let LaneKey { tenant, queue, kind, priority, route } = task.lane;
    assert_eq!(
        (tenant.as_str(), queue.as_str(), kind.as_str(), priority, route),
        ("acme", "default", "mail.send", 5, Route::Pull)
    );
    assert_eq!((task.created_at, task.execute_at, task.expires_at), (now(), now(), None));
    assert_eq!(task.body.payload.get(), "null");
    assert_eq!(task.body.retry_policy, RetryPolicy::default());
    assert_eq!(task.body.timeout_millis, 300_000);
    assert!(task.idempotency.is_none() && task.body.callback.is_none());
    assert_eq!(task.trail.entries().count(), 1);
}

#[test]
fn every_field_arrives() {
    let task = submit(&json!({
        "type": "a:b/c-d_e.f", "payload": {"x": [1, 2.50]}, "queue": "mail", "callback_url": "https://Example.com/hook#part",
        "callback_headers": {"X-Team": "billing"}, "callback_body": "envelope", "delay_seconds": 1.5, "priority": "high", "idempotency_key": "order 17",
        "retry_policy": {"max_retries": 0, "backoff": "linear", "backoff_seconds": 0.5, "max_backoff_seconds": 2, "jitter": "none"},
        "timeout_seconds": 0.25, "expires_at": "2026-05-22T20:00:02+02:00", "metadata": {"team": "a", "é": ""},
    }))
    .unwrap();
    assert_eq!(task.lane.route, Route::Push("https://example.com:443".to_owned()));
    assert_eq!(task.lane.priority, 8);
    assert_eq!(task.execute_at, now().plus_millis(1_500));
    assert_eq!(task.expires_at, Some(now().plus_millis(2_000)));
    let callback = task.body.callback.as_ref().unwrap();
    assert_eq!((callback.url.as_str(), callback.headers["X-Team"].as_str()), ("https://example.com/hook", "billing"));
    assert_eq!(callback.body, CallbackBody::Envelope);
    assert_eq!(
        task.body.retry_policy,
        RetryPolicy {
            max_retries: 0,
            backoff: Backoff::Linear,
            backoff_millis: 500,
            max_backoff_millis: 2_000,
            jitter: Jitter::None,
            ..RetryPolicy::default()
        }
    );
    assert_eq!(task.body.timeout_millis, 250);
    assert_eq!(task.body.metadata.len(), 2);
    assert_eq!(key_of(&task).0, "order 17");
}

#[test]
fn a_payload_keeps_its_bytes() {
    let text = r#"{"type":"t","payload":{"b": 1.0,  "a":"\u0000é"}}"#;
    let task = submit_text(text, None, &SubmissionRules::default()).unwrap();
    assert_eq!(task.body.payload.get(), r#"{"b": 1.0,  "a":"\u0000é"}"#);
}

#[test]
fn all_faults_are_reported_at_once() {
    let found = faults(json!({
        "queue": "a b", "callback_url": "ftp://x/", "callback_headers": {"Host": "x", "X": "a\r\nb"}, "execute_at": "tomorrow",
        "delay_seconds": -1, "priority": 10, "idempotency_key": "", "retry_policy": {"max_retries": 1001, "backoff_seconds": 2_592_001},
        "timeout_seconds": 0, "expires_at": "2026-02-30T00:00:00Z", "metadata": {"": "x", "a/b": "\u{0}"},
        "depends_on": ["task_1", 0], "ordering_key": "", "concurrency_key": "",
    }));
    let mut expected = vec![
        "/ordering_key",
        "/concurrency_key",
        "/depends_on/0",
        "/depends_on/1",
        "/queue",
        "/callback_headers/Host",
        "/callback_headers/X",
        "/callback_url",
        "/delay_seconds",
        "/execute_at",
        "/expires_at",
        "/priority",
        "/retry_policy/max_retries",
        "/retry_policy/backoff_seconds",
        "/timeout_seconds",
        "/metadata/",
        "/metadata/a~1b",
        "/idempotency_key",
    ];
    let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn names_are_plain() {
    for bad in ["", "a b", "é", "a\u{0}", "a\n", "a%", &"x".repeat(256)] {
        assert_eq!(submit(&json!({"type": bad})).unwrap_err().faults[0].pointer, "/type", "{bad:?}");
        assert_eq!(faults(json!({"queue": bad})), ["/queue"], "{bad:?}");
    }
    assert!(faults(json!({"queue": "x".repeat(255)})).is_empty());
}

#[test]
fn times_are_strict_and_the_past_is_fine() {
    for good in [
        "1970-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "2026-05-22T17:59:59.000Z",
        "2026-05-22t18:00:00z",
    ] {
        let task = submit(&json!({"type": "t", "execute_at": good})).unwrap();
        assert_eq!(task.execute_at, Timestamp::parse(good).unwrap(), "{good}");
    }
    for bad in [
        "",
        "2026-05-22",
        "2026-05-22T18:00:00",
        "2026-06-30T23:59:60Z",
        "2026-05-22T24:00:00Z",
        "10000-01-01T00:00:00Z",
    ] {
        assert_eq!(faults(json!({"execute_at": bad})), ["/execute_at"], "{bad}");
    }
}

#[test]
fn a_delay_is_bounded_and_never_early() {
    for (delay, millis) in
        [(json!(0), 0), (json!(0.0001), 1), (json!(1.0001), 1_001), (json!(3_155_760_000_u64), 3_155_760_000_000)]
    {
        let task = submit(&json!({"type": "t", "delay_seconds": delay})).unwrap();
        assert_eq!(task.execute_at, now().plus_millis(millis), "{delay}");
    }
    for bad in [json!(-1), json!(-0.5), json!(3_155_760_001_u64), json!(1e300)] {
        assert_eq!(faults(json!({"delay_seconds": bad})), ["/delay_seconds"], "{bad}");
    }
    assert_eq!(faults(json!({"delay_seconds": 1, "execute_at": NOW})), ["/delay_seconds"]);
}

#[test]
fn an_expiry_leaves_time_to_run() {
    for (more, good) in [
        (json!({"expires_at": "2026-05-22T18:00:00.001Z"}), true),
        (json!({"expires_at": NOW}), false),
        (json!({"expires_at": "2026-05-22T18:00:10Z", "delay_seconds": 10}), false),
        (json!({"expires_at": "2026-05-22T18:00:10.001Z", "delay_seconds": 10}), true),
        (json!({"expires_at": "2026-05-22T17:00:00Z", "execute_at": "2026-05-22T16:00:00Z"}), false),
    ] {
        assert_eq!(faults(more.clone()).is_empty(), good, "{more}");
    }
}

#[test]
fn a_retry_policy_is_bounded() {
    for bad in [
        json!({"max_retries": -1}),
        json!({"max_retries": 1001}),
        json!({"backoff_seconds": -1}),
        json!({"max_backoff_seconds": 2_592_000.5}),
    ] {
        assert_eq!(faults(json!({"retry_policy": bad})).len(), 1, "{bad}");
    }
    assert_eq!(
        faults(json!({"retry_policy": {"backoff_seconds": 5, "max_backoff_seconds": 1}})),
        ["/retry_policy/max_backoff_seconds"]
    );
    let policy = |given: Value| submit(&json!({"type": "t", "retry_policy": given})).unwrap().body.retry_policy;
    assert_eq!(policy(json!({"backoff_seconds": 7200})).max_backoff_millis, 7_200_000);
    assert_eq!(policy(json!({"max_retries": 1000})), RetryPolicy { max_retries: 1_000, ..RetryPolicy::default() });
    assert_eq!(faults(json!({"timeout_seconds": 86_400.001})), ["/timeout_seconds"]);
    assert_eq!(submit(&json!({"type": "t", "timeout_seconds": 0.001})).unwrap().body.timeout_millis, 1);
}

#[test]
fn labels_are_bounded() {
    let many = |count: usize| (0..count).map(|n| (n.to_string(), json!("v"))).collect::<serde_json::Map<_, _>>();
    assert!(faults(json!({"metadata": many(32)})).is_empty());
    assert_eq!(faults(json!({"metadata": many(33)})), ["/metadata"]);
    assert!(faults(json!({"metadata": {"k".repeat(64): "é".repeat(512)}})).is_empty());
    assert_eq!(faults(json!({"metadata": {"k".repeat(65): ""}})).len(), 1);
    assert_eq!(faults(json!({"metadata": {"k": "v".repeat(513)}})), ["/metadata/k"]);
}

#[test]
fn callbacks_stay_out_of_special_networks_unless_allowed() {
    let rules = SubmissionRules { networks: AllowedNetworks::loopback(), ..SubmissionRules::default() };
    let refused = |url: &str, rules: &SubmissionRules| {
        submit_text(&json!({"type": "t", "callback_url": url}).to_string(), None, rules).is_err()
    };
    for url in
        ["http://127.0.0.1:9/x", "http://2130706433/", "http://[::1]/", "http://169.254.169.254/", "http://10.0.0.1/"]
    {
        assert!(refused(url, &SubmissionRules::default()), "{url}");
    }
    assert!(!refused("http://127.0.0.1:9/x", &rules) && refused("http://10.0.0.1/", &rules));
    assert!(!refused("http://example.com/", &SubmissionRules::default()));
    assert_eq!(faults(json!({"callback_headers": {"X": "y"}})), ["/callback_headers"]);
    assert_eq!(faults(json!({"callback_body": "envelope"})), ["/callback_body"]);
    assert_eq!(
        faults(json!({"callback_url": "http://h/", "callback_headers": {"X-A": "1", "x-a": "2"}})),
        ["/callback_headers/x-a"]
    );
}

#[test]
fn a_payload_over_its_limit_is_too_large() {
    let rules = SubmissionRules { payload_bytes: 10, ..SubmissionRules::default() };
    let sent = |payload: &str| submit_text(&format!(r#"{{"type":"t","payload":{payload}}}"#), None, &rules);
    assert!(sent("\"12345678\"").is_ok());
    let error = sent("\"123456789\"").unwrap_err();
    assert_eq!((error.code, error.faults[0].pointer.as_str()), (ErrorCode::TooLarge, "/payload"));
}

#[test]
fn the_header_and_the_field_are_one_key() {
    let rules = SubmissionRules::default();
    let header = submit_text(r#"{"type":"t"}"#, Some("k"), &rules).unwrap();
    let field = submit_text(r#"{"type":"t","idempotency_key":"k"}"#, None, &rules).unwrap();
    let both = submit_text(r#"{"type":"t","idempotency_key":"k"}"#, Some("k"), &rules).unwrap();
    assert_eq!(key_of(&header), key_of(&field));
    assert_eq!(key_of(&header), key_of(&both));
    assert_eq!(header.body.idempotency_key.as_deref(), Some("k"));
    let error = submit_text(r#"{"type":"t","idempotency_key":"k"}"#, Some("other"), &rules).unwrap_err();
    assert_eq!(error.faults[0].pointer, "/idempotency_key");
}

fn fingerprint(text: &str) -> [u8; 32] {
    key_of(&submit_text(text, Some("k"), &SubmissionRules::default()).unwrap()).1
}

#[test]
fn a_fingerprint_is_of_the_meaning() {
    let one = r#"{"type":"t","payload":{"a":1,"b":[true,{"y":2,"x":"é"}]},"priority":"normal","delay_seconds":30}"#;
    let same = r#" {"delay_seconds":30.0, "payload":{ "b":[true,{"x":"\u00e9","y":2}],"a":1 },"queue":"default","retry_policy":{},"type":"t"} "#;
    assert_eq!(fingerprint(one), fingerprint(same));
}

/// What another node, or the same node with other settings, makes of the same submission.
#[test]
fn the_defaults_of_a_node_are_no_part_of_a_fingerprint() {
    let retry_policy = RetryPolicy { max_retries: 4, backoff_millis: 7, ..RetryPolicy::default() };
    let others = SubmissionRules { retry_policy, timeout_millis: 5, ..SubmissionRules::default() };
    for text in [
        r#"{"type":"t"}"#,
        r#"{"type":"t","retry_policy":{"backoff_seconds":9},"timeout_seconds":1}"#,
        r#"{"type":"t","retry_policy":{"max_retries":3}}"#,
    ] {
        let [one, other] =
            [&SubmissionRules::default(), &others].map(|rules| submit_text(text, Some("k"), rules).unwrap());
        assert_eq!(key_of(&one), key_of(&other), "{text}");
    }
    assert_ne!(fingerprint(r#"{"type":"t"}"#), fingerprint(r#"{"type":"t","retry_policy":{"max_retries":3}}"#));
}

/// Those builds filled in the defaults.
#[test]
fn the_digest_of_earlier_builds_is_known() {
    let idempotency = |text| submit_text(text, Some("k"), &SubmissionRules::default()).unwrap().idempotency.unwrap();
    let plain = idempotency(r#"{"type":"t","payload":{"b":1,"a":"x"},"queue":"q"}"#);
    let stored = r#"{"kind":"t","queue":"q","priority":5,"when":"now","expires_at":null,"callback_url":null,"callback_headers":{},"retry_policy":{"max_retries":3,"backoff":"exponential","backoff_millis":30000,"max_backoff_millis":3600000,"jitter":"full"},"timeout_millis":300000,"metadata":{}}
{"a":"x","b":1,}"#;
    assert!(plain.is_repeat_of(&Sha256::digest(stored)) && plain.fingerprint[..] != Sha256::digest(stored)[..]);
    let whole = idempotency(
        r#"{"type":"t","timeout_seconds":1,"retry_policy":{"max_retries":1,"backoff":"fixed","backoff_seconds":1,"max_backoff_seconds":2,"jitter":"none"}}"#,
    );
    let stored = r#"{"kind":"t","queue":"default","priority":5,"when":"now","expires_at":null,"callback_url":null,"callback_headers":{},"retry_policy":{"max_retries":1,"backoff":"fixed","backoff_millis":1000,"max_backoff_millis":2000,"jitter":"none"},"timeout_millis":1000,"metadata":{}}
null"#;
    assert_eq!((&whole.fingerprint[..], whole.earlier), (&Sha256::digest(stored)[..], None), "nothing was filled in");
}

#[test]
fn another_meaning_has_another_fingerprint() {
    let texts = [
        r#"{"type":"t"}"#,
        r#"{"type":"u"}"#,
        r#"{"type":"t","queue":"q"}"#,
        r#"{"type":"t","payload":1}"#,
        r#"{"type":"t","payload":"1"}"#,
        r#"{"type":"t","delay_seconds":1}"#,
        r#"{"type":"t","execute_at":"2026-05-22T18:00:01Z"}"#,
        r#"{"type":"t","priority":4}"#,
        r#"{"type":"t","metadata":{"a":"b"}}"#,
        r#"{"type":"t","timeout_seconds":1}"#,
        r#"{"type":"t","expires_at":"2027-01-01T00:00:00Z"}"#,
        r#"{"type":"t","retry_policy":{"jitter":"none"}}"#,
        r#"{"type":"t","callback_url":"http://example.com/"}"#,
        r#"{"type":"t","callback_url":"http://example.com/","callback_headers":{"a":"b"}}"#,
        r#"{"type":"t","callback_url":"http://example.com/","callback_body":"envelope"}"#,
    ];
    let payload = r#"{"type":"t","callback_url":"http://example.com/","callback_body":"payload"}"#;
    assert_eq!(fingerprint(payload), fingerprint(texts[12]), "it is the default");
    let digests: std::collections::HashSet<_> = texts.iter().map(|text| fingerprint(text)).collect();
    assert_eq!(digests.len(), texts.len());
}

proptest! {
    #[test]
    fn no_text_panics(text: String) {
        drop(submit_text(&text, None, &SubmissionRules::default()));
        drop(submit(&json!({"type": text, "queue": text, "callback_url": text, "execute_at": text, "expires_at": text,
            "idempotency_key": text, "metadata": {text.clone(): text}, "callback_headers": {text.clone(): text}})));
    }
}
