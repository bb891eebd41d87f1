//! The parameters that many operations have, and the pass that writes each of them once.

use std::collections::BTreeMap;

use punctual_client::form::{
    IdempotencyKeyForm, KeyIdForm, OperationIdForm, ScheduleIdForm, TaskRefForm, TenantForm, WebhookSecretIdForm,
};
use utoipa::IntoParams;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{OpenApi, Ref, RefOr, Schema};

use super::operations;

/// The task of a call.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "documents what the path says")]
pub struct TaskPath {
    /// The task's id.
    #[param(value_type = TaskRefForm)]
    id: String,
}

/// The schedule of a call.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "documents what the path says")]
pub struct SchedulePath {
    /// The schedule's id.
    #[param(value_type = ScheduleIdForm)]
    id: String,
}

/// The bulk operation of a call.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "documents what the path says")]
pub struct OperationPath {
    /// The operation's id.
    #[param(value_type = OperationIdForm)]
    id: String,
}

/// The tenant of a call about one.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "documents what the path says")]
pub struct TenantPath {
    /// The tenant's name.
    #[param(value_type = TenantForm)]
    tenant: String,
}

/// The tenant and the API key of a call about a key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "documents what the path says")]
pub struct ApiKeyPath {
    /// The tenant's name.
    #[param(value_type = TenantForm)]
    tenant: String,
    /// The key's id.
    #[param(value_type = KeyIdForm)]
    key_id: String,
}

/// The tenant and the webhook secret of a call about a secret.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "documents what the path says")]
pub struct WebhookSecretPath {
    /// The tenant's name.
    #[param(value_type = TenantForm)]
    tenant: String,
    /// The secret's id.
    #[param(value_type = WebhookSecretIdForm)]
    id: String,
}

/// The condition of a change.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents what the headers may say")]
pub struct IfMatch {
    /// Do it only at this version, an `ETag` (`*`: at any, but do not create it).
    #[param(rename = "If-Match", pattern = "^(\"[0-9]+\"|[*])$", example = "\"3\"")]
    if_match: Option<String>,
}

/// The condition of a creation.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents what the headers may say")]
pub struct IfNoneMatch {
    /// `*`: create it, and do not replace what is there.
    #[param(rename = "If-None-Match", pattern = "^(\"[0-9]+\"|[*])$", example = "*")]
    if_none_match: Option<String>,
}

/// The key of a submission.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "documents what the headers may say")]
pub struct IdempotencyKey {
    /// Do it once under this key, quoted or bare. Keys are those of tasks.
    #[param(rename = "Idempotency-Key", value_type = Option<IdempotencyKeyForm>)]
    idempotency_key: Option<String>,
}

/// A parameter is given or absent, never `null`.
pub fn refuse_nulls(operation: &mut Operation) {
    for parameter in operation.parameters.iter_mut().flatten() {
        let RefOr::T(Parameter { schema: Some(schema), .. }) = parameter else { continue };
        match schema {
            RefOr::T(Schema::Object(object)) => object.schema_type = not_null(&object.schema_type),
            RefOr::T(Schema::Array(array)) => array.schema_type = not_null(&array.schema_type),
            RefOr::T(Schema::OneOf(one_of)) => {
                one_of.items.retain(|item| !is_null(item));
                if let [only] = one_of.items.as_slice() {
                    *schema = only.clone();
                }
            }
            _ => {}
        }
    }
}

/// The schema type without `null`.
fn not_null(schema_type: &SchemaType) -> SchemaType {
    match schema_type {
        SchemaType::Array(types) => {
            let mut types: Vec<Type> = types.iter().filter(|one| **one != Type::Null).cloned().collect();
            if types.len() == 1 { SchemaType::Type(types.remove(0)) } else { SchemaType::Array(types) }
        }
        other => other.clone(),
    }
}

/// Whether a schema is that of `null` alone.
pub fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}

/// Moves the parameters that several operations have into the components.
pub fn share(document: &mut OpenApi) {
    let mut uses: BTreeMap<String, (String, Parameter, usize)> = BTreeMap::new();
    for (path, item) in &mut document.paths.paths {
        for operation in operations(item) {
            for parameter in operation.parameters.iter().flatten() {
                if let RefOr::T(parameter) = parameter {
                    let entry = (shared_name(path, parameter), parameter.clone(), 0);
                    uses.entry(text_of(parameter)).or_insert(entry).2 += 1;
                }
            }
        }
    }
    let components = document.components.get_or_insert_default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (text, (mut name, parameter, _)) in uses.into_iter().filter(|(_, (.., count))| *count > 1) {
        // A header and a filter may have the same name.
        while components.parameters.contains_key(&name) {
            name.push_str("Filter");
        }
        components.parameters.insert(name.clone(), RefOr::T(parameter));
        names.insert(text, name);
    }
    for item in document.paths.paths.values_mut() {
        for parameter in operations(item).flat_map(|operation| operation.parameters.iter_mut().flatten()) {
            let RefOr::T(own) = parameter else { continue };
            if let Some(name) = names.get(&text_of(own)) {
                *parameter = reference(name);
            }
        }
    }
}

/// A reference to the shared parameter of this name.
pub fn reference(name: &str) -> RefOr<Parameter> {
    RefOr::Ref(Ref::new(format!("#/components/parameters/{name}")))
}

fn text_of(parameter: &Parameter) -> String {
    serde_json::to_string(parameter).expect("invariant: a parameter can be written as JSON")
}

/// What a parameter is called among the components: `TaskId` for the `id` of `/v1/tasks/{id}`.
fn shared_name(path: &str, parameter: &Parameter) -> String {
    let noun = match parameter.parameter_in {
        ParameterIn::Path => path.split('/').nth(2).unwrap_or_default().trim_end_matches('s'),
        _ => "",
    };
    let words = std::iter::once(noun).chain(parameter.name.split(|c: char| !c.is_ascii_alphanumeric()));
    words
        .flat_map(|word| word.chars().enumerate().map(|(at, c)| if at == 0 { c.to_ascii_uppercase() } else { c }))
        .collect()
}
