//! A runtime for the clients that are a load only: they run when nobody else wants to.
//!
//! Elsewhere they would be on other machines. Here they share the processors with the server,
//! and what they cost is not what is asked.

#[cfg(target_os = "linux")]
use thread_priority::ThreadPriority;
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

/// A lower priority would not do: whoever has a processor keeps it for a slice of time, however low its priority is, and
/// an answer that has to wait for the end of it comes milliseconds late. Whoever is idle by policy is put aside at once.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::unix::{
            NormalThreadSchedulePolicy::Idle, ThreadSchedulePolicy::Normal, set_thread_priority_and_policy,
            thread_native_id,
        };
        let given = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, Normal(Idle));
        if let Err(error) = given {
            eprintln!("the clients could not be told to give way: {error}");
        }
    }
}
