//! A server that is measured: its address, and what the kernel knows of its process if it is ours.

use std::sync::Arc;

use url::Url;

/// A server that was started for the measurement, or one that is given.
#[derive(Clone)]
pub struct BenchServer {
    url: Url,
    pid: Option<u32>,
    /// The API key that its callers show.
    key: Option<Arc<str>>,
}

impl BenchServer {
    /// A server that runs already. Only its address is known.
    pub fn given(url: Url) -> Self {
        Self { url, pid: None, key: None }
    }

    /// A server that was started for the measurement.
    pub fn started(url: Url, pid: u32) -> Self {
        Self { url, pid: Some(pid), key: None }
    }

    /// The same server, whose callers show this key.
    pub fn with_key(self, key: Option<Arc<str>>) -> Self {
        Self { key, ..self }
    }

    /// The key that its callers show.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The header that shows the key, with the end of its line; empty without a key.
    pub fn authorization(&self) -> String {
        self.key().map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default()
    }

    /// Its URL without a slash at the end.
    pub fn url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }

    /// `HOST:PORT`, for a socket.
    pub fn address(&self) -> String {
        let port = self.url.port_or_known_default().unwrap_or(80);
        format!("{}:{port}", self.url.host_str().unwrap_or_default())
    }

    /// What its paths begin with: empty, unless the URL has a path.
    pub fn prefix(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }

    /// Its memory, if it is ours.
    pub fn rss_megabytes(&self) -> Option<f64> {
        let status = self.proc_file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kilobytes / 1_024.0)
    }

    /// Its processor time in seconds and its wake-ups, if it is ours.
    pub fn processor(&self) -> Option<(f64, u64)> {
        let stat = self.proc_file("stat")?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid?)).ok()?;
        let switches = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
            .filter_map(|status| {
                let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
                line.trim().parse::<u64>().ok()
            })
            .sum();
        Some((ticks / TICKS_PER_SECOND, switches))
    }

    fn proc_file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.pid?)).ok()
    }
}

/// `USER_HZ`, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(url: &str) -> (String, String, String) {
        let server = BenchServer::given(url.parse().expect("a URL"));
        (server.url().to_owned(), server.address(), server.prefix().to_owned())
    }

    #[test]
    fn an_address_has_a_port_and_no_path() {
        let expected = |url: &str, address: &str, prefix: &str| (url.to_owned(), address.to_owned(), prefix.to_owned());
        assert_eq!(parts("http://127.0.0.1:7400"), expected("http://127.0.0.1:7400", "127.0.0.1:7400", ""));
        assert_eq!(parts("http://a.example/"), expected("http://a.example", "a.example:80", ""));
        assert_eq!(parts("http://[::1]/b/"), expected("http://[::1]/b", "[::1]:80", "/b"));
    }

    #[test]
    fn a_given_server_has_no_known_process() {
        let server = BenchServer::given("http://127.0.0.1:7400".parse().expect("a URL"));
        assert!(server.rss_megabytes().is_none() && server.processor().is_none());
    }
}
