//! Which site a request is meant for, and which site made a browser send it.
//!
//! While authentication is off, whoever can connect may do everything. A listener on loopback keeps
//! other machines out, but not the web pages in a browser on this machine: a page can send requests
//! to `localhost`, or give its own name the address 127.0.0.1 and read the answers, too. So a
//! request must be meant for this server by its `Host`, and must not come from another site.
//! Called by [`crate::middleware`] for every request.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::header::{HOST, HeaderMap, ORIGIN};
use axum::http::uri::{Authority, Scheme};
use axum::http::{HeaderValue, Request, Uri, Version};

use crate::problem::{Code, Problem};

const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The names under which a server without authentication may be called, beside IP addresses and
/// `localhost`.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(Vec<String>);

impl AllowedHosts {
    /// Allows these names, at any port.
    pub fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Refuses a request for another host, or from another site.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), Problem> {
        let authority = authority(request)?;
        if let Some(authority) = &authority
            && !self.allow(authority.host())
        {
            let detail = "this server has another name; operators can add this one to allowed_hosts";
            return Err(Problem::new(Code::Misdirected, detail));
        }
        if is_cross_site(request.headers(), authority.as_ref()) {
            let detail = "the request comes from a web page of another site; authentication is off here";
            return Err(Problem::new(Code::CrossSite, detail));
        }
        Ok(())
    }

    fn allow(&self, host: &str) -> bool {
        is_ip(host)
            || host.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|allowed| host.eq_ignore_ascii_case(allowed))
    }
}

fn is_ip(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(literal) => literal.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

/// The host and port that the request is for. None only before HTTP/1.1, which browsers no longer
/// speak.
fn authority<B>(request: &Request<B>) -> Result<Option<Authority>, Problem> {
    let malformed = |detail: &str| Err(Problem::new(Code::MalformedRequest, detail));
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    if second.is_some() {
        return malformed("a request has one Host");
    }
    let target = request.uri().authority();
    let Some(host) = host else {
        return match (request.version(), target) {
            (Version::HTTP_11, _) => malformed("an HTTP/1.1 request must have a Host"),
            (Version::HTTP_2 | Version::HTTP_3, None) => malformed("an HTTP/2 request must have an :authority"),
            (_, target) => Ok(target.cloned()),
        };
    };
    match (parse_host(host), target) {
        (None, _) => malformed("the Host must be a host, with or without a port"),
        (Some(host), Some(target)) if host != *target => malformed("the request names two hosts"),
        (host, _) => Ok(host),
    }
}

fn parse_host(value: &HeaderValue) -> Option<Authority> {
    let authority = Authority::try_from(value.as_bytes()).ok()?;
    Some(authority).filter(|authority| !authority.as_str().contains('@'))
}

fn is_cross_site(headers: &HeaderMap, own: Option<&Authority>) -> bool {
    let foreign = |origin: &HeaderValue| !own.is_some_and(|own| is_same_origin(origin, own));
    let crosses = |site: &HeaderValue| site.as_bytes().eq_ignore_ascii_case(b"cross-site");
    headers.get_all(ORIGIN).iter().any(foreign) || headers.get_all(SEC_FETCH_SITE).iter().any(crosses)
}

/// Whether a page of `origin` is served by `own`. A proxy in front may speak TLS, so the scheme
/// matters only for the port that it implies.
fn is_same_origin(origin: &HeaderValue, own: &Authority) -> bool {
    let Ok(origin) = Uri::try_from(origin.as_bytes()) else { return false };
    let implied = match origin.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => 80,
        Some(scheme) if *scheme == Scheme::HTTPS => 443,
        // `null`, among others: a page of no site in particular.
        _ => return false,
    };
    let port = |authority: &Authority| authority.port_u16().unwrap_or(implied);
    origin.authority().is_some_and(|origin| origin.host().eq_ignore_ascii_case(own.host()) && port(origin) == port(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: Version, uri: &str, headers: &[(&str, &str)]) -> Result<(), Code> {
        let mut request = Request::builder().version(version).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let allowed = AllowedHosts::new(vec!["punctual.test".to_owned()]);
        allowed.check(&request.body(()).unwrap()).map_err(|problem| problem.code())
    }

    fn of_host(host: &str) -> Result<(), Code> {
        check(Version::HTTP_11, "/", &[("host", host)])
    }

    #[test]
    fn a_request_names_one_host() {
        let malformed = Err(Code::MalformedRequest);
        assert_eq!(check(Version::HTTP_11, "/", &[]), malformed);
        assert_eq!(check(Version::HTTP_11, "http://127.0.0.1/", &[]), malformed);
        assert_eq!(check(Version::HTTP_11, "/", &[("host", "127.0.0.1"), ("host", "127.0.0.1")]), malformed);
        assert_eq!(check(Version::HTTP_11, "http://127.0.0.1/", &[("host", "127.0.0.2")]), malformed);
        assert_eq!(check(Version::HTTP_2, "/", &[]), malformed);
        assert_eq!(check(Version::HTTP_2, "http://127.0.0.1/", &[("host", "127.0.0.2")]), malformed);
        for host in ["", "a b", "me@127.0.0.1", "127.0.0.1/"] {
            assert_eq!(of_host(host), malformed, "{host:?}");
        }
        assert_eq!(check(Version::HTTP_10, "/", &[]), Ok(()));
        assert_eq!(check(Version::HTTP_2, "http://127.0.0.1:7400/", &[]), Ok(()));
        assert_eq!(check(Version::HTTP_2, "http://127.0.0.1:7400/", &[("host", "127.0.0.1:7400")]), Ok(()));
    }

    #[test]
    fn another_servers_name_is_refused() {
        for host in ["127.0.0.1", "127.0.0.1:7400", "10.1.2.3:80", "[::1]:7400", "LocalHost:7400", "Punctual.test"] {
            assert_eq!(of_host(host), Ok(()), "{host}");
        }
        for host in ["evil.example", "127.0.0.1.evil.example:7400", "localhost.evil.example", "127.1", "[::1", "[v1.x]"]
        {
            assert!(of_host(host).is_err(), "{host}");
        }
        assert_eq!(check(Version::HTTP_2, "http://evil.example/", &[]), Err(Code::Misdirected));
        assert_eq!(check(Version::HTTP_10, "/", &[("host", "evil.example")]), Err(Code::Misdirected));
    }

    #[test]
    fn a_page_of_another_site_is_refused() {
        let from = |host, name, value| check(Version::HTTP_11, "/", &[("host", host), (name, value)]);
        for (host, origin) in [
            ("127.0.0.1:7400", "http://127.0.0.1:7400"),
            ("[::1]:7400", "http://[::1]:7400"),
            ("punctual.test", "https://punctual.test"),
            ("punctual.test:443", "https://punctual.test"),
            ("punctual.test", "http://PUNCTUAL.test:80"),
        ] {
            assert_eq!(from(host, "origin", origin), Ok(()), "{origin} at {host}");
        }
        for (host, origin) in [
            ("127.0.0.1:7400", "http://127.0.0.1:7401"),
            ("127.0.0.1:7400", "http://localhost:7400"),
            ("127.0.0.1:7400", "null"),
            ("127.0.0.1:7400", "127.0.0.1:7400"),
            ("127.0.0.1:7400", ""),
            ("punctual.test", "https://evil.example"),
            ("punctual.test", "https://punctual.test:8443"),
        ] {
            assert_eq!(from(host, "origin", origin), Err(Code::CrossSite), "{origin} at {host}");
        }
        assert_eq!(from("localhost", "sec-fetch-site", "cross-site"), Err(Code::CrossSite));
        for site in ["none", "same-origin", "same-site"] {
            assert_eq!(from("localhost", "sec-fetch-site", site), Ok(()), "{site}");
        }
        assert_eq!(check(Version::HTTP_10, "/", &[("origin", "http://127.0.0.1")]), Err(Code::CrossSite));
    }
}
