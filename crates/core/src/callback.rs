//! Checks a webhook: its URL and the extra headers that a submitter gives it.
//!
//! The API calls this at submission, and the worker again before each request. A URL is parsed
//! once, by the rules that browsers follow, and only the canonical form is kept. So no later reader
//! finds another host in it.

use url::{Host, Url};

use crate::task::limits;

/// Why a callback is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackFault {
    /// Too long, as it was written or in its canonical form.
    #[error("must be at most {} characters long", limits::URL)]
    TooLong,
    /// Not a URL, or one with blanks or control characters in it.
    #[error("must be an absolute URL")]
    NotAUrl,
    /// A scheme other than HTTP and HTTPS.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// A user name or password: credentials belong in a header.
    #[error("must not carry a user name or password; use a callback header")]
    UserInfo,
    /// Port zero.
    #[error("must name a port between 1 and 65535")]
    Port,
    /// Not a header name.
    #[error("is not the name of a header")]
    HeaderName,
    /// A reserved header: ours, the connection's or the body's.
    #[error("is a header that a callback may not set")]
    ReservedHeader,
    /// A header value with characters that could end the line.
    #[error("must be visible ASCII characters, blanks and tabs, with neither blank nor tab at its ends")]
    HeaderValue,
}

/// Checks a callback URL. Returns its canonical form, without a fragment, and its target
/// `scheme://host:port`. Slots and breakers are kept by target. The target omits the trailing dot
/// of an absolute name, since both names are the same machine. The URL keeps the dot, which stops
/// resolvers from completing the name.
pub fn target_of(text: &str) -> Result<(String, String), CallbackFault> {
    if text.chars().count() > limits::URL {
        return Err(CallbackFault::TooLong);
    }
    // The parser would drop blanks and turn backslashes into slashes, so two readers of the text
    // would see two URLs.
    if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(CallbackFault::NotAUrl);
    }
    let mut url = Url::parse(text).map_err(|_| CallbackFault::NotAUrl)?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(CallbackFault::Scheme);
    }
    // The same applies to too few or too many slashes: not every reader sees the host `a` in
    // `http:a` and `http:///a`.
    if text[url.scheme().len()..].strip_prefix("://").is_none_or(|rest| rest.starts_with('/')) {
        return Err(CallbackFault::NotAUrl);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(CallbackFault::UserInfo);
    }
    let port = url.port_or_known_default().filter(|port| *port > 0).ok_or(CallbackFault::Port)?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or(CallbackFault::NotAUrl)?;
    let target = format!("{}://{}:{port}", url.scheme(), undotted(host));
    url.set_fragment(None);
    if url.as_str().len() > limits::URL {
        return Err(CallbackFault::TooLong);
    }
    Ok((url.into(), target))
}

/// The host without the trailing dot of an absolute name. A name with an empty label is invalid,
/// and stays as it is.
fn undotted(host: &str) -> &str {
    host.strip_suffix('.').filter(|name| !name.is_empty() && !name.ends_with('.')).unwrap_or(host)
}

/// The address in a URL, if its host is an address instead of a name.
pub fn literal_address(url: &Url) -> Option<std::net::IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// Checks one extra header of a callback.
pub fn check_header(name: &str, value: &str) -> Result<(), CallbackFault> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err(CallbackFault::HeaderName);
    }
    if reserved_header(name) {
        return Err(CallbackFault::ReservedHeader);
    }
    let visible = value.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b));
    if visible && value.trim_matches([' ', '\t']).len() == value.len() {
        Ok(())
    } else {
        Err(CallbackFault::HeaderValue)
    }
}

/// Whether a header is reserved: for the connection, for the body, or for the headers that we
/// promise receivers.
pub fn reserved_header(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "connection",
        "content-encoding",
        "content-length",
        "content-range",
        "content-type",
        "expect",
        "host",
        "http2-settings",
        "idempotency-key",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    ];
    let name = name.to_ascii_lowercase();
    NAMES.contains(&name.as_str())
        || ["punctual-", "webhook-", "proxy-", ":"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_canonical_and_names_its_target() {
        for (text, url, target) in [
            ("http://example.com", "http://example.com/", "http://example.com:80"),
            ("HTTPS://Example.COM:443/a/../b?q=1#part", "https://example.com/b?q=1", "https://example.com:443"),
            ("http://example.com:8080/x", "http://example.com:8080/x", "http://example.com:8080"),
            ("http://2130706433/", "http://127.0.0.1/", "http://127.0.0.1:80"),
            ("http://0x7f.1/", "http://127.0.0.1/", "http://127.0.0.1:80"),
            ("http://[::FFFF:7f00:1]/", "http://[::ffff:7f00:1]/", "http://[::ffff:7f00:1]:80"),
            ("http://localhost.:81/", "http://localhost.:81/", "http://localhost:81"),
            ("https://Example.COM./a", "https://example.com./a", "https://example.com:443"),
            ("http://example.com\u{3002}/", "http://example.com./", "http://example.com:80"),
            ("http://127.0.0.1./", "http://127.0.0.1/", "http://127.0.0.1:80"),
            ("http://a../", "http://a../", "http://a..:80"),
            ("http://./", "http://./", "http://.:80"),
            (
                "http://b\u{fc}cher.example/\u{fc}",
                "http://xn--bcher-kva.example/%C3%BC",
                "http://xn--bcher-kva.example:80",
            ),
        ] {
            assert_eq!(target_of(text), Ok((url.to_owned(), target.to_owned())), "{text}");
        }
    }

    /// An address with a trailing dot is the same address to every reader.
    #[test]
    fn a_dot_at_the_end_hides_no_address() {
        for host in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "0x7f.1", "2130706433", "0177.0.0.1", "0"] {
            let address = |text: String| {
                let (url, target) = target_of(&text).unwrap();
                (literal_address(&Url::parse(&url).unwrap()), target)
            };
            let without = address(format!("http://{host}/"));
            assert!(without.0.is_some(), "{host}");
            assert_eq!(address(format!("http://{host}./")), without);
        }
    }

    #[test]
    fn a_canonical_url_stays_as_it_is() {
        let once = target_of("https://Example.com:8443/\u{e9}?a='b\"").unwrap();
        assert_eq!(target_of(&once.0), Ok(once));
    }

    #[test]
    fn an_invalid_callback_is_refused() {
        use CallbackFault::{NotAUrl, Port, Scheme, TooLong, UserInfo};
        let long = format!("http://h/{}", "a".repeat(limits::URL));
        let grows = format!("http://h/{}", "\u{e9}".repeat(limits::URL / 2));
        for (text, fault) in [
            ("", NotAUrl),
            ("/relative", NotAUrl),
            ("example.com/x", NotAUrl),
            ("http://", NotAUrl),
            ("http:example.com", NotAUrl),
            ("http:/example.com", NotAUrl),
            ("http:///example.com", NotAUrl),
            ("http:\\\\example.com", NotAUrl),
            ("http://example.com\\@127.0.0.1/", NotAUrl),
            ("//example.com/", NotAUrl),
            ("https://:443/", NotAUrl),
            ("http://exa mple.com/", NotAUrl),
            ("http://example.com/\n", NotAUrl),
            ("http://exam\tple.com/", NotAUrl),
            ("http://example.com/\0", NotAUrl),
            ("http://[fe80::1%25eth0]/", NotAUrl),
            ("http://256.256.256.256/", NotAUrl),
            ("http://h:65536/", NotAUrl),
            ("http://h:0/", Port),
            ("ftp://example.com/", Scheme),
            ("file:///etc/passwd", Scheme),
            ("javascript:alert(1)", Scheme),
            ("http://user@example.com/", UserInfo),
            ("http://user:secret@example.com/", UserInfo),
            ("http://:secret@example.com/", UserInfo),
            ("http://example.com@127.0.0.1/", UserInfo),
            (&long, TooLong),
            (&grows, TooLong),
        ] {
            assert_eq!(target_of(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn our_headers_and_those_of_the_connection_are_reserved() {
        for name in [
            "Host",
            "content-length",
            "Content-Type",
            "TE",
            "Transfer-Encoding",
            "connection",
            "Upgrade",
            "Proxy-Authorization",
            "Proxy-Connection",
            "Keep-Alive",
            "Expect",
            "user-agent",
            "traceparent",
            "Idempotency-Key",
            "Punctual-Task-Id",
            "PUNCTUAL-anything",
            "webhook-signature",
            "Webhook-Id",
            ":authority",
        ] {
            assert!(reserved_header(name), "{name}");
        }
        for name in ["Authorization", "X-Api-Key", "Accept", "Cookie", "Punctual", "My-Webhook-Id", "Hostess"] {
            assert!(!reserved_header(name), "{name}");
        }
    }

    #[test]
    fn a_header_cannot_smuggle_another() {
        use CallbackFault::{HeaderName, HeaderValue, ReservedHeader};
        assert_eq!(check_header("X-Team", "billing; \"a\"\tb"), Ok(()));
        assert_eq!(check_header("X-Empty", ""), Ok(()));
        for (name, value, fault) in [
            ("", "v", HeaderName),
            ("X Y", "v", HeaderName),
            ("X:Y", "v", HeaderName),
            ("X\r\nHost", "v", HeaderName),
            ("\u{dc}", "v", HeaderName),
            ("Host", "v", ReservedHeader),
            ("X", "a\r\nHost: b", HeaderValue),
            ("X", "a\nb", HeaderValue),
            ("X", "a\0b", HeaderValue),
            ("X", "a\u{7f}", HeaderValue),
            ("X", "\u{e9}", HeaderValue),
            ("X", " v", HeaderValue),
            ("X", "v\t", HeaderValue),
        ] {
            assert_eq!(check_header(name, value), Err(fault), "{name:?}: {value:?}");
        }
    }
}
