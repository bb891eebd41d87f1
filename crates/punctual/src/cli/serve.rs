//! `punctual serve`: reads the settings, starts the log and the runtime, and runs the server.

use std::time::Duration;

use super::StoreWrapper;
use super::flags::Flags;
use crate::config::risks;
use crate::logging::Logging;

/// How long the runtime waits for its tasks after the server has ended; none of them has anything
/// to save.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(500);

/// Serves until a signal ends the process.
pub fn run(flags: &Flags, wrap_store: StoreWrapper) -> anyhow::Result<()> {
    let (settings, config) = flags.load()?;
    let _logging = Logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(crate::serve::run(config, &risks(&settings), wrap_store));
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    served
}
