//! A TCP proxy that misbehaves on request, between the product and a server that it needs.
//!
//! By default it passes everything on. On request it cuts connections, refuses new ones, holds
//! bytes back in one direction or both, delays them, or connects to another server. In front of
//! PostgreSQL it can also cut a connection just before or just after a commit. It runs on its own
//! thread, so that it does not depend on the test's runtime.

mod connection;
mod frames;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};

use crate::eventually::eventually;
use crate::shared::Port;

/// How long it may take until no process has a copy of a closed listener.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDirection {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// Where a commit is cut. The client sees the same in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutCommit {
    /// The server does not get the commit.
    Before,
    /// The server has answered the commit, and the client does not get the answer.
    After,
}

/// A proxy on loopback, until it is dropped.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    shared: Arc<Shared>,
    _stop: oneshot::Sender<()>,
}

impl FaultProxy {
    /// Starts one on a free port, before a server that speaks any protocol.
    pub fn start(server: SocketAddr) -> Self {
        Self::with(server, ServerProtocol::Any)
    }

    /// Starts one on a free port, before a PostgreSQL server: it can cut commits, unless the
    /// connection is encrypted.
    pub fn before_postgres(server: SocketAddr) -> Self {
        Self::with(server, ServerProtocol::Postgres)
    }

    fn with(server: SocketAddr, protocol: ServerProtocol) -> Self {
        let reserved = Port::reserve();
        let port = reserved.number();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a reserved port is free");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let shared = Arc::new(Shared::new(server, protocol));
        let serving = Arc::clone(&shared);
        let (stop, stopped) = oneshot::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be built");
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, &reserved, &serving) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { port, shared, _stop: stop }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The same URL, through the proxy.
    pub fn through(&self, url: &str) -> String {
        let mut url = reqwest::Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        url.set_host(Some(&Ipv4Addr::LOCALHOST.to_string())).expect("a URL with an authority has a host");
        url.set_port(Some(self.port)).expect("a URL with a host has a port");
        url.into()
    }

    /// Leads new connections to another server; open ones stay.
    pub fn lead_to(&self, server: SocketAddr) {
        self.shared.order(|orders| orders.server = server);
    }

    /// Resets all open connections, on both sides, and waits until they are gone.
    pub async fn cut(&self) {
        let mut due = 0;
        self.shared.order(|orders| {
            orders.cuts += 1;
            due = orders.cuts;
        });
        self.shared.sees(|status| status.open.iter().all(|era| *era >= due)).await;
    }

    /// Refuses new connections, like a port without a listener; open ones stay.
    pub async fn refuse(&self) {
        self.shared.order(|orders| orders.refusing = true);
        self.shared.sees(|status| !status.listening).await;
    }

    /// Accepts new connections again.
    pub async fn accept(&self) {
        self.shared.order(|orders| orders.refusing = false);
        self.shared.sees(|status| status.listening).await;
    }

    /// Passes nothing on in one direction any more, not even the end of a connection, like a
    /// network that loses packets. Connections stay open, and new ones are accepted.
    pub fn stall(&self, way: FlowDirection) {
        self.shared.order(|orders| *orders.stalled(way) = true);
    }

    /// Stalls both directions.
    pub fn black_hole(&self) {
        self.stall(FlowDirection::ToServer);
        self.stall(FlowDirection::ToClient);
    }

    /// Passes everything on again, beginning with the bytes that were held back.
    pub fn flow(&self) {
        self.shared.order(|orders| {
            *orders.stalled(FlowDirection::ToServer) = false;
            *orders.stalled(FlowDirection::ToClient) = false;
        });
    }

    /// Holds all bytes back for this long, in each direction. About a megabyte of a connection can
    /// be in transit at once.
    pub fn delay(&self, by: Duration) {
        self.shared.order(|orders| orders.delay = by);
    }

    /// Cuts the connection on which the next `COMMIT` comes. Each further call cuts one more.
    pub fn cut_next_commit(&self, cut: CutCommit) {
        assert_eq!(
            self.shared.protocol,
            ServerProtocol::Postgres,
            "only a proxy before PostgreSQL recognises a commit"
        );
        self.shared.armed().push_back(cut);
    }

    /// How many commits have been cut.
    pub fn commits_cut(&self) -> usize {
        self.shared.status.borrow().commits_cut
    }

    /// How many connections are open.
    pub fn open_connections(&self) -> usize {
        self.shared.status.borrow().open.len()
    }
}

/// The protocol of the server, as far as the proxy needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerProtocol {
    Any,
    Postgres,
}

/// The state that the test and the proxy's thread share.
#[derive(Debug)]
struct Shared {
    protocol: ServerProtocol,
    orders: watch::Sender<Orders>,
    status: watch::Sender<ProxyStatus>,
    armed: Mutex<VecDeque<CutCommit>>,
}

impl Shared {
    fn new(server: SocketAddr, protocol: ServerProtocol) -> Self {
        let orders = Orders {
            server,
            refusing: false,
            cuts: 0,
            stalled_to_server: false,
            stalled_to_client: false,
            delay: Duration::ZERO,
        };
        Self {
            protocol,
            orders: watch::Sender::new(orders),
            status: watch::Sender::new(ProxyStatus { listening: true, open: Vec::new(), commits_cut: 0 }),
            armed: Mutex::default(),
        }
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        self.orders.send_modify(change);
    }

    /// Waits until the proxy's thread reports such a status.
    async fn sees(&self, state: impl FnMut(&ProxyStatus) -> bool) {
        self.status.subscribe().wait_for(state).await.expect("invariant: the sender is here");
    }

    /// Waits for such orders.
    async fn ordered(&self, state: impl FnMut(&Orders) -> bool) {
        self.orders.subscribe().wait_for(state).await.expect("invariant: the sender is here");
    }

    fn armed(&self) -> std::sync::MutexGuard<'_, VecDeque<CutCommit>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The orders of the test.
#[derive(Debug)]
struct Orders {
    server: SocketAddr,
    refusing: bool,
    /// Connections of an era before this number are cut.
    cuts: u64,
    stalled_to_server: bool,
    stalled_to_client: bool,
    delay: Duration,
}

impl Orders {
    fn stalled(&mut self, way: FlowDirection) -> &mut bool {
        match way {
            FlowDirection::ToServer => &mut self.stalled_to_server,
            FlowDirection::ToClient => &mut self.stalled_to_client,
        }
    }

    fn flows(&self, way: FlowDirection) -> bool {
        match way {
            FlowDirection::ToServer => !self.stalled_to_server,
            FlowDirection::ToClient => !self.stalled_to_client,
        }
    }
}

/// What the proxy has done.
#[derive(Debug)]
struct ProxyStatus {
    listening: bool,
    /// The era of each open connection: the number of cuts before it.
    open: Vec<u64>,
    commits_cut: usize,
}

async fn serve(first: std::net::TcpListener, port: &Port, shared: &Arc<Shared>) {
    let mut listener = TcpListener::from_std(first).expect("a listener can be handed to a runtime");
    loop {
        loop {
            tokio::select! {
                () = shared.ordered(|orders| orders.refusing) => break,
                accepted = listener.accept() => {
                    // A client may have gone before it was accepted.
                    if let Ok((client, _)) = accepted {
                        tokio::spawn(connection::carry(client, Arc::clone(shared)));
                    }
                }
            }
        }
        drop(listener);
        is_refused(port).await;
        shared.status.send_modify(|status| status.listening = false);
        shared.ordered(|orders| !orders.refusing).await;
        let again = TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).await;
        listener = again.expect("a reserved port is free");
        shared.status.send_modify(|status| status.listening = true);
    }
}

/// Waits until connections are refused. A child process of the test holds a copy of the listener
/// until it has become its program.
async fn is_refused(port: &Port) {
    eventually("connections are refused", CLOSED_WITHIN, async || {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
