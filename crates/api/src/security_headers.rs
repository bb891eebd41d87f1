//! The security headers of every answer, for browsers and caches.
//!
//! [`crate::middleware`] adds them to the answers of the routes, and [`crate::server`] to those
//! that it makes itself. The page at `/` has a policy of its own beside them ([`crate::overview`]).

use axum::http::header::{
    CACHE_CONTROL, HeaderMap, HeaderName, REFERRER_POLICY, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, header::Entry};

const NO_SNIFFING: (HeaderName, &str) = (X_CONTENT_TYPE_OPTIONS, "nosniff");
const NO_REFERRER: (HeaderName, &str) = (REFERRER_POLICY, "no-referrer");
/// For a year. Only of use over TLS; browsers ignore it elsewhere.
const TLS_ONLY: (HeaderName, &str) = (STRICT_TRANSPORT_SECURITY, "max-age=31536000");

/// The headers of every answer, whatever it is.
pub(crate) fn of_every_answer(is_over_tls: bool) -> impl Iterator<Item = (HeaderName, &'static str)> {
    [NO_SNIFFING, NO_REFERRER].into_iter().chain(is_over_tls.then_some(TLS_ONLY))
}

/// Adds them to an answer. One of the API is stored nowhere, unless the answer says otherwise.
pub(crate) fn add(headers: &mut HeaderMap, is_over_tls: bool, is_of_api: bool) {
    for (name, value) in of_every_answer(is_over_tls) {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if is_of_api && let Entry::Vacant(vacant) = headers.entry(CACHE_CONTROL) {
        vacant.insert(HeaderValue::from_static("no-store"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(mut headers: HeaderMap, is_over_tls: bool, is_of_api: bool) -> HeaderMap {
        add(&mut headers, is_over_tls, is_of_api);
        headers
    }

    #[test]
    fn only_tls_is_promised_over_tls() {
        let plain = added(HeaderMap::new(), false, false);
        assert_eq!(plain[X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(plain[REFERRER_POLICY], "no-referrer");
        assert!(!plain.contains_key(STRICT_TRANSPORT_SECURITY) && !plain.contains_key(CACHE_CONTROL));
        assert!(added(HeaderMap::new(), true, false).contains_key(STRICT_TRANSPORT_SECURITY));
    }

    #[test]
    fn an_answer_of_the_api_may_say_how_it_is_stored() {
        assert_eq!(added(HeaderMap::new(), false, true)[CACHE_CONTROL], "no-store");
        let own: HeaderMap = [(CACHE_CONTROL, HeaderValue::from_static("max-age=5"))].into_iter().collect();
        assert_eq!(added(own, false, true)[CACHE_CONTROL], "max-age=5");
    }
}
