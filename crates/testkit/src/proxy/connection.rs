//! One connection through the proxy: two sockets, and the bytes between them in both directions.
//!
//! In each direction one half reads and records the instant. The other waits as the test orders
//! and writes. Messages are parsed only when they are written, so that a commit is cut at the
//! moment when it would pass.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::frames::{Answers, Question, Questions};
use super::{CutCommit, FlowDirection, ServerProtocol, Shared};

/// How much is read at once.
const PIECE: usize = 16 * 1024;

/// How many pieces are held back in one direction before the sender has to wait.
const HELD_BACK: usize = 64;

/// No answer is held back from the client.
const NONE: u64 = u64::MAX;

/// A connection is reset, by one of its ends or by us.
struct Broken;

/// What was read, and when; or that reading failed.
type ReadPiece = (Instant, Result<Vec<u8>, Broken>);

/// Carries everything between a client and the server, until both have ended or the connection is
/// cut.
pub(super) async fn carry(mut client: TcpStream, shared: Arc<Shared>) {
    let (address, era) = {
        let orders = shared.orders.borrow();
        (orders.server, orders.cuts)
    };
    let _open = Open::new(&shared, era);
    let mut server = None;
    let ended = tokio::select! {
        () = shared.ordered(|orders| orders.cuts > era) => Err(Broken),
        ended = carry_to(address, &mut client, &mut server, &shared) => ended,
    };
    if ended.is_err() {
        for socket in [Some(&client), server.as_ref()].into_iter().flatten() {
            socket.set_zero_linger().ok();
        }
    }
    // Close it before it is removed from the open connections.
    drop((client, server));
}

async fn carry_to(
    address: SocketAddr,
    client: &mut TcpStream,
    server: &mut Option<TcpStream>,
    shared: &Shared,
) -> Result<(), Broken> {
    let Ok(connected) = TcpStream::connect(address).await else {
        shared.ordered(|orders| orders.flows(FlowDirection::ToClient)).await;
        return Err(Broken);
    };
    let server = server.insert(connected);
    for socket in [&*client, &*server] {
        socket.set_nodelay(true).map_err(|_| Broken)?;
    }
    let answer_kept_back = AtomicU64::new(NONE);
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = server.split();
    let (asked, asking) = mpsc::channel(HELD_BACK);
    let (answered, answering) = mpsc::channel(HELD_BACK);
    tokio::try_join!(
        read(from_client, asked),
        ask(Passage { shared, way: FlowDirection::ToServer, read: asking, to: to_server }, &answer_kept_back),
        read(from_server, answered),
        answer(Passage { shared, way: FlowDirection::ToClient, read: answering, to: to_client }, &answer_kept_back),
    )?;
    Ok(())
}

/// Reads until the end, or until the connection breaks. The writing half decides what follows.
async fn read(mut from: ReadHalf<'_>, pieces: mpsc::Sender<ReadPiece>) -> Result<(), Broken> {
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let read = from.read_buf(&mut piece).await;
        let last = !matches!(read, Ok(1..));
        if !matches!(read, Ok(0))
            && pieces.send((Instant::now(), read.map(|_| piece).map_err(|_| Broken))).await.is_err()
        {
            return Err(Broken);
        }
        if last {
            return Ok(());
        }
    }
}

/// Passes the client's messages on, and cuts commits.
async fn ask(mut passage: Passage<'_>, answer_kept_back: &AtomicU64) -> Result<(), Broken> {
    let mut questions = Questions::default();
    while let Some(piece) = passage.next().await? {
        if passage.shared.protocol == ServerProtocol::Any {
            passage.write(&piece).await?;
            continue;
        }
        let mut passed = Vec::new();
        questions.push(&piece);
        while let Some(Question { bytes, commit_answered_by }) = questions.next() {
            let cut = commit_answered_by.and_then(|number| Some((number, passage.shared.armed().pop_front()?)));
            match cut {
                Some((_, CutCommit::Before)) => {
                    passage.write(&passed).await?;
                    return Err(passage.commit_cut());
                }
                Some((number, CutCommit::After)) => answer_kept_back.store(number, Ordering::SeqCst),
                None => {}
            }
            passed.extend(bytes);
        }
        passage.write(&passed).await?;
    }
    passage.end().await
}

/// Passes the server's answers on, until the answer to a commit is cut.
async fn answer(mut passage: Passage<'_>, kept_back: &AtomicU64) -> Result<(), Broken> {
    let mut answers = Answers::default();
    while let Some(piece) = passage.next().await? {
        let number = kept_back.load(Ordering::SeqCst);
        if passage.shared.protocol == ServerProtocol::Postgres && answers.push(&piece) >= number {
            return Err(passage.commit_cut());
        }
        if number == NONE {
            passage.write(&piece).await?;
        }
    }
    passage.end().await
}

/// The output of one direction: bytes that were read and not yet written.
struct Passage<'a> {
    shared: &'a Shared,
    way: FlowDirection,
    read: mpsc::Receiver<ReadPiece>,
    to: WriteHalf<'a>,
}

impl Passage<'_> {
    /// The next piece, when it may pass; none after the last.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, Broken> {
        let Some((read_at, read)) = self.read.recv().await else { return Ok(None) };
        let delay = self.shared.orders.borrow().delay;
        tokio::time::sleep_until(read_at + delay).await;
        self.flowing(self.way).await;
        read.map(Some)
    }

    async fn write(&mut self, piece: &[u8]) -> Result<(), Broken> {
        match self.to.write_all(piece).await {
            Ok(()) => Ok(()),
            Err(_) => self.rebuffed().await,
        }
    }

    /// Closes this direction.
    async fn end(&mut self) -> Result<(), Broken> {
        self.flowing(self.way).await;
        match self.to.shutdown().await {
            Ok(()) => Ok(()),
            Err(_) => self.rebuffed().await,
        }
    }

    /// The other side is gone. The error travels back like bytes do, so a stalled direction holds
    /// it back.
    async fn rebuffed(&self) -> Result<(), Broken> {
        let back = match self.way {
            FlowDirection::ToServer => FlowDirection::ToClient,
            FlowDirection::ToClient => FlowDirection::ToServer,
        };
        self.flowing(back).await;
        Err(Broken)
    }

    async fn flowing(&self, way: FlowDirection) {
        self.shared.ordered(|orders| orders.flows(way)).await;
    }

    fn commit_cut(&self) -> Broken {
        self.shared.status.send_modify(|status| status.commits_cut += 1);
        Broken
    }
}

/// Counts a connection as open until this is dropped.
struct Open<'a> {
    shared: &'a Shared,
    era: u64,
}

impl<'a> Open<'a> {
    fn new(shared: &'a Shared, era: u64) -> Self {
        shared.status.send_modify(|status| status.open.push(era));
        Self { shared, era }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shared.status.send_modify(|status| {
            let place = status.open.iter().position(|era| *era == self.era).expect("invariant: it was put there");
            status.open.swap_remove(place);
        });
    }
}
