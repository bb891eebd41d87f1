//! What may not be called, in every way of writing it, and how often it was connected to: never.
//!
//! Each vector goes two ways. Submission refuses it if the URL itself tells. And it is called
//! without that check, as if the store had been edited by hand: the connector refuses it before it
//! opens a connection.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use parking_lot::Mutex;
use punctual_core::callback::literal_address;
use punctual_core::networks::AllowedNetworks;
use punctual_core::task::CallbackBody;
use punctual_submission::Faults;
use tokio::net::TcpListener;
use url::Url;

use super::*;
use crate::Lookups;

mod vectors;

use vectors::{Vector, vectors};

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);
/// A name whose addresses the next lookups give, one after the other.
const REBOUND: &str = "rebound.example";

/// Notes what it was asked to connect to, and connects to nothing.
#[derive(Clone, Default)]
struct CountingDial(Arc<Mutex<Vec<SocketAddr>>>);

impl Dial for CountingDial {
    fn dial(&self, addresses: Vec<SocketAddr>) -> Dialing {
        self.0.lock().extend(addresses);
        Box::pin(async { Err("nothing is connected to".into()) })
    }
}

/// A caller with counted connections, whose resolver is a table of names.
struct Caller {
    client: Client<GuardedConnector<CountingDial>, String>,
    dial: CountingDial,
    names: Arc<Mutex<BTreeMap<String, Vec<Vec<SocketAddr>>>>>,
}

impl Caller {
    fn new(allowed: AllowedNetworks) -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let names = Arc::<Mutex<BTreeMap<String, Vec<Vec<SocketAddr>>>>>::default();
        let known = Arc::clone(&names);
        // A name that is not in the table leads to this machine: nothing is refused for want of an
        // address.
        let lookups = Lookups::new(Arc::new(move |name| {
            let mut known = known.lock();
            let answers = known.get_mut(name).filter(|answers| !answers.is_empty());
            Ok(answers.map_or_else(|| vec![at("127.0.0.1")], |answers| answers.remove(0)))
        }));
        let dial = CountingDial::default();
        let roots = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        let guard = NetworkGuard::new(allowed, lookups);
        let connector = GuardedConnector::with_dial(guard, roots, SOON, dial.clone());
        Self { client: Client::builder(TokioExecutor::new()).build(connector), dial, names }
    }

    /// The next lookup of this name gives these addresses.
    fn resolve(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| at(text)).collect();
        self.names.lock().entry(name.to_owned()).or_default().push(addresses);
    }

    /// Calls a URL, which fails in any case; returns what it would have connected to, and whether
    /// the guard has refused it.
    async fn call(&self, url: &str) -> (Vec<String>, bool) {
        let uri: Uri = url.parse().unwrap();
        let error = self.client.get(uri).await.unwrap_err();
        let mut causes =
            std::iter::successors(Some(&error as &(dyn std::error::Error + 'static)), |error| error.source());
        let is_blocked = causes.any(|cause| matches!(cause.downcast_ref(), Some(crate::ResolveError::Blocked)));
        let dialed = std::mem::take(&mut *self.dial.0.lock());
        (dialed.into_iter().map(|address| address.to_string()).collect(), is_blocked)
    }
}

fn at(text: &str) -> SocketAddr {
    SocketAddr::new(text.parse().unwrap(), 0)
}

fn is_refused_at_submission(url: &str, allowed: &AllowedNetworks) -> bool {
    let mut faults = Faults::default();
    faults.callback(Some(url.to_owned()), None, CallbackBody::default(), allowed);
    faults.finish().is_err()
}

#[tokio::test]
async fn nothing_forbidden_is_connected_to() {
    let nothing_special = AllowedNetworks::none();
    let caller = Caller::new(nothing_special.clone());
    let vectors = vectors();
    let distinct: HashSet<&str> = vectors.iter().map(|vector| vector.url.as_str()).collect();
    assert_eq!(distinct.len(), vectors.len(), "a vector is there twice");
    assert!(vectors.len() >= 300, "{} vectors", vectors.len());
    let mut called = 0;
    for Vector { url, resolves_to } in &vectors {
        let is_refused = is_refused_at_submission(url, &nothing_special);
        assert_eq!(is_refused, resolves_to.is_none(), "{url} at submission");
        // What no parser takes for a URL is not called by anybody.
        let Some(parsed) = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https")) else {
            assert!(is_refused, "{url}");
            continue;
        };
        // A parser that is less strict sees an address of the public internet: nothing to protect.
        if literal_address(&parsed).is_some_and(|address| !nothing_special.forbids(address)) {
            assert!(is_refused, "{url}");
            continue;
        }
        if let (Some(addresses), Some(name)) = (resolves_to, parsed.host_str()) {
            caller.resolve(name, &addresses.iter().map(String::as_str).collect::<Vec<_>>());
        }
        if parsed.as_str().parse::<Uri>().is_err() {
            assert!(is_refused, "{url}");
            continue;
        }
        let (dialed, is_blocked) = caller.call(parsed.as_str()).await;
        assert_eq!(dialed, Vec::<String>::new(), "{url} was connected to");
        assert!(is_blocked, "{url} was not called for another reason");
        called += 1;
    }
    assert!(called >= 300, "{called} vectors got as far as the connector");
}

/// The counter counts: the same path connects to what is not forbidden.
#[tokio::test]
async fn the_public_internet_is_connected_to() {
    let caller = Caller::new(AllowedNetworks::none());
    caller.resolve("public.example", &["1.1.1.1", "2606:4700::1111"]);
    for (url, dialed) in [
        ("http://1.1.1.1/", &["1.1.1.1:80"][..]),
        ("https://1.1.1.1/", &["1.1.1.1:443"]),
        ("http://[2606:4700::1111]:8080/", &["[2606:4700::1111]:8080"]),
        ("https://public.example:8443/", &["1.1.1.1:8443", "[2606:4700::1111]:8443"]),
    ] {
        assert!(!is_refused_at_submission(url, &AllowedNetworks::none()), "{url}");
        assert_eq!(caller.call(url).await, (dialed.iter().map(ToString::to_string).collect(), false), "{url}");
    }
}

#[tokio::test]
async fn a_name_that_is_rebound_is_refused() {
    let caller = Caller::new(AllowedNetworks::none());
    let url = &format!("http://{REBOUND}/");
    assert!(!is_refused_at_submission(url, &AllowedNetworks::none()), "a name tells nothing");
    for inside in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "fd00::1", "::ffff:192.168.0.1"] {
        caller.resolve(REBOUND, &["1.1.1.1"]);
        caller.resolve(REBOUND, &[inside]);
        assert_eq!(caller.call(url).await, (vec!["1.1.1.1:80".to_owned()], false));
        assert_eq!(caller.call(url).await, (Vec::new(), true), "{inside}");
        caller.resolve(REBOUND, &[inside, "1.1.1.1", inside]);
        assert_eq!(caller.call(url).await, (vec!["1.1.1.1:80".to_owned()], false), "beside {inside}");
    }
}

#[tokio::test]
async fn listed_networks_are_connected_to() {
    let listed = AllowedNetworks::parse(["10.1.0.0/16", "fd00:1::/32"]).unwrap();
    let allowed = listed.denying(["10.1.9.0/24".parse().unwrap()]).without_own("10.1.0.7:7400".parse().unwrap(), []);
    let caller = Caller::new(allowed.clone());
    for (address, port, may) in [
        ("10.1.2.3", 80, true),
        ("fd00:1::5", 80, true),
        ("::ffff:10.1.2.3", 80, true),
        ("10.1.0.7", 80, true),
        ("10.1.0.7", 7400, false),
        ("::ffff:10.1.0.7", 7400, false),
        ("127.0.0.1", 7400, false),
        ("10.1.9.1", 80, false),
        ("10.2.0.1", 80, false),
        ("fd00:2::1", 80, false),
        ("127.0.0.1", 80, false),
    ] {
        let literal = SocketAddr::new(address.parse().unwrap(), port).to_string();
        let expected = (if may { vec![literal.clone()] } else { Vec::new() }, !may);
        let url = format!("http://{literal}/");
        assert_eq!(is_refused_at_submission(&url, &allowed), !may, "{literal}");
        assert_eq!(caller.call(&url).await, expected, "{literal}");
        caller.resolve("intranet.example", &[address]);
        assert_eq!(caller.call(&format!("http://intranet.example:{port}/")).await, expected, "{literal} by name");
    }
}

/// The real dialler has no way to another address than those that it gets.
#[tokio::test]
async fn a_connection_is_to_the_address_that_was_checked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    let unused = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), {
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        taken.local_addr().unwrap().port()
    });
    let stream = TcpDial::new(SOON).dial(vec![unused, here]).await.unwrap();
    assert_eq!(stream.inner().peer_addr().unwrap(), here, "the first that answers");
    assert!(TcpDial::new(SOON).dial(vec![unused]).await.is_err());
    assert!(TcpDial::new(SOON).dial(Vec::new()).await.is_err());
}
