//! The address of a PostgreSQL server, read from a URL. The only place that connects.
//!
//! The writers, the reads, the leases, the clock, the listener and the migrations all connect
//! through [`Address::connect`], so that the TLS parameters of the URL hold for each of them.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use tokio_postgres::config::Host;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::ConnectError;
use super::client_identity::ClientIdentityFiles;
use super::lineage::Lineage;
use super::session::CONNECT_TIMEOUT;
use super::tls::{self, TlsMode};
use crate::connection_counts::ConnectionCounts;
use crate::postgres::fault::{Fault, describe};

/// The parameters that a URL may have.
const PARAMETERS: [&str; 22] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "user",
    "password",
    "dbname",
    "host",
    "hostaddr",
    "port",
    "options",
    "application_name",
    "connect_timeout",
    "tcp_user_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "target_session_attrs",
    "channel_binding",
    "load_balance_hosts",
    "sslnegotiation",
];

/// The error for a URL that the driver would split in the wrong places. It shows no part of the
/// URL, since that may be part of the password.
const UNESCAPED: &str = "it is unclear where its password ends and its host begins; write an @ that is part of the user \
                         or the password as %40, a / as %2F, a : as %3A and a ? as %3F";

/// A connection; a task must drive it.
pub(crate) type Wire = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// The address of a database (see the module).
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) config: Config,
    connector: MakeRustlsConnect,
    /// Whether a server's certificate is checked.
    pub(super) is_verified: bool,
    /// The newest primary that was found there.
    pub lineage: Arc<Lineage>,
    /// The connections to it.
    pub connections: Arc<ConnectionCounts>,
}

impl Address {
    /// Parses a URL.
    pub(crate) fn parse(url: &str) -> Result<Self, ConnectError> {
        let UrlParts { bare, mode, roots, identity } = UrlParts::of(url).map_err(ConnectError::Url)?;
        let mut config: Config =
            bare.parse().map_err(|error: tokio_postgres::Error| ConnectError::Url(describe(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(ConnectError::Url("it names no host; write postgres://USER@HOST/DATABASE".to_owned()));
        }
        if !config.get_hosts().iter().all(is_name) {
            return Err(ConnectError::Url(UNESCAPED.to_owned()));
        }
        let is_local = config.get_hosts().iter().all(|host| !matches!(host, Host::Tcp(_)));
        let is_local = is_local && !config.get_hosts().is_empty();
        // PostgreSQL does not encrypt a Unix socket, which stays on this machine.
        let mode_of_driver = if is_local { TlsMode::Disable } else { mode }.of_driver();
        config.ssl_mode(mode_of_driver);
        let connector = tls::connector(mode, roots.as_deref(), identity.as_ref()).map_err(ConnectError::Url)?;
        // Without roots there is nothing to check a certificate against, whatever the mode.
        let is_verified = roots.is_some();
        Ok(Self { config, connector, is_verified, lineage: Arc::default(), connections: Arc::default() })
    }

    /// Connects with the URL's settings and those that `configure` adds.
    pub(crate) async fn connect(&self, configure: impl FnOnce(&mut Config)) -> Result<(Client, Wire), Fault> {
        let mut config = self.config.clone();
        configure(&mut config);
        timeout(CONNECT_TIMEOUT, config.connect(self.connector.clone()))
            .await
            .map_err(|_| Fault::Silent)?
            .map_err(Fault::from)
    }
}

/// Host, port and database only: a URL has a password in it.
impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let config = &self.config;
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            #[cfg(unix)]
            Some(Host::Unix(path)) => path.display().to_string(),
            None => config.get_hostaddrs().first().map(ToString::to_string).unwrap_or_default(),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
        // A parameter that lost its question mark may be a password.
        let database = if database.contains(['@', '&', '=']) { "…" } else { database };
        write!(f, "{host}:{port}/{database}")
    }
}

/// Whether it may be the name of a host, rather than part of a password.
fn is_name(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name.chars().all(|one| one.is_alphanumeric() || "-._:%".contains(one)),
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// A URL without the parameters that the driver does not know.
#[derive(Debug, PartialEq, Eq)]
struct UrlParts {
    bare: String,
    mode: TlsMode,
    roots: Option<String>,
    identity: Option<ClientIdentityFiles>,
}

impl UrlParts {
    fn of(url: &str) -> Result<Self, String> {
        // The driver reads everything before the first @ as user and password.
        let begin = url.find('@').unwrap_or(0);
        let mark = url[begin..].find('?').map(|at| begin + at);
        let behind = url[begin..].strip_prefix('@').unwrap_or_default();
        let is_cut = url[begin..mark.unwrap_or(url.len())].matches('@').count() > 1;
        if is_cut {
            return Err(UNESCAPED.to_owned());
        }
        let Some(mark) = mark else {
            return Ok(Self { bare: url.to_owned(), mode: TlsMode::default(), roots: None, identity: None });
        };
        let (mut mode, mut roots, mut others) = (TlsMode::default(), None, Vec::new());
        let (mut cert, mut key) = (None, None);
        for pair in url[mark + 1..].split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = percent_decode_str(name).decode_utf8_lossy();
            let value = percent_decode_str(value).decode_utf8_lossy();
            match name.as_ref() {
                "sslmode" => mode = TlsMode::parse(&value)?,
                "sslrootcert" => roots = Some(value.into_owned()),
                "sslcert" => cert = Some(value.into_owned()),
                "sslkey" => key = Some(value.into_owned()),
                known if PARAMETERS.contains(&known) => others.push(pair),
                _ if behind.contains('@') => return Err(UNESCAPED.to_owned()),
                unknown => {
                    let known = PARAMETERS.join(", ");
                    return Err(format!("it has a parameter {unknown:?}, which is not known; there are {known}"));
                }
            }
        }
        let bare = match others.as_slice() {
            [] => url[..mark].to_owned(),
            some => format!("{}?{}", &url[..mark], some.join("&")),
        };
        Ok(Self { bare, mode, roots, identity: ClientIdentityFiles::of(cert, key)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, TlsMode, Option<String>) {
        let UrlParts { bare, mode, roots, identity } = UrlParts::of(url).unwrap();
        assert_eq!(identity, None);
        (bare, mode, roots)
    }

    #[test]
    fn tls_parameters_are_taken_out_of_the_url() {
        let bare = |text: &str| text.to_owned();
        assert_eq!(parts("postgres://u@h/d"), (bare("postgres://u@h/d"), TlsMode::Prefer, None));
        assert_eq!(parts("postgres://u@h/d?sslmode=require"), (bare("postgres://u@h/d"), TlsMode::Require, None));
        let url = "postgres://u:p@h:1/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fetc%2Fmy%20root.crt";
        let roots = Some("/etc/my root.crt".to_owned());
        assert_eq!(parts(url), (bare("postgres://u:p@h:1/d?connect_timeout=3"), TlsMode::VerifyFull, roots));
        let url = "postgres://u:what?sslmode=x@h/d?sslmode=disable";
        assert_eq!(parts(url), (bare("postgres://u:what?sslmode=x@h/d"), TlsMode::Disable, None));
    }

    #[test]
    fn the_client_certificate_is_taken_out_of_the_url() {
        let url = "postgres://u@h/d?sslmode=require&sslcert=%2Fmy.crt&port=1&sslkey=/my.key";
        let UrlParts { bare, identity, .. } = UrlParts::of(url).unwrap();
        let files = ClientIdentityFiles { cert: "/my.crt".to_owned(), key: "/my.key".to_owned() };
        assert_eq!((bare.as_str(), identity), ("postgres://u@h/d?port=1", Some(files)));
        assert!(UrlParts::of("postgres://u@h/d?sslkey=/my.key").is_err());
    }

    #[test]
    fn an_unknown_parameter_is_named_without_its_value() {
        let error = UrlParts::of("postgres://u:hunter2@h/d?sslcret=hunter2").unwrap_err();
        assert!(
            error.starts_with("it has a parameter \"sslcret\", which is not known; there are sslmode, "),
            "{error}"
        );
        assert!(!error.contains("hunter2"), "{error}");
        assert!(matches!(Address::parse("postgres://h/d?port=hunter2"), Err(ConnectError::Url(_))));
    }

    #[test]
    fn the_driver_knows_every_parameter() {
        for name in PARAMETERS.iter().filter(|name| !name.starts_with("ssl")) {
            let fault = format!("postgres://h/d?{name}=").parse::<Config>().err();
            let unknown = fault.is_some_and(|fault| describe(&fault).contains("unknown option"));
            assert!(!unknown, "{name}");
        }
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let address = Address::parse("postgres://app:hunter2@db:7000/punctual?sslmode=require").unwrap();
        assert_eq!(address.to_string(), "db:7000/punctual");
        let address = Address::parse("postgres://app:hun/ter2?@db/punctual&password=hunter2").unwrap();
        assert_eq!(address.to_string(), "db:5432/…");
    }

    #[test]
    fn a_url_that_would_be_split_in_its_password_is_refused() {
        for url in [
            "postgres://app:a@hunter2@db/punctual",
            "postgres://app:a@b/hunter2@db/punctual",
            "postgres://app:a@b?hunter2=@db/punctual",
            "postgres:///punctual?user=a@b&password=hunter2",
        ] {
            let error = Address::parse(url).err().expect(url).to_string();
            assert_eq!(error, format!("the store's URL cannot be read: {UNESCAPED}"));
        }
        let address = Address::parse("postgres://app:a%40hunter2@db/punctual").unwrap();
        assert_eq!(address.config.get_password(), Some(b"a@hunter2".as_slice()));
        assert!(Address::parse("postgres://app@[::1]:1,db.example/punctual?options=a@b").is_ok());
    }

    #[test]
    fn a_url_names_a_host() {
        for url in ["postgres://", "postgres://app@/punctual", "postgres:///punctual?user=app"] {
            let error = Address::parse(url).err().expect(url).to_string();
            assert!(error.ends_with("it names no host; write postgres://USER@HOST/DATABASE"), "{error}");
        }
        assert_eq!(Address::parse("postgres:///d?hostaddr=127.0.0.1").unwrap().to_string(), "127.0.0.1:5432/d");
        assert_eq!(Address::parse("postgres:///d?host=/run").unwrap().to_string(), "/run:5432/d");
    }
}
