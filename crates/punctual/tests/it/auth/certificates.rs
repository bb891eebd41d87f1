//! Callers that show a certificate when they connect.

use punctual_testkit::certificates::{Authority, CertificateSpec, CertificateUsage};
use punctual_testkit::http::ApiClient;
use punctual_testkit::process::Serve;
use serde_json::json;

use super::{guarded, init, new_key, path};
use crate::it::world::PUNCTUAL;

#[tokio::test]
async fn a_certificate_stands_for_a_tenant_and_a_role() {
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name);
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    servers.issue(&["127.0.0.1"]).write(home.path(), "node");
    clients.write_root(&file("clients.crt"));
    let data = file("data");
    let admin_key = init(&["--data", path(&data)]);
    let rules = "dns:worker.acme.example=acme/worker,uri:spiffe://acme/ops=acme/operator,subject:CN=board=other/viewer";
    let server = guarded(Serve::new(PUNCTUAL, &data))
        .setting("TLS__CERT_FILE", path(&file("node.crt")))
        .setting("TLS__KEY_FILE", path(&file("node.key")))
        .setting("TLS__CLIENT_AUTH", "optional")
        .setting("TLS__CLIENT_CA_FILE", path(&file("clients.crt")))
        .setting("AUTH__CERTIFICATES", rules)
        .start()
        .await;
    let spec = CertificateSpec { usage: CertificateUsage::Client, ..CertificateSpec::default() };
    let caller = |spec: Option<CertificateSpec<'_>>| {
        let certificate = spec.map(|spec| clients.issue_as(spec));
        ApiClient::over_tls(server.url(), &servers.root(), certificate.as_ref())
    };
    for (spec, tenant, role) in [
        (CertificateSpec { names: &["worker.acme.example"], ..spec }, "acme", "worker"),
        (CertificateSpec { names: &["spiffe://acme/ops"], ..spec }, "acme", "operator"),
        (CertificateSpec { common_name: "board", ..spec }, "other", "viewer"),
    ] {
        let own = caller(Some(spec));
        let shown = own.get("/v1/whoami").await.expect(200);
        assert_eq!([&shown["tenant"], &shown["role"]], [&json!(tenant), &json!(role)]);
        own.get("/v1/admin/tenants").await.problem_code(403, "forbidden");
    }
    for spec in [
        None,
        Some(CertificateSpec { names: &["other.acme.example"], ..spec }),
        Some(CertificateSpec { common_name: "worker.acme.example", ..spec }),
    ] {
        caller(spec).get("/v1/whoami").await.problem_code(401, "unauthenticated");
    }
    // A header cannot stand in for a certificate, and a key goes first.
    let spoofed = caller(None).call("GET", "/v1/whoami").header("x-client-cert", "CN=board").send().await;
    spoofed.problem_code(401, "unauthenticated");
    let admin = caller(None).key(&admin_key);
    let (_, key) = new_key(&admin, "default", json!({"role": "viewer"})).await;
    let both = caller(Some(CertificateSpec { names: &["spiffe://acme/ops"], ..spec })).key(&key);
    assert_eq!(both.get("/v1/whoami").await.expect(200)["tenant"], "default");
}
