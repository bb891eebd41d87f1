use std::collections::{BTreeSet, HashSet};

use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::to_value(assemble(crate::routes::router()).into_openapi()).unwrap()
}

fn operations_of(document: &Value) -> Vec<(String, String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    let mut operations = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((method.to_uppercase(), path.clone(), operation));
        }
    }
    operations
}

fn walk<'a>(value: &'a Value, found: &mut impl FnMut(&'a str, &'a Value)) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            found(name, value);
            walk(value, found);
        }),
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        _ => {}
    }
}

#[test]
fn the_document_has_a_head() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    for field in ["/info/title", "/info/version", "/info/description", "/info/license/identifier", "/servers/0/url"] {
        assert!(document.pointer(field).is_some_and(|value| !value.as_str().unwrap().is_empty()), "{field}");
    }
    let tags: HashSet<&str> =
        document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str().unwrap()).collect();
    for (method, path, operation) in operations_of(&document) {
        let [tag] = operation["tags"].as_array().unwrap().as_slice() else { panic!("{method} {path} has not one tag") };
        assert!(tags.contains(tag.as_str().unwrap()), "{method} {path}: {tag}");
    }
}

#[test]
fn every_reference_leads_somewhere() {
    let document = document();
    let mut count = 0;
    walk(&document, &mut |name, value| {
        if name == "$ref" {
            let reference = value.as_str().unwrap().strip_prefix('#').unwrap();
            assert!(document.pointer(reference).is_some(), "{reference}");
            count += 1;
        }
    });
    assert!(count > 50, "{count}");
}

#[test]
fn operations_are_complete() {
    let document = document();
    let mut ids = HashSet::new();
    for (method, path, operation) in operations_of(&document) {
        let place = format!("{method} {path}");
        assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{place} repeats an operationId");
        assert!(!operation["summary"].as_str().unwrap_or_default().is_empty(), "{place} has no summary");
        let named: BTreeSet<&str> = path.split(['{', '}']).skip(1).step_by(2).collect();
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let declared = parameters.iter().filter(|parameter| parameter["in"] == "path");
        let declared: BTreeSet<&str> = declared.map(|parameter| parameter["name"].as_str().unwrap()).collect();
        assert_eq!(named, declared, "{place}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{place} never succeeds");
        assert!(responses.contains_key("default"), "{place} never fails");
        for (status, response) in responses {
            let described = response["description"].as_str().is_some_and(|text| !text.is_empty());
            assert!(described || response.get("$ref").is_some(), "{place} {status} is not described");
        }
        let has_body = matches!(method.as_str(), "POST" | "PUT" | "PATCH") && !path.ends_with("/run");
        assert_eq!(operation.get("requestBody").is_some(), has_body, "{place}");
    }
}

#[test]
fn refusals_are_problems_everywhere() {
    let document = document();
    for (method, path, operation) in operations_of(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            if !status.starts_with(['4', '5']) || path == "/readyz" {
                continue;
            }
            let response = match response["$ref"].as_str() {
                Some(reference) => document.pointer(&reference[1..]).unwrap(),
                None => response,
            };
            let content: Vec<&String> = response["content"].as_object().unwrap().keys().collect();
            assert_eq!(content, ["application/problem+json"], "{method} {path} {status}");
        }
    }
}

#[test]
fn the_whole_contract_is_there() {
    let document = document();
    let there: BTreeSet<String> =
        operations_of(&document).into_iter().map(|(method, path, _)| format!("{method} {path}")).collect();
    let contract = [
        "POST /v1/tasks",
        "POST /v1/tasks/batch",
        "GET /v1/tasks",
        "GET /v1/tasks/{id}",
        "PATCH /v1/tasks/{id}",
        "DELETE /v1/tasks/{id}",
        "POST /v1/tasks/{id}/run",
        "POST /v1/tasks/{id}/redrive",
        "GET /v1/tasks/{id}/runs",
        "GET /v1/tasks/{id}/events",
        "GET /v1/tasks/{id}/explain",
        "POST /v1/leases",
        "POST /v1/leases/settle",
        "POST /v1/tasks/{id}/complete",
        "POST /v1/tasks/{id}/fail",
        "POST /v1/tasks/{id}/heartbeat",
        "POST /v1/tasks/{id}/release",
        "GET /v1/workers",
        "POST /v1/schedules",
        "GET /v1/schedules",
        "POST /v1/schedules/preview",
        "GET /v1/schedules/by-name/{name}",
        "PUT /v1/schedules/by-name/{name}",
        "GET /v1/schedules/{id}",
        "PATCH /v1/schedules/{id}",
        "DELETE /v1/schedules/{id}",
        "POST /v1/schedules/{id}/pause",
        "POST /v1/schedules/{id}/resume",
        "POST /v1/schedules/{id}/trigger",
        "POST /v1/schedules/{id}/backfill",
        "GET /v1/schedules/{id}/preview",
        "GET /v1/schedules/{id}/occurrences",
        "GET /v1/admin/nodes",
        "GET /v1/admin/partitions",
        "GET /v1/admin/breakers",
        "POST /v1/admin/breakers/reset",
        "GET /healthz",
        "GET /readyz",
        "GET /metrics",
    ];
    let missing: Vec<&str> = contract.into_iter().filter(|call| !there.contains(*call)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
