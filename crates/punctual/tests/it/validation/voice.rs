//! One voice: no refusal has the words of a parser or of Rust, wherever it comes from.
//!
//! The operations and their fields are those of `/openapi.json`, so a new one is tested too.

use serde_json::{Map, Value, json};

use crate::it::world::{Caller, id_of, shared};

/// What a caller cannot understand who does not know how the server is made.
const FOREIGN: &[&str] = &[
    "invalid type",
    "invalid value",
    "invalid length",
    "expected",
    "variant",
    " map",
    "sequence",
    "floating point",
    "boolean",
    "missing field",
    "unknown field",
    "struct",
    "EOF",
    "i64",
    "u64",
    "u32",
    "u8",
    "f64",
    "serde",
    "parse",
];

/// Bodies that are wrong for every operation.
const BODIES: &[&str] =
    &["", "{", "[", "nope", "[]", "5", "\"x\"", "{} {}", "{\"a\":1,\"a\":2}", "{\"a\" 1}", "{\"?\":1}"];

/// Values that are wrong for most fields.
fn odd_values() -> Vec<Value> {
    vec![
        json!(null),
        json!(true),
        json!(-1),
        json!(1.5),
        json!(1e300),
        json!(""),
        json!("é ?"),
        json!([]),
        json!([[5]]),
        json!({"?": [1]}),
    ]
}

/// What stands in the paths.
struct Ids {
    task: String,
    schedule: String,
    tenant: String,
    key: String,
}

impl Ids {
    async fn of(caller: &Caller) -> Self {
        let task = caller.submit(json!({"type": "t", "queue": "voice", "delay_seconds": 600})).await;
        let schedule = json!({"name": "voice", "cron": "0 3 * * *", "task": {"type": "t"}});
        let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201);
        let tenant = id_of(&task).replace("task_", "t-");
        caller.api.post("/v1/admin/tenants", &json!({ "name": tenant })).await.expect(201);
        let key = json!({"name": "voice", "role": "viewer"});
        let key = caller.api.post(&format!("/v1/admin/tenants/{tenant}/keys"), &key).await.expect(201);
        let text = |id: &Value| id.as_str().expect("an id").to_owned();
        Self { task: id_of(&task), schedule: text(&schedule["schedule_id"]), tenant, key: text(&key["key_id"]) }
    }

    fn fill(&self, path: &str) -> String {
        let id = if path.contains("/schedules/") { &self.schedule } else { &self.task };
        let path = path.replace("{tenant}", &self.tenant).replace("{key_id}", &self.key);
        path.replace("{id}", id).replace("{name}", "voice")
    }
}

/// Every operation: its method, its path and what the document says of it.
fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().expect("paths");
    let methods = paths.iter().flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().map(move |(method, operation)| (method, path, operation))
    });
    let known = methods.filter(|(method, ..)| ["get", "put", "post", "patch", "delete"].contains(&method.as_str()));
    known.map(|(method, path, operation)| (method.to_uppercase(), path.clone(), operation.clone())).collect()
}

/// The names of the members of the body, and of those of the objects in it.
fn members(document: &Value, schema: &Value) -> Map<String, Value> {
    let mut schema = schema;
    for _ in 0..8 {
        schema = resolved(document, schema);
        if let Some(one) = ["oneOf", "anyOf"].iter().find_map(|any| schema[*any].as_array()) {
            schema = one.iter().find(|one| one["type"] != "null").expect("an alternative");
        }
    }
    schema["properties"].as_object().cloned().unwrap_or_default()
}

/// A part of the document, or what it refers to.
fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(path) => document.pointer(path.trim_start_matches('#')).expect("a part of the document"),
        None => part,
    }
}

#[track_caller]
fn is_plain(sent: &str, text: &str) {
    let Ok(answer) = serde_json::from_str::<Value>(text) else { return };
    let mut said: Vec<String> = answer["detail"].as_str().map(str::to_owned).into_iter().collect();
    for fault in answer["errors"].as_array().into_iter().flatten() {
        said.push(fault["message"].as_str().expect("a message").to_owned());
        assert!(fault["pointer"].is_string(), "{sent}: {fault}");
    }
    for sentence in said {
        let foreign = FOREIGN.iter().find(|word| sentence.contains(**word));
        assert_eq!(foreign, None, "{sent} is answered with: {sentence}");
    }
}

#[tokio::test]
async fn bodies_are_refused_in_plain_words() {
    let caller = shared().await;
    let ids = Ids::of(&caller).await;
    let document = caller.api.get("/openapi.json").await.expect(200);
    let mut fields = 0;
    for (method, path, operation) in operations(&document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            continue;
        }
        let path = ids.fill(&path);
        let mut bodies: Vec<String> = BODIES.iter().map(|body| (*body).to_owned()).collect();
        let members = members(&document, schema);
        for odd in odd_values() {
            let all: Map<String, Value> = members.keys().map(|name| (name.clone(), odd.clone())).collect();
            bodies.push(Value::Object(all).to_string());
            for (name, member) in &members {
                let inner = self::members(&document, member).into_iter().map(|(name, _)| (name, odd.clone()));
                bodies.push(json!({name: inner.collect::<Map<_, _>>(), "?": 1}).to_string());
                fields += 1;
            }
        }
        for body in bodies {
            let reply = caller.api.call(&method, &path).body("application/json", body.clone()).send().await;
            is_plain(&format!("{method} {path} {body}"), reply.text());
            assert!(reply.status() < 500, "{method} {path} {body}\n{reply}");
        }
    }
    assert!(fields > 500, "only {fields} fields were tried");
}

#[tokio::test]
async fn queries_are_refused_in_plain_words() {
    let caller = shared().await;
    let ids = Ids::of(&caller).await;
    let document = caller.api.get("/openapi.json").await.expect(200);
    let mut tried = 0;
    for (method, path, operation) in operations(&document) {
        if method != "GET" {
            continue;
        }
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let parameters = parameters.map(|parameter| resolved(&document, parameter));
        let names: Vec<String> = parameters
            .filter(|parameter| parameter["in"] == "query")
            .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned))
            .collect();
        for odd in ["", "-1", "1.5", "x%20y", "%ff", "99999999999999999999"] {
            for name in &names {
                let path = format!("{}?{name}={odd}&unknown=1", ids.fill(&path));
                let reply = caller.api.get(&path).await;
                reply.invalid("?unknown");
                is_plain(&path, reply.text());
                tried += 1;
            }
        }
    }
    assert!(tried > 100, "only {tried} parameters were tried");
}
