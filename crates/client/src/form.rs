//! The forms of texts and maps that many types share, for the OpenAPI document.
//!
//! Each is a schema of its own, which the types refer to by `value_type`. The server checks values
//! where it takes them (`punctual-submission`); a black-box test compares what it accepts with what
//! the document says.

use std::borrow::Cow;

use punctual_core::task::limits;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Text without control characters.
pub const NO_CONTROLS: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";

macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident is $wire:literal = $schema:expr;)+) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    $schema.into()
                }
            }

            impl ToSchema for $name {
                fn name() -> Cow<'static, str> {
                    Cow::Borrowed($wire)
                }
            }
        )+
    };
}

forms! {
    /// The name of a type, a queue or a schedule.
    NameForm is "Name" = text("A name.", "^[A-Za-z0-9._:/-]+$").min_length(Some(1)).max_length(Some(limits::NAME));
    /// A key that tasks share.
    TaskKeyForm is "TaskKey" = text("A key that tasks share: no control characters.", NO_CONTROLS)
        .min_length(Some(1)).max_length(Some(limits::NAME));
    /// A key that only one submission has.
    IdempotencyKeyForm is "IdempotencyKey" = text("Visible ASCII, with blanks only between.", "^[!-~]([ -~]*[!-~])?$")
        .min_length(Some(1)).max_length(Some(limits::NAME));
    /// The URL of a webhook.
    CallbackUrlForm is "CallbackUrl" = text("The URL of a webhook.", "^[Hh][Tt][Tt][Pp][Ss]?://")
        .max_length(Some(limits::URL)).examples(["https://example.com/hooks/mail"]);
    /// A kind of failure that is retried.
    RetryConditionForm is "RetryCondition" = text("`3xx`, `4xx`, `5xx`, a status from 300 to 599, `timeout` or `connection`.",
        "^([3-5]xx|[3-5][0-9]{2}|timeout|connection)$").examples(["5xx"]);
    /// The id of a task.
    TaskIdForm is "TaskId" = id("task_");
    /// The id of a run.
    RunIdForm is "RunId" = id("run_");
    /// The id of a schedule.
    ScheduleIdForm is "ScheduleId" = id("sched_");
    /// The id of a bulk operation.
    OperationIdForm is "OperationId" = id("op_");
    /// The id of an API key.
    KeyIdForm is "KeyId" = id("key_");
    /// The name of a tenant.
    TenantForm is "TenantName" = text("The name of a tenant.", "^[A-Za-z0-9._-]+$")
        .min_length(Some(1)).max_length(Some(64));
    /// The name of a type or a queue, or the beginning of one.
    NamePatternForm is "NamePattern" = text("A name; a trailing `*` stands for any end.", "^[A-Za-z0-9._:/-]+\\*?$")
        .min_length(Some(1)).max_length(Some(limits::NAME));
    /// A short text for people.
    TextForm is "Text" = text("A short text for people: no control characters.", NO_CONTROLS)
        .min_length(Some(1)).max_length(Some(limits::NAME));
    /// The id of a webhook secret.
    WebhookSecretIdForm is "WebhookSecretId" = id("whs_");
    /// The text of a webhook secret.
    SigningSecretForm is "SigningSecret" = text("`whsec_` and the base64 of 24 to 64 bytes, with its padding.",
        "^whsec_([A-Za-z0-9+/]{4}){8,20}(([A-Za-z0-9+/]{4})?([A-Za-z0-9+/][AQgw]==)?|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)$");
    /// The id of a task in a request, where its prefix may be left out.
    TaskRefForm is "TaskRef" = text("The id of a task; `task_` may be left out.", &format!("^(task_)?{UUID}$"))
        .examples([format!("task_{EXAMPLE}")]);
    /// The labels of a task.
    LabelsForm is "Labels" = map("Labels: names and values without control characters.", limits::METADATA)
        .property_names(Some(like(NO_CONTROLS).min_length(Some(1)).max_length(Some(limits::METADATA_KEY))))
        .additional_properties(Some(like(NO_CONTROLS).max_length(Some(limits::METADATA_VALUE))));
    /// The extra request headers of a webhook.
    HeadersForm is "Headers" = map("Extra request headers, of at most 8 KiB in all. Hop-by-hop headers and those that \
        Punctual sets are refused.", limits::HEADERS)
        .property_names(Some(like("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")))
        .additional_properties(Some(like(HEADER_VALUE)));
}

const UUID: &str = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
const EXAMPLE: &str = "01981e2c-5b7a-7c3e-9f00-3a4b5c6d7e8f";
/// Visible ASCII, with blanks and tabs only between.
const HEADER_VALUE: &str = r"^([!-~]([\t -~]*[!-~])?)?$";

fn like(pattern: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(pattern))
}

fn text(description: &str, pattern: &str) -> ObjectBuilder {
    like(pattern).description(Some(description))
}

fn id(prefix: &str) -> ObjectBuilder {
    text(&format!("An id: `{prefix}` and a UUID."), &format!("^{prefix}{UUID}$"))
        .examples([format!("{prefix}{EXAMPLE}")])
}

fn map(description: &str, most: usize) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::Object).description(Some(description)).max_properties(Some(most))
}
