//! `punctual init`: makes the first admin key in a store, and prints it. It is kept nowhere else.
//!
//! It works on the store itself, since a process that can write there may do everything anyway.
//! With PostgreSQL a server may run meanwhile; the embedded store belongs to one process at a time.

use std::io::Write;

use anyhow::{Context, bail, ensure};
use clap::{Arg, Args};
use punctual_auth::{IssuedKey, NewKey, Principal};
use punctual_core::database::Database;
use punctual_core::ids::NodeId;
use punctual_core::tenants::{AccessRole, KeyScope, KeyStored, TenantRecord};
use punctual_core::time::Timestamp;
use punctual_store::postgres::CONNECTIONS_MIN;

use super::flags::{Flags, hide_unless_about_store};
use crate::config::{Config, StoreChoice};
use crate::serve::store;

/// The arguments of `punctual init`.
#[derive(Args)]
pub struct InitArguments {
    /// What to call the key.
    #[arg(long, default_value = "admin", value_parser = key_name)]
    name: String,
    /// Make another one, though there is an admin key: for when it was lost.
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Hides the flags that are not about the store.
pub fn hide_others(flag: Arg) -> Arg {
    if ["name", "again"].contains(&flag.get_id().as_str()) { flag } else { hide_unless_about_store(flag) }
}

fn key_name(text: &str) -> Result<String, String> {
    let is_plain = (1..=255).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if is_plain { Ok(text.to_owned()) } else { Err("must have 1 to 255 characters".to_owned()) }
}

/// Makes the key, and prints it on stdout alone.
pub fn run(arguments: &InitArguments) -> anyhow::Result<()> {
    super::install_tls();
    let (_, config) = arguments.flags.load()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let key = runtime.block_on(init(arguments, config))?;
    writeln!(std::io::stdout(), "{key}").context("the key was made but not printed; make another one with --again")?;
    let advice = "This key is shown only now: keep it where only you can read it, and start the server with \
                  auth.enabled = true.";
    writeln!(std::io::stderr(), "{advice}")?;
    Ok(())
}

async fn init(arguments: &InitArguments, config: Config) -> anyhow::Result<String> {
    let is_embedded = config.store == StoreChoice::Sqlite;
    // As few connections as a store takes: the servers need the others.
    let store_connections = usize::try_from(CONNECTIONS_MIN)?;
    let config = Config { store_connections, read_store: None, ..config };
    let opened = store::open(&config, NodeId::random()).await;
    let opened = if is_embedded { opened.context(STOP_FIRST) } else { opened }?;
    let now = opened.clock.now();
    let new = NewKey {
        tenant: Principal::DEFAULT_TENANT.to_owned(),
        name: arguments.name.clone(),
        role: AccessRole::Admin,
        scope: KeyScope::default(),
        expires_at: None,
    };
    let issued = IssuedKey::new(new, rand::random(), now);
    let made = store_key(&*opened.database, &issued, arguments.again, now).await;
    // A key that is stored must be shown. The next process recovers a store that was not closed.
    drop(opened.database.close().await);
    made.map(|()| issued.text.expose().to_owned())
}

/// What to do while a server has the embedded store open.
const STOP_FIRST: &str = "cannot open the store; if a server runs on it, stop the server for a moment, or make keys with an \
                          admin key over HTTP";

async fn store_key(database: &dyn Database, issued: &IssuedKey, again: bool, now: Timestamp) -> anyhow::Result<()> {
    if !again {
        let is_first = database.create_first_admin_key(issued.record.clone(), now).await?;
        ensure!(is_first, "the store has an admin key already: make others with it, or if it was lost pass --again");
        return Ok(());
    }
    database.create_tenant(TenantRecord::new(&issued.record.tenant, now)).await?;
    match database.create_key(issued.record.clone()).await? {
        KeyStored::Done => Ok(()),
        KeyStored::TooMany => bail!("the tenant {} has as many keys as it may have: revoke some", issued.record.tenant),
        KeyStored::NoTenant => bail!("the tenant {} was removed meanwhile: try again", issued.record.tenant),
    }
}
