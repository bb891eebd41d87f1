//! `punctual bench`: measures a server over HTTP.

/// Measures, and prints what was measured.
pub fn run(arguments: punctual_bench::Arguments) -> anyhow::Result<()> {
    // Fails only if a provider is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(punctual_bench::run(arguments))
}
