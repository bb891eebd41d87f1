//! `GET /` and `GET /v1`: what this server is, and which calls it takes.
//!
//! A browser gets a small page, a program JSON. Both are made once, of the OpenAPI document, so
//! they cannot name a call that is not there. They show only what the document has.

use axum::Router;
use axum::http::header::{ACCEPT, CONTENT_SECURITY_POLICY, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use serde::Serialize;
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};

use crate::encoding::weight_of;
use crate::extract::query::Query;
use crate::problem::Problem;

/// Where the OpenAPI document is.
const DOCUMENT: &str = "/openapi.json";

/// The page has one style and loads nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;\
                     color-scheme:light dark}td{padding:.1rem 1rem .1rem 0;vertical-align:top}";

/// The name, version and calls of a server.
#[derive(Serialize)]
struct Overview<'d> {
    name: &'static str,
    version: &'static str,
    /// Where the OpenAPI document is; none on a node without the role `api`.
    #[serde(skip_serializing_if = "Option::is_none")]
    openapi: Option<&'static str>,
    calls: Vec<Call<'d>>,
}

/// A call that it takes.
#[derive(Serialize)]
struct Call<'d> {
    method: &'static str,
    path: &'d str,
    summary: &'d str,
    #[serde(skip)]
    tag: &'d str,
}

/// Serves the overview of the calls in `document`, which is itself served if `is_served`.
pub fn router<S: Clone + Send + Sync + 'static>(document: &OpenApi, is_served: bool) -> Router<S> {
    let overview = Overview {
        name: "punctual",
        version: env!("CARGO_PKG_VERSION"),
        openapi: is_served.then_some(DOCUMENT),
        calls: document.paths.paths.iter().flat_map(|(path, item)| calls(path, item)).collect(),
    };
    let text = serde_json::to_string(&overview).expect("invariant: it is texts and lists");
    let (text, page) = (Bytes::from(text), Bytes::from(page(&overview)));
    let answer = async move |headers: HeaderMap| answer(&headers, text, page);
    let of_version = {
        let answer = answer.clone();
        async move |headers: HeaderMap, query: Query| {
            query.finish()?;
            Ok::<_, Problem>(answer(headers).await)
        }
    };
    Router::new().route("/", get(answer)).route("/v1", get(of_version.clone())).route("/v1/", get(of_version))
}

fn answer(headers: &HeaderMap, text: Bytes, page: Bytes) -> Response {
    let vary = (VARY, HeaderValue::from_static("accept"));
    if wants_page(headers) {
        let policy = (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        let html = (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        ([html, vary, policy], page).into_response()
    } else {
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json")), vary], text).into_response()
    }
}

/// Whether a caller names HTML, and JSON neither with more weight nor with the same weight before
/// it. Browsers do; most programs do not.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<&str> = accepted.flat_map(|value| value.split(',')).collect();
    // The weight, and the place from the end.
    let rank = |wanted: &str| {
        let ranges = ranges.iter().rev().enumerate().filter_map(|(place, range)| {
            let (media, parameters) = range.split_once(';').unwrap_or((range, ""));
            let weight = weight_of(parameters);
            (media.trim().eq_ignore_ascii_case(wanted) && weight > 0.0).then_some((weight, place))
        });
        ranges.max_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)))
    };
    let page = rank("text/html");
    page.is_some() && page > rank("application/json")
}

fn calls<'d>(path: &'d str, item: &'d PathItem) -> impl Iterator<Item = Call<'d>> {
    let PathItem { get, put, post, delete, patch, .. } = item;
    let methods = [("GET", get), ("POST", post), ("PUT", put), ("PATCH", patch), ("DELETE", delete)];
    let call = move |(method, operation): (&'static str, &'d Option<Operation>)| {
        let operation = operation.as_ref()?;
        let tag = operation.tags.iter().flatten().next().map_or("", String::as_str);
        Some(Call { method, path, summary: operation.summary.as_deref().unwrap_or_default(), tag })
    };
    methods.into_iter().filter_map(call)
}

/// The overview as a page, by tag.
fn page(overview: &Overview<'_>) -> String {
    let version = overview.version;
    let document = overview.openapi.map_or_else(String::new, |document| {
        format!("<p>Every call, with its fields and answers: <a href={document}>{document}</a></p>")
    });
    let mut tags: Vec<&str> = Vec::new();
    for call in &overview.calls {
        if !tags.contains(&call.tag) {
            tags.push(call.tag);
        }
    }
    let sections: String = tags.into_iter().map(|tag| section(tag, &overview.calls)).collect();
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>Punctual</title><style>{STYLE}</style><h1>Punctual {version}</h1>{document}{sections}"
    )
}

/// The calls of a tag.
fn section(tag: &str, calls: &[Call<'_>]) -> String {
    let rows: String = calls.iter().filter(|call| call.tag == tag).map(row).collect();
    format!("<h2>{}</h2><table>{rows}</table>", escaped(tag))
}

fn row(call: &Call<'_>) -> String {
    let (path, summary) = (escaped(call.path), escaped(call.summary));
    let is_link = call.method == "GET" && !path.contains('{');
    let path = if is_link { format!("<a href=\"{path}\">{path}</a>") } else { path };
    format!("<tr><td>{}<td><code>{path}</code><td>{summary}", call.method)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use crate::testing::{Answer, World};

    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

    #[tokio::test]
    async fn a_program_is_told_every_call() {
        let world = World::new();
        let overview = world.get("/").await;
        assert_eq!((&overview["name"], &overview["openapi"]), (&"punctual".into(), &"/openapi.json".into()));
        assert_eq!(overview["version"], env!("CARGO_PKG_VERSION"));
        let document = world.get("/openapi.json").await;
        let calls = overview["calls"].as_array().unwrap();
        for call in calls {
            let (method, path) = (call["method"].as_str().unwrap().to_lowercase(), call["path"].as_str().unwrap());
            assert_eq!(document["paths"][path][&method]["summary"], call["summary"], "{call}");
        }
        let documented = document["paths"].as_object().unwrap().values().map(|item| item.as_object().unwrap().len());
        assert_eq!(calls.len(), documented.sum::<usize>());
        for accept in [
            "*/*",
            "application/json",
            "application/json, text/html",
            "text/html;q=0.1, application/json",
            "text/html;q=0",
        ] {
            assert_eq!(world.send_with("GET", "/v1", ("accept", accept)).await.expect(200), overview, "{accept}");
        }
    }

    #[tokio::test]
    async fn a_browser_gets_a_page() {
        let world = World::new();
        for path in ["/", "/v1", "/v1/"] {
            let answer = world.send_with("GET", path, ("accept", BROWSER)).await;
            assert_eq!(
                (answer.status.as_u16(), &answer.headers["vary"]),
                (200, &"accept, accept-encoding".parse().unwrap())
            );
            assert_eq!(answer.headers["content-type"], "text/html; charset=utf-8");
            assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
            assert!(answer.text.contains("<a href=\"/v1/tasks\">") && answer.text.contains("/v1/tasks/{id}"));
        }
        assert_eq!(world.send("POST", "/", None).await.problem(), "method_not_allowed");
        assert_eq!(world.send("GET", "/v1?bogus=1", None).await.pointers(), ["?bogus"]);
    }

    #[tokio::test]
    async fn a_node_without_the_api_names_what_it_has() {
        let router = crate::operations_router(Arc::clone(&World::new().api.operations));
        let request = Request::get("/").header("host", "localhost").body(Body::empty()).unwrap();
        let overview = Answer::of(router.oneshot(request).await.unwrap()).await.expect(200);
        let paths: Vec<&str> =
            overview["calls"].as_array().unwrap().iter().map(|call| call["path"].as_str().unwrap()).collect();
        assert_eq!((paths, overview.get("openapi")), (vec!["/healthz", "/metrics", "/readyz"], None));
    }
}
