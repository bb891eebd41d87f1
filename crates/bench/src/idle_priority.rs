//! A runtime for clients that only make load: its threads run when no other thread wants to.
//!
//! In production such clients run on other machines. Here they share the processors with the
//! server, and what they cost must not count against it. Used by `overload` and `fairness`.

#[cfg(target_os = "linux")]
use thread_priority::ThreadPriority;
use tokio::runtime::{Builder, Handle, Runtime};

/// A runtime whose threads yield to all others. Dropping it does not wait for its tasks.
pub struct IdlePriorityRuntime(Option<Runtime>);

impl IdlePriorityRuntime {
    /// Starts the runtime.
    pub fn start() -> std::io::Result<Self> {
        Builder::new_multi_thread().enable_all().on_thread_start(lower_priority).build().map(Some).map(Self)
    }

    /// The handle to spawn on.
    pub fn handle(&self) -> &Handle {
        self.0.as_ref().expect("invariant: the runtime is only taken on drop").handle()
    }
}

impl Drop for IdlePriorityRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Sets the idle policy. A low priority would not do: a running thread keeps its time slice however
/// low its priority is, so an answer could wait milliseconds for it. A thread under the idle policy
/// is preempted at once.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::unix::{
            NormalThreadSchedulePolicy::Idle, ThreadSchedulePolicy::Normal, set_thread_priority_and_policy,
            thread_native_id,
        };
        let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, Normal(Idle));
        if let Err(error) = set {
            eprintln!("cannot lower the priority of the load; it competes with the server: {error}");
        }
    }
}
