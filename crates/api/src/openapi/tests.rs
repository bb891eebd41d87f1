use serde_json::Value;

use super::*;

fn document() -> Value {
    serde_json::to_value(assemble(crate::routes::router(), false).into_openapi()).unwrap()
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
fn the_document_says_what_it_is_of() {
    let document = document();
    for field in ["/info/description", "/info/license/identifier", "/servers/0/url"] {
        assert!(document.pointer(field).is_some_and(|value| !value.as_str().unwrap().is_empty()), "{field}");
    }
}

#[test]
fn operations_are_complete() {
    let document = document();
    let tags: Vec<&Value> = document["tags"].as_array().unwrap().iter().map(|tag| &tag["name"]).collect();
    for (method, path, operation) in operations_of(&document) {
        let place = format!("{method} {path}");
        let [tag] = operation["tags"].as_array().unwrap().as_slice() else { panic!("{place} has not one tag") };
        assert!(tags.contains(&tag), "{place}: {tag}");
        for text in ["operationId", "summary"] {
            assert!(!operation[text].as_str().unwrap_or_default().is_empty(), "{place} has no {text}");
        }
        assert!(operation["responses"].get("default").is_some(), "{place} never fails");
        let has_body = matches!(method.as_str(), "POST" | "PUT" | "PATCH");
        assert_eq!(operation.get("requestBody").is_some(), has_body, "{place}");
    }
}

#[test]
fn every_list_may_be_unchanged() {
    let document = document();
    let mut lists = 0;
    for (method, path, operation) in operations_of(&document) {
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        let is_list = parameters.any(|parameter| parameter["$ref"] == "#/components/parameters/Cursor");
        assert!(!is_list || operation["responses"]["304"].is_object(), "{method} {path}");
        lists += usize::from(is_list);
    }
    assert!(lists > 12, "{lists}");
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
fn bodies_are_objects_and_never_null() {
    let document = document();
    for (method, path, operation) in operations_of(&document) {
        let body = &operation["requestBody"];
        let may_be_absent = [
            "/pause",
            "/resume",
            "/trigger",
            "/{id}/run",
            "/{id}/purge",
            "/{id}/redrive",
            "/rotate",
            "/webhook-secrets",
        ]
        .iter()
        .any(|end| path.ends_with(end));
        if body.is_object() {
            let schema = &body["content"]["application/json"]["schema"];
            assert!(schema["$ref"].is_string(), "{method} {path}: {schema}");
            assert_eq!(body["required"], !may_be_absent, "{method} {path}");
        }
    }
}

#[test]
fn parameters_are_never_null_and_written_once() {
    let document = document();
    let mut seen = std::collections::HashSet::new();
    let shared = document["components"]["parameters"].as_object().unwrap().values();
    let own = operations_of(&document).into_iter().filter_map(|(.., operation)| operation["parameters"].as_array());
    for parameter in shared.chain(own.flatten()).filter(|parameter| parameter.get("$ref").is_none()) {
        let schema = &parameter["schema"];
        assert!(schema["$ref"].is_string() || schema["type"].is_string(), "{parameter}");
        assert!(seen.insert(parameter.to_string()), "twice: {parameter}");
    }
}

#[test]
fn every_call_documents_the_refusals_around_it() {
    let document = document();
    for (method, path, operation) in operations_of(&document) {
        let responses = operation["responses"].as_object().unwrap();
        let mut statuses = vec!["400", "403", "414", "421", "431", "500"];
        if path.starts_with("/v1/") {
            statuses.extend(["406", "503"]);
        }
        if operation.get("requestBody").is_some() {
            statuses.extend(["408", "413", "415", "422"]);
        }
        for status in statuses {
            assert!(responses.contains_key(status), "{method} {path} does not say {status}");
        }
    }
}

#[test]
fn names_of_operations_read_as_verb_and_noun() {
    let document = document();
    for (method, path, operation) in operations_of(&document) {
        let name = operation["operationId"].as_str().unwrap();
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
        assert!(name.split('_').count() > 1 && name.split('_').all(is_word), "{method} {path}: {name}");
    }
}
