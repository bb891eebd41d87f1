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
