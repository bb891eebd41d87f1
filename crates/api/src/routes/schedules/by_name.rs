//! `/v1/schedules/by-name/{name}…`: every call about a schedule, with its name instead of its id.
//!
//! Called by [`super::router`]. The handlers are the same, since [`ScheduleRequest`] finds the
//! schedule either way, so no call can be there in one form only.
//!
//! [`ScheduleRequest`]: super::request::ScheduleRequest

use punctual_client::form::NameForm;
use utoipa::ToSchema;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa::openapi::{Ref, RefOr};
use utoipa_axum::router::UtoipaMethodRouter;

use super::request::BY_NAME;
use crate::openapi::operations;
use crate::state::Api;

/// What the name is, in the document.
const DESCRIPTION: &str = "The schedule's name; a `/` in it is written `%2F`";

/// The same handlers, at the paths with a name.
pub fn by_name((schemas, mut paths, handlers): UtoipaMethodRouter<Api>) -> UtoipaMethodRouter<Api> {
    let with_id = std::mem::take(&mut paths.paths);
    paths.paths = with_id.into_iter().map(|(path, item)| (named_path(&path), named_item(item))).collect();
    (schemas, paths, handlers)
}

fn named_path(path: &str) -> String {
    let verb = path.strip_prefix("/v1/schedules/{id}").expect("invariant: these are the routes of one schedule");
    format!("{BY_NAME}{{name}}{verb}")
}

fn named_item(mut item: PathItem) -> PathItem {
    for operation in operations(&mut item) {
        let Operation { operation_id, parameters, .. } = operation;
        if let Some(id) = operation_id {
            id.push_str("_by_name");
        }
        for parameter in parameters.iter_mut().flatten() {
            if let RefOr::T(Parameter { name, parameter_in: ParameterIn::Path, description, schema, .. }) = parameter {
                "name".clone_into(name);
                *description = Some(DESCRIPTION.to_owned());
                *schema = Some(Ref::from_schema_name(NameForm::name()).into());
            }
        }
    }
    item
}
