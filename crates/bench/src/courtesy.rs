//! A runtime for the clients that are a load only: they run when nobody else wants to.
//!
//! Elsewhere they would be on other machines. Here they share the processors with the server,
//! and what they cost is not what is asked.

use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime whose threads give way to all others. To drop it does not wait for what it runs.
pub struct Courteous(Option<Runtime>);

impl Courteous {
    /// Starts one.
    pub fn start() -> std::io::Result<Self> {
        Builder::new_multi_thread().enable_all().on_thread_start(give_way).build().map(Some).map(Self)
    }

    /// Where to spawn.
    pub fn handle(&self) -> &Handle {
        self.0.as_ref().expect("invariant: the runtime is only taken on drop").handle()
    }
}

impl Drop for Courteous {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn give_way() {
    // Where a thread has no priority of its own the whole program would give way, and nothing be gained.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, 19) {
        eprintln!("the clients could not be given a lower priority: {error}");
    }
}
