//! Calls that take no parameters refuse them.
//!
//! Which calls these are is what the OpenAPI document says, so a new route cannot forget it. The
//! middleware asks [`Parameterless::check`] before the handler. Invariant: a call without a body is
//! refused at once; for one with a body the extractor of the body adds the faults to its own, so
//! that one answer has all of them.

use std::collections::HashMap;

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa::openapi::{OpenApi, RefOr};

use crate::extract::query::Query;
use crate::problem::Problem;

/// The calls that take no parameters, by path and method, and whether they have a body.
#[derive(Debug, Default)]
pub struct Parameterless(HashMap<String, Vec<(Method, bool)>>);

/// Marks a request whose parameters the extractor of its body has to refuse.
#[derive(Clone, Copy, Debug)]
struct RefusedByBody;

impl Parameterless {
    /// Those of a document.
    pub fn of(document: &OpenApi) -> Self {
        let calls = document.paths.paths.iter().map(|(path, item)| {
            let calls = methods(item).filter(|(_, call)| !takes_parameters(document, call));
            (path.clone(), calls.map(|(method, call)| (method, call.request_body.is_some())).collect())
        });
        Self(calls.collect())
    }

    /// Refuses the parameters of a call that takes none, or leaves them to its body.
    pub fn check(&self, request: &mut Request) -> Result<(), Problem> {
        let Some(query) = request.uri().query().filter(|query| !query.is_empty()) else { return Ok(()) };
        let calls = request.extensions().get::<MatchedPath>().and_then(|path| self.0.get(path.as_str()));
        // A route that answers GET answers HEAD, too.
        let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
        match calls.into_iter().flatten().find(|(known, _)| known == method) {
            None => Ok(()),
            Some((_, false)) => Query::parse(query).finish(),
            Some((_, true)) => {
                request.extensions_mut().insert(RefusedByBody);
                Ok(())
            }
        }
    }
}

/// The parameters that the body of this request has to refuse: those of a call that takes none.
pub fn refused_by_body(request: &Request) -> Query {
    let query = request.extensions().get::<RefusedByBody>().and_then(|_| request.uri().query());
    Query::parse(query.unwrap_or_default())
}

fn methods(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let methods = [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
    ];
    methods.into_iter().filter_map(|(method, call)| Some((method, call.as_ref()?)))
}

fn takes_parameters(document: &OpenApi, call: &Operation) -> bool {
    let shared = document.components.as_ref().map(|components| &components.parameters);
    let is_of_query = |parameter: &Parameter| parameter.parameter_in == ParameterIn::Query;
    call.parameters.iter().flatten().any(|parameter| match parameter {
        RefOr::T(parameter) => is_of_query(parameter),
        RefOr::Ref(reference) => {
            let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
            matches!(shared.and_then(|shared| shared.get(name)), Some(RefOr::T(shared)) if is_of_query(shared))
        }
    })
}
