//! The product over TLS: its own certificate, those of its clients, and new ones while it runs; and
//! the listener for operators.

use std::path::PathBuf;
use std::time::Duration;

use punctual_testkit::certificates::{Authority, Certificate, CertificateSpec, CertificateUsage};
use punctual_testkit::eventually::eventually;
use punctual_testkit::http::{ApiClient, raw};
use punctual_testkit::process::Serve;
use serde_json::json;

use crate::it::world::{SOON, World};

/// The files of a node's certificate, and their authority.
struct Identity {
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Identity {
    fn new() -> Self {
        let identity = Self { authority: Authority::new("a root"), folder: tempfile::tempdir().expect("a folder") };
        identity.renew(&identity.authority);
        identity
    }

    /// Replaces the certificate with a new one of `authority`.
    fn renew(&self, authority: &Authority) {
        authority.issue(&["127.0.0.1"]).write(self.folder.path(), "node");
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn set(&self, serve: Serve) -> Serve {
        let path = |name: &str| self.file(name).display().to_string();
        serve.setting("TLS__CERT_FILE", &path("node.crt")).setting("TLS__KEY_FILE", &path("node.key"))
    }

    fn client(&self, world: &World) -> ApiClient {
        ApiClient::over_tls(world.server.url(), &self.authority.root(), None)
    }
}

/// The metrics of a node, once they have this line.
async fn until_measured(api: &ApiClient, line: &str) {
    eventually(line, SOON, async || {
        let metrics = api.get("/metrics").await.text().to_owned();
        if metrics.lines().any(|other| other.starts_with(line)) { Ok(()) } else { Err(metrics) }
    })
    .await;
}

#[tokio::test]
async fn a_node_serves_over_tls_alone() {
    let identity = Identity::new();
    let world = World::start_with(|serve| identity.set(serve)).await;
    assert!(world.server.url().starts_with("https://127.0.0.1:"), "{}", world.server.url());
    let api = identity.client(&world);
    let created = api.post("/v1/tasks", &json!({"type": "t", "queue": "q"})).await;
    created.expect(201);
    assert_eq!(created.header("strict-transport-security"), Some("max-age=31536000"));
    assert_eq!(created.header("cache-control"), Some("no-store"));
    let plain = raw(world.server.address(), "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(plain.status, 400, "{plain:?}");
    let stranger = ApiClient::over_tls(world.server.url(), &Authority::new("a root").root(), None);
    assert!(stranger.call("GET", "/healthz").try_send().await.is_err());
    for line in ["punctual_tls_handshakes_total{outcome=\"completed\"} 1", "punctual_tls_certificate_expiry_seconds{} "]
    {
        until_measured(&api, line).await;
    }
}

#[tokio::test]
async fn clients_show_their_certificates() {
    let (identity, clients) = (Identity::new(), Authority::new("clients"));
    clients.write_root(&identity.file("clients.crt"));
    let world = World::start_with(|serve| {
        let roots = identity.file("clients.crt").display().to_string();
        identity.set(serve).setting("TLS__CLIENT_AUTH", "required").setting("TLS__CLIENT_CA_FILE", &roots)
    })
    .await;
    let spec =
        CertificateSpec { common_name: "billing", usage: CertificateUsage::Client, ..CertificateSpec::default() };
    let with = async |certificate: Option<&Certificate>| {
        let api = ApiClient::over_tls(world.server.url(), &identity.authority.root(), certificate);
        api.call("GET", "/v1/tasks").try_send().await.ok().map(|reply| reply.status())
    };
    assert_eq!(with(Some(&clients.issue_as(spec))).await, Some(200));
    let expired = clients.issue_as(CertificateSpec { is_expired: true, ..spec });
    let stranger = Authority::new("clients").issue_as(spec);
    for refused in [None, Some(&expired), Some(&stranger)] {
        assert_eq!(with(refused).await, None, "{refused:?}");
    }
}

#[tokio::test]
async fn a_new_certificate_is_taken_while_it_runs() {
    let identity = Identity::new();
    let mut world = World::start_with(|serve| identity.set(serve)).await;
    let old = identity.client(&world);
    old.get("/healthz").await.expect(200);
    // A certificate without its key.
    let successor = Authority::new("the next root");
    let other = successor.issue(&["127.0.0.1"]);
    std::fs::write(identity.file("node.crt"), &other.certificate).unwrap();
    until_measured(&old, "punctual_tls_reloads_total{outcome=\"refused\"} 1").await;
    world.server.until_logged(&["the old certificate stays in use", "is not that of the first certificate"]).await;
    identity.client(&world).get("/healthz").await.expect(200);
    assert!(!world.server.log().contains("PRIVATE KEY"));

    std::fs::write(identity.file("node.key"), &other.key).unwrap();
    let new = ApiClient::over_tls(world.server.url(), &successor.root(), None);
    eventually("new connections get the new certificate", SOON, async || {
        new.call("GET", "/healthz").try_send().await.map(drop).map_err(|error| format!("{error:?}"))
    })
    .await;
    // Its connection began before.
    old.get("/healthz").await.expect(200);
    assert!(identity.client(&world).call("GET", "/healthz").try_send().await.is_err());

    identity.renew(&identity.authority);
    world.server.process().signal("HUP");
    eventually("an operator can ask for it", SOON, async || {
        identity.client(&world).call("GET", "/healthz").try_send().await.map(drop).map_err(|error| format!("{error:?}"))
    })
    .await;
    old.get("/healthz").await.expect(200);
    new.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn bad_files_are_one_sentence_at_the_start() {
    let identity = Identity::new();
    let home = tempfile::tempdir().unwrap();
    let serve = || Serve::new(crate::it::world::PUNCTUAL, home.path().join("data"));
    let other = Identity::new();
    let mixed = other.set(serve()).setting("TLS__CERT_FILE", &identity.file("node.crt").display().to_string());
    let asks = identity.set(serve()).setting("TLS__CLIENT_AUTH", "optional");
    for (serve, sentence) in [
        (mixed, "is not that of the first certificate in tls.cert_file"),
        (
            identity.set(serve()).setting("TLS__CERT_FILE", "/nowhere/node.crt"),
            "tls.cert_file (/nowhere/node.crt) cannot be read",
        ),
        (serve().setting("TLS__CERT_FILE", "node.crt"), "needs tls.key_file, the private key of that certificate"),
        (serve().setting("TLS__KEY_FILE", "node.key"), "needs tls.cert_file, the certificate of that key"),
        (asks, "needs tls.client_ca_file, the roots that have signed the certificates of clients"),
    ] {
        let exit = serve.fail(Duration::from_secs(30)).await;
        assert_eq!((exit.code, exit.stdout.as_str(), exit.stderr.lines().count()), (Some(1), "", 1), "{exit}");
        assert!(exit.stderr.contains(sentence), "{exit}");
    }
}

/// It serves clients that do not look, and the node can be restarted before the renewal.
#[tokio::test]
async fn an_expired_certificate_is_warned_of() {
    let identity = Identity::new();
    let spec = CertificateSpec { names: &["127.0.0.1"], is_expired: true, ..CertificateSpec::default() };
    identity.authority.issue_as(spec).write(identity.folder.path(), "node");
    let world = World::start_with(|serve| identity.set(serve)).await;
    world.server.until_logged(&["the certificate in tls.cert_file has expired"]).await;
    assert!(identity.client(&world).call("GET", "/healthz").try_send().await.is_err());
}

/// What is for operators is at their listener only; what is for both, at both.
#[tokio::test]
async fn operators_can_have_a_listener_of_their_own() {
    const FOR_OPERATORS: [&str; 4] = ["/metrics", "/v1/admin/nodes", "/v1/admin/partitions", "/v1/admin/breakers"];
    for roles in ["api,scheduler,worker,leader", "leader"] {
        let world =
            World::start_with(|serve| serve.arg("--roles").arg(roles).setting("ADMIN__LISTEN", "127.0.0.1:0")).await;
        let (clients, operators) = (world.caller().api, ApiClient::new(&world.server.operators_url()));
        let has_api = roles.contains("api");
        for path in FOR_OPERATORS {
            clients.get(path).await.problem_code(404, "not_found");
            let is_served = has_api || path == "/metrics";
            assert_eq!(operators.get(path).await.status(), if is_served { 200 } else { 404 }, "{path} with {roles}");
        }
        for path in ["/healthz", "/readyz"] {
            assert_eq!(clients.get(path).await.status(), 200);
            assert_eq!(operators.get(path).await.status(), 200);
        }
        let tasks = "/v1/tasks";
        assert_eq!(clients.get(tasks).await.status(), if has_api { 200 } else { 404 });
        operators.get(tasks).await.problem_code(404, "not_found");
        let calls = clients.get("/").await.expect(200)["calls"].to_string();
        assert!(!calls.contains("/metrics") && !calls.contains("/v1/admin"), "{calls}");
        assert!(operators.get("/").await.expect(200)["calls"].to_string().contains("/metrics"));
    }
}

/// Webhooks go to neither listener of their node, and operators' is under TLS, too.
#[tokio::test]
async fn the_listener_of_operators_is_guarded_alike() {
    let identity = Identity::new();
    let world = World::start_with(|serve| identity.set(serve).setting("ADMIN__LISTEN", "127.0.0.1:0")).await;
    let url = world.server.operators_url();
    let operators = ApiClient::over_tls(&url, &identity.authority.root(), None);
    let health = operators.get("/healthz").await;
    health.expect(200);
    assert!(health.header("strict-transport-security").is_some(), "{health}");
    let task = json!({"type": "t", "callback_url": format!("{url}/v1/admin/nodes")});
    identity.client(&world).post("/v1/tasks", &task).await.problem(422);
}

#[tokio::test]
async fn an_address_has_a_bounded_number_of_connections() {
    let world = World::start_with(|serve| serve.setting("LIMITS__CONNECTIONS_PER_ADDRESS", "3")).await;
    let api = world.caller().api;
    api.get("/healthz").await.expect(200);
    let connect = async || tokio::net::TcpStream::connect(world.server.address()).await.unwrap();
    let _held = [connect().await, connect().await];
    let mut refused = connect().await;
    let mut end = Vec::new();
    // It may be reset.
    drop(tokio::io::AsyncReadExt::read_to_end(&mut refused, &mut end).await);
    assert_eq!(end, b"");
    until_measured(&api, "punctual_connections_refused_total{reason=\"address\"} 1").await;
}
