//! What an operator should know of a URL before it is used: whose certificate is not verified, and
//! whether there is a password in it. `serve` warns of both when it starts.

use std::net::IpAddr;

use tokio_postgres::config::{Config, Host};

use super::address::Address;

/// The risks of a URL (see the module).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlRisks {
    /// A server on another machine whose certificate is not checked, without user and password.
    pub unverified: Option<String>,
    /// Whether the URL has a password in it.
    pub has_password: bool,
}

impl UrlRisks {
    /// The risks of `url`. A URL that cannot be read has none, since nobody can connect with it.
    pub fn of(url: &str) -> Self {
        let Ok(address) = Address::parse(url) else { return Self { unverified: None, has_password: false } };
        let is_unverified = !address.is_verified && is_remote(&address.config);
        Self {
            unverified: is_unverified.then(|| address.to_string()),
            has_password: address.config.get_password().is_some(),
        }
    }
}

/// Whether one of its servers is on another machine. Where a server has an address beside its name,
/// that is what is connected to.
fn is_remote(config: &Config) -> bool {
    let is_remote_name = |host: &Host| match host {
        Host::Tcp(name) => name != "localhost" && !name.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        #[cfg(unix)]
        Host::Unix(_) => false,
    };
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().any(is_remote_name),
        addresses => addresses.iter().any(|address| !address.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use punctual_testkit::certificates::Authority;

    use super::*;

    fn unverified(url: &str) -> Option<String> {
        UrlRisks::of(url).unverified
    }

    #[test]
    fn a_remote_server_without_a_checked_certificate_is_named() {
        let named = Some("db.example:5432/punctual".to_owned());
        for mode in ["", "?sslmode=disable", "?sslmode=prefer", "?sslmode=require"] {
            assert_eq!(unverified(&format!("postgres://app:hunter2@db.example/punctual{mode}")), named, "{mode}");
        }
        for url in ["postgres://10.0.0.1/d", "postgres://localhost,db/d", "postgres://localhost/d?hostaddr=10.0.0.1"] {
            assert!(unverified(url).is_some(), "{url}");
        }
    }

    #[test]
    fn a_checked_certificate_is_no_risk() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("root.crt");
        Authority::new("ours").write_root(&file);
        for mode in ["require", "verify-ca", "verify-full"] {
            let url = format!("postgres://db.example/d?sslmode={mode}&sslrootcert={}", file.display());
            assert!(Address::parse(&url).is_ok());
            assert_eq!(unverified(&url), None, "{mode}");
        }
    }

    #[test]
    fn a_server_on_this_machine_is_no_risk() {
        for host in ["localhost", "127.0.0.1", "127.9.9.9:7000", "[::1]", "%2Frun%2Fpostgresql"] {
            assert_eq!(unverified(&format!("postgres://app@{host}/d")), None, "{host}");
        }
        assert_eq!(unverified("postgres://db.example/d?hostaddr=127.0.0.1"), None);
        assert_eq!(unverified("postgres:///d?host=/run/postgresql"), None);
    }

    #[test]
    fn a_password_is_found_wherever_the_driver_takes_it() {
        let has_password = |url: &str| UrlRisks::of(url).has_password;
        assert!(has_password("postgres://app:hunter2@db/d") && has_password("postgres://app@db/d?password=hunter2"));
        assert!(!has_password("postgres://app@db/d") && !has_password("sqlite"));
    }
}
