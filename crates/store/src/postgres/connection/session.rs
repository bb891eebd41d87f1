//! One connection: its settings, its prepared statements and its timeouts.
//!
//! Every session has the same timeouts on the server, and every wait for an answer has one here: a
//! frozen server never answers. The planner must use the indexes, and plans each statement once:
//! the tables change so fast that their statistics are always out of date.

use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::store::StoreError;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::LoadBalanceHosts;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Row, Statement};
use tracing::debug;

use super::Address;
use super::lineage::Primary;
use crate::connection_counts::CountedConnection;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;

/// How long to wait for a connection.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for an answer; longer than the server may take for a statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// The settings of every session. They are set by statements, since a pooler refuses or drops
/// settings in the startup message.
const SETTINGS: &[(&str, &str)] = &[
    ("search_path", "punctual"),
    ("statement_timeout", "10000"),
    ("lock_timeout", "5000"),
    ("idle_in_transaction_session_timeout", "5000"),
    ("synchronous_commit", "on"),
    ("default_transaction_isolation", "read committed"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_mergejoin", "off"),
];

/// The parameters of a statement.
pub(crate) type Parameters<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection (see the module). Many callers may send single statements at once; a transaction
/// needs the session for itself.
pub(crate) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    /// Closed when the driver has ended.
    over: watch::Receiver<()>,
    prepared: Mutex<Vec<Option<Statement>>>,
    counted: CountedConnection,
}

impl Session {
    /// Connects, and prepares these statements.
    pub(crate) async fn open(address: &Address, statements: &[Sql]) -> Result<Self, Fault> {
        Self::open_listening(address, statements, |_| {}).await
    }

    /// The same; `receive` gets the server's notifications and notices.
    pub(crate) async fn open_listening(
        address: &Address,
        statements: &[Sql],
        mut receive: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Self, Fault> {
        let (client, mut connection) = address.connect(configure).await?;
        let (alive, over) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _alive = alive;
            while let Some(message) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                match message {
                    Ok(message) => receive(message),
                    Err(error) => {
                        debug!(%error, "a connection to PostgreSQL ended; its user reconnects");
                        return;
                    }
                }
            }
        });
        let (prepared, counted) =
            (Mutex::new(vec![None; Sql::ALL.len()]), CountedConnection::open(&address.connections));
        let session = Self { client, driver, over, prepared, counted };
        session.run(&settings()).await?;
        session.check_lineage(address).await?;
        session.prepare(statements).await?;
        Ok(session)
    }

    /// Prepares these statements.
    pub(crate) async fn prepare(&self, statements: &[Sql]) -> Result<(), Fault> {
        for sql in statements {
            self.statement(*sql).await?;
        }
        Ok(())
    }

    /// Fails if a newer primary has replaced the server. A server that does not report its timeline
    /// passes.
    async fn check_lineage(&self, address: &Address) -> Result<(), Fault> {
        let row = match self.query(Sql::Lineage, &[]).await {
            Err(fault) if fault.breaks_connection() => return Err(fault),
            answer => answer.ok().and_then(|mut rows| rows.pop()),
        };
        if let Some(row) = row
            && let (Some(system), Some(timeline)) = (row.get(0), row.get(1))
        {
            let admitted = address.lineage.admit(Primary { system, timeline });
            admitted.map_err(|why| Fault::NoConnection(StoreError::Unavailable(why)))?;
        }
        Ok(())
    }

    /// The rows of a statement.
    pub(crate) async fn query(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Vec<Row>, Fault> {
        let statement = self.statement(sql).await?;
        self.answer(self.client.query(&statement, parameters)).await
    }

    /// Begins a transaction with a prepared statement; both are sent at once.
    pub(crate) async fn begin(&self, sql: Sql, parameters: Parameters<'_>) -> Result<Vec<Row>, Fault> {
        let (begun, rows) = tokio::join!(biased; self.run("BEGIN"), self.query(sql, parameters));
        begun?;
        rows
    }

    /// How many rows a statement changed.
    pub(crate) async fn execute(&self, sql: Sql, parameters: Parameters<'_>) -> Result<u64, Fault> {
        let statement = self.statement(sql).await?;
        self.answer(self.client.execute(&statement, parameters)).await
    }

    /// Runs text that has no parameters.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), Fault> {
        self.answer(self.client.batch_execute(sql)).await
    }

    /// The text that a query returns.
    #[cfg(test)]
    pub(crate) async fn show(&self, sql: &str) -> Result<String, Fault> {
        Ok(self.answer(self.client.query_one(sql, &[])).await?.get(0))
    }

    /// Waits for an answer of the server.
    async fn answer<T>(&self, answer: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Fault> {
        let _call = self.counted.call();
        match timeout(ANSWER_TIMEOUT, answer).await {
            Ok(answered) => Ok(answered?),
            Err(_) => Err(Fault::Silent),
        }
    }

    /// Returns when the connection has ended.
    pub(crate) async fn ended(&self) {
        let mut over = self.over.clone();
        // Nothing is ever sent: it fails when the other end is dropped.
        while over.changed().await.is_ok() {}
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }

    async fn statement(&self, sql: Sql) -> Result<Statement, Fault> {
        let known = self.prepared.lock()[sql as usize].clone();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.answer(self.client.prepare(sql.text())).await?;
        self.prepared.lock()[sql as usize] = Some(statement.clone());
        Ok(statement)
    }
}

/// The server rolls back a transaction under way.
impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The statements that set up a session.
fn settings() -> String {
    SETTINGS.iter().fold(String::new(), |text, (name, value)| format!("{text}SET {name} = '{value}';"))
}

/// How every session connects.
fn configure(config: &mut Config) {
    // The first of several servers may be an old primary: a refused session tries another one.
    if config.get_hosts().len() > 1 {
        config.load_balance_hosts(LoadBalanceHosts::Random);
    }
    config
        .application_name("punctual")
        .connect_timeout(CONNECT_TIMEOUT)
        .keepalives(true)
        .keepalives_idle(Duration::from_secs(10))
        .tcp_user_timeout(ANSWER_TIMEOUT);
}
