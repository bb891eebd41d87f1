//! `punctual bench`: measures a server over HTTP.

/// Runs the scenario and prints its report.
pub fn run(arguments: punctual_bench::BenchArguments) -> anyhow::Result<()> {
    super::install_tls();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(punctual_bench::run(arguments))
}
