//! The address of a server, which may hold a password: shown only without it.

use std::fmt;

/// A URL that is not printed as it is.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

impl SecretUrl {
    /// The URL, as it was given.
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    /// All of it, for whoever connects.
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

/// `text` without the password and the query of the URL that it may be: drivers take passwords in both.
pub fn masked(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?…"));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // A password may hold an @ of its own, the server's name does not.
    let (user, server) = authority.rsplit_once('@').map_or((None, authority), |(user, server)| (Some(user), server));
    let user = match user.map(|user| user.split_once(':')) {
        None => String::new(),
        Some(None) => format!("{}@", user.unwrap_or_default()),
        Some(Some((name, _))) => format!("{name}:…@"),
    };
    format!("{scheme}://{user}{server}{path}{query}")
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
        ] {
            assert_eq!(SecretUrl::new(url).to_string(), shown);
            assert!(!format!("{:?}", SecretUrl::new(url)).contains("hunter2"));
        }
    }
}
