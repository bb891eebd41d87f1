//! Handshakes: what is negotiated, whose certificates are accepted, and what a handler is told.

use std::io;
use std::time::{Duration, Instant};

use hyper_util::rt::{TokioExecutor, TokioIo};
use punctual_api::server::ServerLimits;
use punctual_api::server::tls::{ClientAuth, TlsFiles, TlsIdentity};
use punctual_testkit::certificates::{Authority, Certificate, CertificateSpec, CertificateUsage};
use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::it::harness::{GET, HANGS, Peer, Server, ServerTls, WIRES, client, quick, secure};

/// What the server says of a client with this certificate; an error if it lets it not in.
async fn who(server: &Server, identity: Option<&Certificate>) -> io::Result<String> {
    let root = server.tls.as_ref().unwrap().authority.root();
    let mut stream = secure(server.dial().await, &client(&root, identity, &["http/1.1"])).await?;
    // In TLS 1.3 a client learns only afterwards that its certificate is refused.
    stream.write_all(b"GET /who HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (_, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(body.to_owned())
}

fn spec(usage: CertificateUsage) -> CertificateSpec<'static> {
    CertificateSpec {
        common_name: "billing",
        names: &["billing.example", "spiffe://example/billing"],
        usage,
        is_expired: false,
    }
}

async fn asking(client_auth: ClientAuth, clients: &Authority) -> Server {
    let tls = ServerTls::new(client_auth, Some(clients));
    Server::start_with(ServerLimits::default(), Some(tls)).await
}

#[tokio::test]
async fn a_handler_is_told_who_the_client_is() {
    let clients = Authority::new("clients");
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let server = asking(client_auth, &clients).await;
        for usage in [CertificateUsage::Client, CertificateUsage::Any] {
            let told = who(&server, Some(&clients.issue_as(spec(usage)))).await.unwrap();
            for part in ["\"CN=billing\"", "[\"billing.example\"]", "[\"spiffe://example/billing\"]", "fingerprint"] {
                assert!(told.contains(part), "{part} in {told}");
            }
        }
    }
}

#[tokio::test]
async fn a_bad_client_certificate_ends_the_handshake() {
    let clients = Authority::new("clients");
    let expired = CertificateSpec { is_expired: true, ..spec(CertificateUsage::Client) };
    let bad = [
        ("expired", clients.issue_as(expired)),
        ("of another authority", Authority::new("clients").issue_as(spec(CertificateUsage::Client))),
        ("for servers only", clients.issue_as(spec(CertificateUsage::Server))),
    ];
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let server = asking(client_auth, &clients).await;
        for (what, certificate) in &bad {
            assert!(who(&server, Some(certificate)).await.is_err(), "{what}, {client_auth:?}");
        }
        let without = who(&server, None).await.ok();
        assert_eq!(without.as_deref(), (client_auth == ClientAuth::Optional).then_some("nobody"), "{client_auth:?}");
    }
}

#[tokio::test]
async fn without_client_auth_a_certificate_is_not_asked_for() {
    let server = Server::start_with(ServerLimits::default(), Some(ServerTls::new(ClientAuth::Off, None))).await;
    let certificate = Authority::new("clients").issue_as(spec(CertificateUsage::Client));
    assert_eq!(who(&server, Some(&certificate)).await.unwrap(), "nobody");
}

/// A resumed session would not show the certificate again.
#[tokio::test]
async fn sessions_are_resumed_only_if_nobody_is_asked_for_a_certificate() {
    let clients = Authority::new("clients");
    let certificate = clients.issue_as(spec(CertificateUsage::Client));
    for (client_auth, expected) in [
        (ClientAuth::Off, HandshakeKind::Resumed),
        (ClientAuth::Optional, HandshakeKind::Full),
        (ClientAuth::Required, HandshakeKind::Full),
    ] {
        let server = asking(client_auth, &clients).await;
        let root = server.tls.as_ref().unwrap().authority.root();
        let config = client(&root, Some(&certificate), &[]);
        // A ticket comes with the first answer.
        Peer(Box::new(secure(server.dial().await, &config).await.unwrap())).get().await;
        let again = secure(server.dial().await, &config).await.unwrap();
        assert_eq!(again.get_ref().1.handshake_kind(), Some(expected), "{client_auth:?}");
    }
}

#[tokio::test]
async fn a_client_notices_the_wrong_server() {
    let server = Server::on(WIRES[1], ServerLimits::default()).await;
    let stranger = client(&Authority::new("a root").root(), None, &[]);
    assert!(secure(server.dial().await, &stranger).await.is_err(), "another authority");
    let mut other = ServerTls::new(ClientAuth::Off, None);
    other.authority.issue(&["127.0.0.2"]).write(other.folder(), "node");
    other.identity = TlsIdentity::load(other.files.clone()).unwrap();
    let root = other.authority.root();
    let server = Server::start_with(ServerLimits::default(), Some(other)).await;
    let error = secure(server.dial().await, &client(&root, None, &[])).await.unwrap_err().to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn the_protocol_is_negotiated() {
    let server = Server::on(WIRES[1], ServerLimits::default()).await;
    let root = server.tls.as_ref().unwrap().authority.root();
    let offered = [(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)];
    for (protocols, expected) in offered {
        let stream = secure(server.dial().await, &client(&root, None, protocols)).await.unwrap();
        let agreed = stream.get_ref().1.alpn_protocol().map(|name| String::from_utf8_lossy(name).into_owned());
        assert_eq!(agreed.as_deref(), expected);
        if expected == Some("h2") {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(connection);
            let request = axum::http::Request::get("https://a/").body(axum::body::Body::empty()).unwrap();
            assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
            connection.abort();
        } else {
            Peer(Box::new(stream)).get().await;
        }
    }
    let unknown = secure(server.dial().await, &client(&root, None, &["spdy/1"])).await;
    assert!(unknown.is_err(), "no protocol in common");
}

#[tokio::test]
async fn plain_http_is_told_to_use_tls() {
    let server = Server::on(WIRES[1], ServerLimits::default()).await;
    let mut peer = Peer(Box::new(server.dial().await));
    peer.send(GET).await;
    let answer = peer.rest().await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("write https:// instead of http://"), "{answer}");
    assert!(answer.contains("\r\nrequest-id: ") && !answer.contains("strict-transport-security"), "{answer}");
}

/// Neither holds up the handshakes of others.
#[tokio::test]
async fn a_handshake_that_stops_is_closed_in_time() {
    let tls = ServerTls::new(ClientAuth::Off, None);
    let server = Server::start_with(quick(), Some(tls)).await;
    for beginning in [&b""[..], &[22], &[22, 3, 1, 2, 0, 1, 0, 1, 252]] {
        let began = Instant::now();
        let mut slow = Peer(Box::new(server.dial().await));
        slow.send(beginning).await;
        server.connect().await.get().await;
        assert_eq!(slow.rest_bytes().await, b"", "{beginning:?}");
        let closed = began.elapsed();
        assert!(closed >= Duration::from_millis(290) && closed < HANGS / 2, "{closed:?} after {beginning:?}");
    }
}

#[test]
fn a_bad_file_is_one_sentence() {
    let tls = ServerTls::new(ClientAuth::Off, None);
    let file = |name: &str, text: &str| {
        let file = tls.folder().join(name);
        std::fs::write(&file, text).unwrap();
        file
    };
    let good = tls.files.clone();
    let other = Authority::new("a root").issue(&["127.0.0.1"]);
    let (empty, key) = (file("empty.pem", ""), file("other.key", &other.key));
    let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let huge = file("huge.pem", &"#\n".repeat(1024 * 1024));
    let asking = TlsFiles { client_auth: ClientAuth::Required, ..good.clone() };
    for (files, sentence) in [
        (
            TlsFiles { cert: "/nowhere/node.crt".into(), ..good.clone() },
            "tls.cert_file (/nowhere/node.crt) cannot be read: ",
        ),
        (TlsFiles { cert: empty.clone(), ..good.clone() }, "has no certificate in it; it must be PEM"),
        (TlsFiles { cert: file("bad.crt", bad), ..good.clone() }, "has a certificate that cannot be read"),
        (TlsFiles { cert: huge, ..good.clone() }, "is larger than a mebibyte"),
        (TlsFiles { key: empty.clone(), ..good.clone() }, "has no private key in it; it must be PEM"),
        (TlsFiles { key, ..good }, "is not that of the first certificate in tls.cert_file"),
        (TlsFiles { client_ca: Some(empty), ..asking }, "tls.client_ca_file"),
    ] {
        let fault = TlsIdentity::load(files).err().expect(sentence).to_string();
        assert!(fault.contains(sentence) && fault.starts_with('t') && !fault.contains('\n'), "{fault}");
    }
}
