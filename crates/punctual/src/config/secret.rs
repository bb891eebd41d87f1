//! The address of a server. It may hold a password, so it is shown without it.

use std::fmt;

/// A URL whose password is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The URL, as it was given.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// The whole URL, to connect with.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&masked(&self.0))
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `text` without the password and the query, if it is a URL: drivers take passwords in both. Parts
/// that may belong to a password with unescaped special characters are not shown either.
pub fn masked(text: &str) -> String {
    if !text.contains("://") {
        return text.to_owned();
    }
    let Some((scheme, rest)) = split_scheme(text) else { return "…".to_owned() };
    // A password may contain @, / and ?; the name of a server does not.
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    let (servers, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let is_clear = user.is_none_or(|user| !user.contains('?'))
        && servers.split(',').all(is_server)
        && path.chars().all(|one| is_plain(one) || one == '/');
    let user = match user.map(|user| (user, user.split_once(':'))) {
        None => String::new(),
        Some((name, None)) if name.chars().all(is_plain) => format!("{name}@"),
        Some((_, Some((name, _)))) if name.chars().all(is_plain) => format!("{name}:…@"),
        Some(_) => "…@".to_owned(),
    };
    if is_clear { format!("{scheme}://{user}{servers}{path}{query}") } else { format!("{scheme}://…") }
}

/// The scheme of a URL and the rest; none if the text has no scheme.
pub fn split_scheme(text: &str) -> Option<(&str, &str)> {
    text.split_once("://").filter(|(scheme, _)| scheme.chars().all(|one| one.is_ascii_alphanumeric()))
}

/// Whether `text` is a name or an address, with or without a port.
fn is_server(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':').filter(|_| !text.ends_with(']')) {
        Some((host, port)) => (host, port),
        None => (text, ""),
    };
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.chars().all(|one| is_plain(one) || one == ':'),
        None => host.chars().all(is_plain),
    };
    is_host && port.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_plain(one: char) -> bool {
    one.is_alphanumeric() || "-._~%".contains(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("sqlite", "sqlite"),
            ("postgres://db", "postgres://db"),
            ("postgres://app@db:5432/punctual", "postgres://app@db:5432/punctual"),
            ("postgres://app:hunter2@db/punctual", "postgres://app:…@db/punctual"),
            ("postgres://app:hun@ter2@db/punctual", "postgres://app:…@db/punctual"),
            ("postgres://app:hunter2@db?password=hunter2", "postgres://app:…@db?…"),
            ("postgres:///punctual?host=/run&user=app&password=hunter2", "postgres:///punctual?…"),
            ("postgres://app:hun/ter2/hunter2@db:1,[::1]:2/punctual", "postgres://app:…@db:1,[::1]:2/punctual"),
            ("postgres://app:hunter2?hunter2@db/punctual", "postgres://…"),
            ("postgres://app@db/punctual?password=x@hunter2", "postgres://…"),
            ("postgres:///punctual?user=a@b&password=hunter2", "postgres://…"),
            ("postgres://app/hunter2@db/punctual", "postgres://…@db/punctual"),
            ("postgres://app:hunter2", "postgres://…"),
            ("postgres://db/punctual&password=hunter2", "postgres://…"),
            ("app:hunter2@db/postgres://", "…"),
        ] {
            assert_eq!(SecretUrl::new(url).to_string(), shown);
            assert!(!format!("{:?}", SecretUrl::new(url)).contains("hunter2"));
        }
    }
}
