//! Real PostgreSQL servers for tests, each with its own port and directory.
//!
//! A [`Postgres`] can be stopped in every way in which a database stops, frozen, started again on
//! the same address, copied to a streaming standby and promoted. Dropping it ends the server and
//! removes its directory; so does the death of the test's process. Nothing here knows what is
//! stored in it.
//!
//! Version 15 is used unless `PUNCTUAL_TEST_POSTGRES_BIN` names the `bin` directory of another.
//! A missing PostgreSQL is a panic, never a skipped test.

mod binaries;
mod faults;
mod guardian;
mod pgbouncer;
mod processes;
mod standby;
mod template;
mod tls;

use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use uuid::Uuid;

use crate::eventually::eventually;
use crate::shared::Port;
use binaries::Binaries;
use guardian::Guardian;
pub use pgbouncer::PgBouncer;

/// How long a server may take to start, crash recovery included, or to stop.
const WITHIN: Duration = Duration::from_secs(30);

/// How long one attempt to connect may take. A working server answers sooner.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// The settings of all servers. They are in the file rather than on the command line, so that every
/// tool sees them.
const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
shared_buffers = '32MB'
# Goes with the directory, unlike shared memory of the system, which a killed server leaves behind.
dynamic_shared_memory_type = mmap
wal_keep_size = '256MB'
wal_log_hints = on
timezone = 'UTC'
log_timezone = 'UTC'
log_line_prefix = '%m [%p] '
";

/// Saves the disk; a committed transaction still survives the death of every process.
const CHEAP: &str = "
fsync = off
full_page_writes = off
";

/// How durable a server's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    Cheap,
    Durable,
}

/// A PostgreSQL server of the test's own.
#[derive(Debug)]
pub struct Postgres {
    binaries: Binaries,
    files: Files,
    port: Port,
    directory: PathBuf,
    postmaster: Option<Child>,
    guardian: Guardian,
}

impl Postgres {
    /// A fresh server that does not sync its files, and keeps them in memory where there is room:
    /// quick, for small data, and safe from everything but a crash of the machine.
    pub async fn start() -> Self {
        Self::fresh(Files::Cheap).await
    }

    /// A fresh server that syncs its files to the disk, as one in production does.
    pub async fn durable() -> Self {
        Self::fresh(Files::Durable).await
    }

    /// A fresh server that was not made from the same template as the others, which all have its
    /// system identifier.
    pub async fn unlike_the_others() -> Self {
        let mut server = blocking(move || {
            let server = Self::home(Binaries::find(), Files::Cheap);
            template::make(&server.binaries, &server.data());
            server.configure();
            server
        })
        .await;
        server.start_again().await;
        server
    }

    async fn fresh(files: Files) -> Self {
        let mut server = blocking(move || {
            let server = Self::home(Binaries::find(), files);
            template::unpack(&server.binaries, &server.directory);
            server.configure();
            server
        })
        .await;
        server.start_again().await;
        server
    }

    /// A directory, a port and a guardian for a server that has no data yet.
    fn home(binaries: Binaries, files: Files) -> Self {
        let memory = (files == Files::Cheap).then(roomy_memory).flatten();
        let place = memory.unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new().prefix("punctual-postgres-").tempdir_in(place);
        let directory = directory.expect("a temporary directory can be made").keep();
        let guardian = Guardian::over(&directory);
        binaries.own(&directory);
        // As the system names the working directory of a process.
        let directory = directory.canonicalize().expect("the new directory exists");
        Self { binaries, files, port: Port::reserve(), directory, postmaster: None, guardian }
    }

    fn configure(&self) {
        let mut settings = match self.files {
            Files::Cheap => format!("{SETTINGS}{CHEAP}"),
            Files::Durable => SETTINGS.to_owned(),
        };
        writeln!(settings, "port = {}", self.port()).expect("invariant: a string can be written to");
        let file = self.data().join("postgresql.conf");
        std::fs::write(&file, settings).expect("a file of a fresh data directory can be written");
        self.binaries.own(&file);
    }

    /// Starts a server that was stopped or killed, on the same data and port, and waits until it
    /// can be connected to.
    pub async fn start_again(&mut self) {
        assert!(self.postmaster.is_none(), "the server runs");
        let log = File::options().create(true).append(true).open(self.log_file()).expect("the log can be opened");
        let errors = log.try_clone().expect("an open file can be cloned");
        let mut command = self.binaries.command("postgres");
        command.arg("-D").arg(self.data()).current_dir(self.data());
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        self.postmaster = Some(command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}")));
        let url = self.url("postgres");
        eventually("PostgreSQL can be connected to", WITHIN, async || {
            let refused = try_connect(&url).await.err();
            assert!(!self.has_ended(), "PostgreSQL ended by itself:\n{}", self.log());
            refused.map_or(Ok(()), |error| Err(format!("{error}\n{}", self.log())))
        })
        .await;
    }

    /// The port it listens at, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// How to connect to a database of it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port())
    }

    /// Makes a fresh, empty database and returns its URL.
    pub async fn create_database(&self) -> String {
        let name = format!("test_{}", Uuid::new_v4().simple());
        self.execute(&format!("CREATE DATABASE {name}")).await;
        self.url(&name)
    }

    /// Executes SQL in the database `postgres`; see [`execute`].
    pub async fn execute(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        execute(&self.url("postgres"), sql).await
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn has_ended(&mut self) -> bool {
        let ended = |child: &mut Child| child.try_wait().expect("invariant: a child can be asked whether it ended");
        self.postmaster.as_mut().and_then(ended).is_some()
    }

    fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.guardian.end();
        if let Some(postmaster) = &mut self.postmaster {
            // It is dead; this reaps the process.
            postmaster.try_wait().ok();
        }
    }
}

/// Connects to a database; panics if that fails.
pub async fn connect(url: &str) -> Client {
    try_connect(url).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// Executes statements, separated by semicolons, on their own connection, and returns the rows of
/// all of them as text.
pub async fn execute(url: &str, sql: &str) -> Vec<Vec<Option<String>>> {
    let answered = connect(url).await.simple_query(sql).await;
    let messages = answered.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect()),
        _ => None,
    });
    rows.collect()
}

async fn try_connect(url: &str) -> Result<Client, String> {
    let connecting = tokio::time::timeout(CONNECTS_WITHIN, tokio_postgres::connect(url, NoTls)).await;
    let connected = connecting.map_err(|_| "no answer".to_owned())?;
    let (client, connection) = connected.map_err(|error| format!("{error:?}"))?;
    // It ends when the client is dropped. If the connection is lost, the client's calls fail.
    tokio::spawn(connection);
    Ok(client)
}

/// The system's directory in memory, if it has room for a few servers. In containers it is often
/// tiny.
fn roomy_memory() -> Option<PathBuf> {
    const ROOM_IN_KB: u64 = 4 * 1024 * 1024;
    let memory = PathBuf::from("/dev/shm");
    let output = Command::new("df").arg("-Pk").arg(&memory).output().ok()?;
    let table = String::from_utf8(output.stdout).ok()?;
    let free: u64 = table.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    (free >= ROOM_IN_KB).then_some(memory)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}
