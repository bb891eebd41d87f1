//! TLS to a real server: which certificates are accepted, and the errors for the others.

use std::sync::Arc;

use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::NodeId;
use punctual_testkit::certificates::{Authority, Certificate, CertificateSpec};
use punctual_testkit::fixtures::{START, task};
use punctual_testkit::postgres::{Postgres, execute};
use tempfile::TempDir;

use super::super::{ConnectError, Options, PostgresClock, PostgresStore};
use super::{Migrator, complete, insert, lease};

/// A server with a certificate for `names`, and the files of an authority that has signed it and of
/// one that has not.
struct Secure {
    server: Postgres,
    files: TempDir,
}

impl Secure {
    async fn start(names: &[&str]) -> Self {
        let (server, authority) = (Postgres::start().await, Authority::new("a root"));
        server.speak_tls(&authority.issue(names)).await;
        let files = tempfile::tempdir().unwrap();
        authority.write_root(&files.path().join("root.crt"));
        Authority::new("another root").write_root(&files.path().join("other.crt"));
        Self { server, files }
    }

    fn root(&self) -> String {
        self.files.path().join("root.crt").display().to_string()
    }

    fn other_root(&self) -> String {
        self.files.path().join("other.crt").display().to_string()
    }

    /// Whether a connection with these parameters is encrypted.
    async fn connects(&self, parameters: &str) -> Result<bool, ConnectError> {
        let url = format!("{}?{parameters}&application_name=asked", self.server.url("postgres"));
        let _database = Migrator::connect(&url).await?;
        let sql = "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = 'asked'";
        Ok(self.server.execute(sql).await == [[Some("t".to_owned())]])
    }

    async fn refused(&self, parameters: &str) -> String {
        self.connects(parameters).await.expect_err(parameters).to_string()
    }
}

#[tokio::test]
async fn each_sslmode_checks_what_it_promises() {
    let secure = Secure::start(&["127.0.0.1"]).await;
    let (root, other) = (secure.root(), secure.other_root());
    assert!(!secure.connects("sslmode=disable").await.unwrap());
    for parameters in ["", "sslmode=prefer", "sslmode=require"] {
        assert!(secure.connects(parameters).await.unwrap(), "{parameters} encrypts");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        assert!(secure.connects(&format!("sslmode={mode}&sslrootcert={root}")).await.unwrap(), "{mode}");
        let error = secure.refused(&format!("sslmode={mode}&sslrootcert={other}")).await;
        let port = secure.server.port();
        assert_eq!(
            error,
            format!(
                "the certificate of PostgreSQL at 127.0.0.1:{port}/postgres is not accepted: no root that is trusted has \
                 signed it; name the file with its root in sslrootcert"
            )
        );
    }
    let error = secure.refused("sslmode=verify-full&sslrootcert=system").await;
    assert!(error.contains("sslrootcert"), "{error}");
}

#[tokio::test]
async fn only_verify_full_checks_the_host() {
    let secure = Secure::start(&["db.example", "127.0.0.2"]).await;
    let root = secure.root();
    for mode in ["require", "verify-ca"] {
        assert!(secure.connects(&format!("sslmode={mode}&sslrootcert={root}")).await.unwrap(), "{mode}");
    }
    let error = secure.refused(&format!("sslmode=verify-full&sslrootcert={root}")).await;
    assert!(error.contains("it is for another host; connect by a name that it has"), "{error}");
}

#[tokio::test]
async fn a_server_without_tls_is_refused_if_tls_is_required() {
    let server = Postgres::start().await;
    let (url, port) = (server.url("postgres"), server.port());
    Migrator::connect(&url).await.unwrap();
    let error = Migrator::connect(&format!("{url}?sslmode=require")).await.err().unwrap().to_string();
    let server = format!("PostgreSQL at 127.0.0.1:{port}/postgres");
    let advice = "turn `ssl` on there, or say sslmode=disable if the network in between can be trusted";
    assert_eq!(error, format!("{server} does not speak TLS, which sslmode asks for: {advice}"));
}

/// The server refuses unencrypted connections of this user, so any kind that is not encrypted
/// fails.
#[tokio::test]
async fn every_connection_is_secure() {
    let secure = Secure::start(&["127.0.0.1"]).await;
    let user = secure.server.user_of_tls().await;
    let plain = secure.server.create_database().await;
    let url = plain.replace("postgres@", &format!("{user}@"));
    let url = format!("{url}?sslmode=verify-full&sslrootcert={}", secure.root());
    Migrator::connect(&url).await.unwrap().up(START).await.unwrap();
    assert!(PostgresClock::connect(&url).await.unwrap().now() > START);
    let clock = Arc::new(ManualClock::new(START));
    let store = PostgresStore::connect(&url, clock.clone(), NodeId::new(7), Options::default()).await.unwrap();
    let other = PostgresStore::connect(&url, clock, NodeId::new(8), Options::default()).await.unwrap();
    let mut wakes = other.wakes();
    store.check().await.unwrap();
    store.upkeep(START).await.unwrap();
    let stored = insert(&store, task()).await;
    assert!(wakes.next().await.is_some(), "the listener listens");
    let running = lease(&store, &stored, 1).await.pop().unwrap();
    assert!(complete(&store, &running).await);
    let open = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE application_name = 'punctual'";
    let counted = execute(&plain, open).await.remove(0);
    assert_eq!(counted[0], counted[1]);
    assert!(counted[0].as_deref().is_some_and(|count| count.parse::<usize>().unwrap() > 8), "{counted:?}");
}

/// The server asks for a certificate that has the user's name.
#[tokio::test]
async fn a_server_can_ask_for_a_certificate() {
    let (server, authority) = (Postgres::start().await, Authority::new("a root"));
    server.speak_tls(&authority.issue(&["127.0.0.1"])).await;
    let user = server.user_of_certificate(&authority.root()).await;
    let files = tempfile::tempdir().unwrap();
    authority.write_root(&files.path().join("root.crt"));
    let base = server.url("postgres").replace("postgres@", &format!("{user}@"));
    let base = format!("{base}?sslmode=verify-full&sslrootcert={}", files.path().join("root.crt").display());
    let spec = |common_name| CertificateSpec { common_name, ..CertificateSpec::default() };
    let shows = async |name: &str, certificate: Certificate| {
        let (cert, key) = certificate.write(files.path(), name);
        let url = format!("{base}&sslcert={}&sslkey={}", cert.display(), key.display());
        Migrator::connect(&url).await.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(shows("good", authority.issue_as(spec(user))).await, Ok(()));
    let of_another = shows("another", authority.issue_as(spec("postgres"))).await.unwrap_err();
    assert!(of_another.contains("refuses the user or its password"), "{of_another}");
    let none = Migrator::connect(&base).await.map(drop).unwrap_err().to_string();
    assert!(none.contains("connection requires a valid client certificate"), "{none}");
    let expired = shows("expired", authority.issue_as(CertificateSpec { is_expired: true, ..spec(user) })).await;
    let stranger = shows("stranger", Authority::new("another root").issue_as(spec(user))).await;
    for (refused, why) in
        [(expired, "it has expired; renew it"), (stranger, "no root in ssl_ca_file there has signed it")]
    {
        let refused = refused.unwrap_err();
        assert!(
            refused.contains("does not accept the certificate of this node") && refused.ends_with(why),
            "{refused}"
        );
    }
}
