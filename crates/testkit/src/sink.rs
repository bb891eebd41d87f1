//! A webhook target for black-box tests: records every hit, and answers as scripted.
//!
//! It runs on its own thread, so that the arrival times it records do not depend on what the test
//! is doing. Each path has a script of [`SinkAnswer`]s, the last of which repeats; a path without
//! one answers 200. It speaks HTTP by hand because it must be able to misbehave.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener as Listener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use crate::eventually::eventually;
use crate::wire::{HttpMessage, HttpReader, find};

/// A real HTTP server on loopback, until it is dropped.
#[derive(Debug)]
pub struct Sink {
    address: SocketAddr,
    book: Arc<Mutex<Book>>,
    _stop: oneshot::Sender<()>,
}

impl Sink {
    /// Starts one on a free port.
    pub fn start() -> Self {
        let listener = Listener::bind("127.0.0.1:0").expect("loopback has a free port");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let address = listener.local_addr().expect("a bound listener has an address");
        let book = Arc::new(Mutex::new(Book::default()));
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&book);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be built");
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, served) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, book, _stop: stop }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers all hits of a path in this way.
    pub fn answer(&self, path: &str, answer: SinkAnswer) {
        self.script(path, [answer]);
    }

    /// Answers the hits of a path one after the other in these ways, and all further ones in the
    /// last.
    pub fn script(&self, path: &str, answers: impl IntoIterator<Item = SinkAnswer>) {
        let answers: VecDeque<SinkAnswer> = answers.into_iter().collect();
        assert!(!answers.is_empty(), "a script has at least one answer");
        self.book().scripts.insert(path.to_owned(), answers);
    }

    /// The hits of a path so far, in the order of their arrival.
    pub fn hits(&self, path: &str) -> Vec<Hit> {
        self.book().hits.iter().filter(|hit| hit.path == path).cloned().collect()
    }

    /// All hits so far.
    pub fn all_hits(&self) -> Vec<Hit> {
        self.book().hits.clone()
    }

    /// The maximum number of hits that waited for their answers at one time.
    pub fn most_at_once(&self) -> usize {
        self.book().most_at_once
    }

    /// The hits that are waiting for their answers.
    pub fn waiting(&self) -> usize {
        self.book().waiting
    }

    /// Waits until a path has at least `count` hits.
    pub async fn wait_for(&self, path: &str, count: usize, within: Duration) -> Vec<Hit> {
        eventually(&format!("{count} hits of {path}"), within, async || {
            let hits = self.hits(path);
            if hits.len() >= count { Ok(hits) } else { Err(format!("{} hits", hits.len())) }
        })
        .await
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        locked(&self.book)
    }
}

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Hit {
    /// When its first bytes arrived.
    pub at: Timestamp,
    /// `POST`, unless something is wrong.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers in their order, names as they were sent.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
}

impl Hit {
    /// The header of that name, in any case; panics unless there is exactly one.
    #[track_caller]
    pub fn header(&self, name: &str) -> &str {
        let values = self.values(name);
        assert_eq!(values.len(), 1, "the hit should have one header {name}: {:?}", self.headers);
        values[0]
    }

    /// All values of a header.
    pub fn values(&self, name: &str) -> Vec<&str> {
        let named = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.as_str()).collect()
    }
}

/// How the sink answers a hit.
#[derive(Clone, Debug)]
pub struct SinkAnswer {
    after: Duration,
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    manner: Manner,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Proper,
    Hang,
    Close,
    Reset,
    CutShort,
    Endless,
    Trickle,
    Garbage,
}

impl SinkAnswer {
    /// This status, with an empty body.
    pub fn status(status: u16) -> Self {
        Self { after: Duration::ZERO, status, headers: Vec::new(), body: Vec::new(), manner: Manner::Proper }
    }

    /// 200 with this JSON.
    pub fn json(value: &Value) -> Self {
        Self::status(200).header("content-type", "application/json").body(value.to_string())
    }

    /// Never sends a byte, however long the other side waits.
    pub fn hang() -> Self {
        Self::status(0).in_the_manner(Manner::Hang)
    }

    /// Closes the connection without a byte.
    pub fn close() -> Self {
        Self::status(0).in_the_manner(Manner::Close)
    }

    /// Resets the connection without a byte.
    pub fn reset() -> Self {
        Self::status(0).in_the_manner(Manner::Reset)
    }

    /// A 200 whose connection is reset in the middle of its body.
    pub fn cut_short() -> Self {
        Self::status(200).in_the_manner(Manner::CutShort)
    }

    /// A 200 whose body has no end.
    pub fn endless() -> Self {
        Self::status(200).in_the_manner(Manner::Endless)
    }

    /// A 200 whose body comes a byte at a time, ten a second, and has no end.
    pub fn trickle() -> Self {
        Self::status(200).in_the_manner(Manner::Trickle)
    }

    /// Something that is not HTTP.
    pub fn garbage() -> Self {
        Self::status(0).in_the_manner(Manner::Garbage)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Waits this long before it answers.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }

    fn in_the_manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    async fn give(&self, stream: &mut (impl AsyncWriteExt + Unpin)) -> io::Result<()> {
        let head = |length: &str| {
            let extra = self.headers.iter().flat_map(|(name, value)| [name, ": ", value, "\r\n"]).collect::<String>();
            format!("HTTP/1.1 {} Scripted\r\n{extra}{length}\r\n", self.status)
        };
        match self.manner {
            Manner::Proper => {
                stream.write_all(head(&format!("content-length: {}\r\n", self.body.len())).as_bytes()).await?;
                stream.write_all(&self.body).await?;
            }
            Manner::CutShort => {
                stream.write_all(head("content-length: 1000\r\n").as_bytes()).await?;
                stream.write_all(b"{\"cut\": \"sho").await?;
            }
            Manner::Endless | Manner::Trickle => {
                stream.write_all(head("transfer-encoding: chunked\r\n").as_bytes()).await?;
                loop {
                    if self.manner == Manner::Trickle {
                        stream.write_all(b"1\r\n \r\n").await?;
                        stream.flush().await?;
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    } else {
                        stream.write_all(format!("1000\r\n{}\r\n", "x".repeat(0x1000)).as_bytes()).await?;
                    }
                }
            }
            Manner::Garbage => stream.write_all(b"HTTP/9.9 many things\r\nno colon here\r\n\r\n").await?,
            Manner::Hang | Manner::Close | Manner::Reset => {}
        }
        stream.flush().await
    }
}

#[derive(Debug, Default)]
struct Book {
    scripts: HashMap<String, VecDeque<SinkAnswer>>,
    hits: Vec<Hit>,
    waiting: usize,
    most_at_once: usize,
}

impl Book {
    fn enter(&mut self, at: Timestamp, message: HttpMessage) -> SinkAnswer {
        let mut words = message.start_line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let path = words.next().unwrap_or_default().to_owned();
        let answer = match self.scripts.get_mut(&path) {
            Some(script) if script.len() > 1 => script.pop_front(),
            Some(script) => script.front().cloned(),
            None => None,
        };
        self.hits.push(Hit { at, method, path, headers: message.headers, body: message.body });
        self.waiting += 1;
        self.most_at_once = self.most_at_once.max(self.waiting);
        answer.unwrap_or_else(|| SinkAnswer::status(200))
    }
}

/// Counts a hit as waiting until its answer is sent or its connection is gone.
struct Waiting(Arc<Mutex<Book>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        locked(&self.0).waiting -= 1;
    }
}

async fn accept(listener: Listener, book: Arc<Mutex<Book>>) {
    let listener = TcpListener::from_std(listener).expect("a non-blocking listener can be registered");
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            // The other side causes errors on a connection; tests check the recorded hits.
            let book = Arc::clone(&book);
            tokio::spawn(async move { serve(stream, book).await.ok() });
        }
    }
}

async fn serve(mut stream: TcpStream, book: Arc<Mutex<Book>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let (read, write) = stream.split();
        let mut reader = HttpReader::new(read);
        if !reader.begins().await? {
            return Ok(());
        }
        let at = Timestamp::now();
        let Some(message) = reader.message().await? else { return Ok(()) };
        let closes = |headers: &[(String, String)]| find(headers, "connection").is_some_and(|value| value == "close");
        let asked_to_close = closes(&message.headers);
        let answer = locked(&book).enter(at, message);
        let closing = asked_to_close || closes(&answer.headers);
        let waiting = Waiting(Arc::clone(&book));
        let mut write = BufWriter::new(write);
        let given = async {
            tokio::time::sleep(answer.after).await;
            if answer.manner == Manner::Hang { std::future::pending().await } else { answer.give(&mut write).await }
        };
        tokio::select! {
            given = given => given?,
            // The other side gave up. A pipelined request would end here too, but no client sends
            // one.
            _ = reader.begins() => return Ok(()),
        }
        drop(waiting);
        match answer.manner {
            Manner::Proper if !closing => {}
            Manner::Reset | Manner::CutShort => return stream.set_zero_linger(),
            _ => return Ok(()),
        }
    }
}

fn locked(book: &Mutex<Book>) -> MutexGuard<'_, Book> {
    book.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventually::eventually;
    use crate::http::ApiClient;
    use serde_json::json;

    #[tokio::test]
    async fn hits_are_recorded_and_scripts_followed() {
        let sink = Sink::start();
        sink.script("/a", [SinkAnswer::status(503).header("retry-after", "1"), SinkAnswer::json(&json!({"n": 1}))]);
        let api = ApiClient::new(&sink.url(""));
        let first = api.post("/a", &json!([1])).await;
        assert_eq!((first.status(), first.header("retry-after")), (503, Some("1")));
        assert_eq!(api.post("/a", &json!([2])).await.expect(200), json!({"n": 1}));
        assert_eq!(api.post("/a", &json!([3])).await.expect(200), json!({"n": 1}));
        assert_eq!(api.post("/b", &json!([4])).await.status(), 200);
        let bodies: Vec<_> =
            sink.hits("/a").iter().map(|hit| String::from_utf8_lossy(&hit.body).into_owned()).collect();
        assert_eq!(bodies, ["[1]", "[2]", "[3]"]);
        assert_eq!(sink.hits("/a")[0].header("CONTENT-TYPE"), "application/json");
        assert_eq!(sink.all_hits().len(), 4);
        // An answer can be read before the sink has noted that it was sent.
        eventually("nothing waits", Duration::from_secs(5), async || match sink.waiting() {
            0 => Ok(()),
            waiting => Err(format!("{waiting} wait")),
        })
        .await;
    }

    #[tokio::test]
    async fn it_misbehaves_on_request() {
        let sink = Sink::start();
        let api = ApiClient::new(&sink.url(""));
        for (path, answer) in [
            ("/close", SinkAnswer::close()),
            ("/reset", SinkAnswer::reset()),
            ("/cut", SinkAnswer::cut_short()),
            ("/garbage", SinkAnswer::garbage()),
        ] {
            sink.answer(path, answer);
            assert!(api.call("POST", path).try_send().await.is_err(), "{path} gave a proper answer");
            assert!(!sink.hits(path).is_empty(), "{path} was not recorded");
        }
        for (path, answer) in
            [("/hang", SinkAnswer::hang()), ("/endless", SinkAnswer::endless()), ("/trickle", SinkAnswer::trickle())]
        {
            sink.answer(path, answer);
            let call = api.call("POST", path).try_send();
            assert!(tokio::time::timeout(Duration::from_millis(300), call).await.is_err(), "{path} ended");
        }
        eventually("given-up hits no longer wait", Duration::from_secs(5), async || match sink.waiting() {
            0 => Ok(()),
            waiting => Err(format!("{waiting} waiting")),
        })
        .await;
    }
}
