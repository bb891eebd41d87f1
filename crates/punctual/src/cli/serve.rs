//! `punctual serve`: reads the settings, starts the log and the runtime, and runs the server in them.

use std::time::Duration;

use super::Around;
use super::flags::Flags;
use crate::logging::Logging;

/// What still runs on the runtime when the server has ended has nothing left to save.
const LEFTOVERS: Duration = Duration::from_millis(500);

/// Serves until a signal says otherwise.
pub fn run(flags: &Flags, around: Around) -> anyhow::Result<()> {
    let (_, config) = flags.load()?;
    let _logging = Logging::start(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(crate::serve::run(config, around));
    runtime.shutdown_timeout(LEFTOVERS);
    served
}
