//! `punctual bench`: measures a server over HTTP.

/// Runs the scenario and prints its report.
pub fn run(arguments: punctual_bench::BenchArguments) -> anyhow::Result<()> {
    // Fails only if a provider is installed already, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(punctual_bench::run(arguments))
}
