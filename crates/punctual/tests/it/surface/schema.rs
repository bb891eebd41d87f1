//! The part of JSON Schema that comparing real responses with the published contract needs.

use serde_json::Value;

/// Follows `#/…` within a document.
pub fn resolve<'a>(document: &'a Value, reference: &str) -> Result<&'a Value, String> {
    let pointer = reference.strip_prefix('#').ok_or_else(|| format!("{reference} leads out of the document"))?;
    document.pointer(pointer).ok_or_else(|| format!("{reference} leads nowhere"))
}

/// All `$ref`s within a value.
pub fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                found.push(reference.clone());
            }
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Whether `value` conforms to `schema`; the error says where it does not.
pub fn conforms(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Value::Object(rules) = schema else {
        return if *schema == Value::Bool(false) { Err(format!("{at}: nothing is allowed here")) } else { Ok(()) };
    };
    for (rule, wanted) in rules {
        match rule.as_str() {
            "$ref" => {
                let reference = wanted.as_str().ok_or_else(|| format!("{at}: a $ref that is not a string"))?;
                conforms(document, resolve(document, reference)?, value, at)?;
            }
            "type" => of_type(wanted, value, at)?,
            "enum" if !list(wanted).contains(value) => return Err(format!("{at}: {value} is none of {wanted}")),
            "const" if wanted != value => return Err(format!("{at}: {value} is not {wanted}")),
            "allOf" => list(wanted).iter().try_for_each(|schema| conforms(document, schema, value, at))?,
            "anyOf" | "oneOf" => of_any(document, wanted, value, at)?,
            "required" => has_required(wanted, value, at)?,
            "properties" => has_properties(document, wanted, value, at)?,
            "additionalProperties" => has_no_more(document, rules, wanted, value, at)?,
            "items" => {
                for (n, item) in list(value).iter().enumerate() {
                    conforms(document, wanted, item, &format!("{at}/{n}"))?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn of_type(wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let is = |name: &Value| match name.as_str().unwrap_or_default() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    let fits = if wanted.is_array() { list(wanted).iter().any(is) } else { is(wanted) };
    if fits { Ok(()) } else { Err(format!("{at}: {value} is not of type {wanted}")) }
}

fn of_any(document: &Value, wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let tries: Vec<_> = list(wanted).iter().map(|schema| conforms(document, schema, value, at)).collect();
    if tries.iter().any(Result::is_ok) {
        return Ok(());
    }
    let reasons: Vec<String> = tries.into_iter().filter_map(Result::err).collect();
    Err(format!("{at}: none of the alternatives fits: {}", reasons.join("; ")))
}

fn has_required(wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let Value::Object(members) = value else { return Ok(()) };
    let missing = list(wanted).iter().find(|name| name.as_str().is_some_and(|name| !members.contains_key(name)));
    missing.map_or(Ok(()), |name| Err(format!("{at}: {name} is missing")))
}

fn has_properties(document: &Value, wanted: &Value, value: &Value, at: &str) -> Result<(), String> {
    let (Value::Object(schemas), Value::Object(members)) = (wanted, value) else { return Ok(()) };
    for (name, schema) in schemas {
        if let Some(member) = members.get(name) {
            conforms(document, schema, member, &format!("{at}/{name}"))?;
        }
    }
    Ok(())
}

fn has_no_more(
    document: &Value,
    rules: &serde_json::Map<String, Value>,
    wanted: &Value,
    value: &Value,
    at: &str,
) -> Result<(), String> {
    let Value::Object(members) = value else { return Ok(()) };
    let known = |name: &String| rules.get("properties").is_some_and(|properties| properties.get(name).is_some());
    for (name, member) in members.iter().filter(|(name, _)| !known(name)) {
        conforms(document, wanted, member, &format!("{at}/{name}"))?;
    }
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[test]
fn values_that_do_not_conform_are_refused() {
    use serde_json::json;
    let document = json!({"components": {"schemas": {"Name": {"type": "string"}}}});
    let schema = json!({
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"$ref": "#/components/schemas/Name"},
            "age": {"type": ["integer", "null"]},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "more": {"oneOf": [{"type": "null"}, {"type": "object", "additionalProperties": {"type": "number"}}]},
        },
        "additionalProperties": false,
    });
    let fits = |value: Value| conforms(&document, &schema, &value, "").is_ok();
    assert!(fits(json!({"name": "x", "age": null, "tags": ["a"], "more": {"n": 1.5}})));
    for bad in [
        json!([]),
        json!({}),
        json!({"name": 1}),
        json!({"name": "x", "age": "1"}),
        json!({"name": "x", "tags": ["c"]}),
        json!({"name": "x", "more": {"n": "1"}}),
        json!({"name": "x", "unknown": 1}),
    ] {
        assert!(!fits(bad.clone()), "{bad}");
    }
    assert!(resolve(&document, "#/components/schemas/Nobody").is_err());
}
