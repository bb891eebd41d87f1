//! Real processes for black-box tests: `punctual serve`, and any other program.
//!
//! A [`Process`] keeps everything its program prints, can be signalled, and is killed when dropped,
//! so that no test leaves one behind. A [`TestServer`] is a `punctual serve` that has printed its
//! address. Nothing here knows what a server answers.

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::eventually::eventually;

/// How long a server may take until it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// The line of a server that is ready, up to its address.
const READY: &str = "listening on ";

/// The line before it of a server that has a listener for operators.
const OPERATORS: &str = "operators: listening on ";

/// How to start `punctual serve`. It may be started many times, one after the other, on the same
/// directory.
#[derive(Clone, Debug)]
pub struct Serve {
    under: Vec<OsString>,
    program: PathBuf,
    data: PathBuf,
    listen: String,
    more: Vec<OsString>,
    settings: Vec<(String, String)>,
}

impl Serve {
    /// `program serve --listen 127.0.0.1:0 --data data`.
    pub fn new(program: impl Into<PathBuf>, data: impl Into<PathBuf>) -> Self {
        Self {
            under: Vec::new(),
            program: program.into(),
            data: data.into(),
            listen: "127.0.0.1:0".to_owned(),
            more: Vec::new(),
            settings: Vec::new(),
        }
        // Sinks are on loopback, which a node on a shared store may not call by default.
        .setting("WEBHOOKS__ALLOW_NETWORKS", "127.0.0.0/8,::1")
    }

    /// Sets another address to listen at.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Starts it by another program with these arguments. That program must become the server, as
    /// `env` and `nsenter` do, so that a signal to the process reaches the server.
    #[must_use]
    pub fn under<W: Into<OsString>>(mut self, starter: impl IntoIterator<Item = W>) -> Self {
        self.under = starter.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.more.push(argument.into());
        self
    }

    /// Sets `PUNCTUAL_<name>`.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((format!("PUNCTUAL_{name}"), value.to_owned()));
        self
    }

    /// Starts it and waits until it listens; otherwise panics with its output.
    pub async fn start(&self) -> TestServer {
        let mut process = Process::spawn(self.command());
        let line = process.line(READY, STARTS_WITHIN).await;
        let url = line.trim_start_matches(READY).trim().to_owned();
        assert!(url.starts_with("http://") || url.starts_with("https://"), "the ready line names no address: {line:?}");
        TestServer { process, url }
    }

    /// Starts it and waits until it listens or has ended by itself.
    pub async fn try_start(&self, within: Duration) -> Result<TestServer, Exit> {
        let mut process = Process::spawn(self.command());
        let listens = eventually("it listens or ends", within, async || {
            if process.is_over() {
                return Ok(None);
            }
            let stdout = process.stdout();
            let line = stdout.split_inclusive('\n').find(|line| whole(line) && line.starts_with(READY));
            line.map(|line| Some(line.to_owned())).ok_or_else(|| format!("stderr:\n{}", process.stderr()))
        });
        match listens.await {
            Some(line) => Ok(TestServer { process, url: line.trim_start_matches(READY).trim().to_owned() }),
            None => Err(process.exit(within).await),
        }
    }

    /// Starts a server that must fail to start, and waits for its end.
    pub async fn fail(&self, within: Duration) -> Exit {
        Process::spawn(self.command()).exit(within).await
    }

    fn command(&self) -> Command {
        let mut words = self.under.iter().map(OsString::as_os_str).chain([self.program.as_os_str()]);
        let mut command = Command::new(words.next().expect("invariant: the program is one of the words"));
        command
            .args(words)
            .arg("serve")
            .arg("--listen")
            .arg(&self.listen)
            .arg("--data")
            .arg(&self.data)
            .args(&self.more);
        // A directory without a punctual.toml, and no settings from the environment of the test
        // run.
        command.current_dir(self.data.parent().filter(|parent| parent.is_dir()).unwrap_or(Path::new("/")));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PUNCTUAL_")) {
            command.env_remove(name);
        }
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// A running `punctual serve`.
#[derive(Debug)]
pub struct TestServer {
    process: Process,
    url: String,
}

impl TestServer {
    /// `http://ADDRESS`, or with `https` over TLS; without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// `ADDRESS`, as a socket connects to it.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").trim_start_matches("https://")
    }

    /// The address that it has for operators, in the same form as [`TestServer::url`].
    pub fn operators_url(&self) -> String {
        let stdout = self.process.stdout();
        let line = stdout.lines().find_map(|line| line.strip_prefix(OPERATORS));
        line.unwrap_or_else(|| panic!("it has no listener for operators: {stdout}")).to_owned()
    }

    /// The process behind it.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Everything it has logged.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Waits until its log has all of these. A log line may come a moment after an answer.
    pub async fn until_logged(&self, parts: &[&str]) {
        eventually("it is logged", Duration::from_secs(20), async || {
            let log = self.log();
            if parts.iter().all(|part| log.contains(part)) { Ok(()) } else { Err(format!("{parts:?} in {log}")) }
        })
        .await;
    }

    /// The processor time it has used so far.
    pub fn processor_time(&self) -> Duration {
        self.process.processor_time()
    }

    /// The most memory it has had at once, in bytes.
    pub fn memory_peak(&self) -> u64 {
        self.process.memory_peak()
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.process.signal("TERM");
    }

    /// Waits until it has ended by itself.
    pub async fn exit(&mut self, within: Duration) -> Exit {
        self.process.exit(within).await
    }
}

/// A child process with everything it prints.
#[derive(Debug)]
pub struct Process {
    child: Child,
    begun: Instant,
    stdout: Printed,
    stderr: Printed,
}

impl Process {
    /// Starts `command` without input and with its output captured.
    pub fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let stdout = Printed::of(child.stdout.take().expect("invariant: stdout is piped"));
        let stderr = Printed::of(child.stderr.take().expect("invariant: stderr is piped"));
        Self { child, begun: Instant::now(), stdout, stderr }
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("invariant: a child can be asked whether it ended").is_some()
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Everything it has printed on stdout.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Everything it has printed on stderr.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits for a line on stdout that begins with `prefix`; panics if the process ends without
    /// one.
    pub async fn line(&mut self, prefix: &str, within: Duration) -> String {
        let begun = Instant::now();
        eventually(&format!("a line {prefix:?}"), within, async || {
            let ended = self.child.try_wait().expect("invariant: a child can be asked whether it ended");
            if ended.is_some() {
                self.finish_reading();
            }
            if let Some(line) = self.stdout().split_inclusive('\n').find(|line| whole(line) && line.starts_with(prefix))
            {
                return Ok(line.trim_end().to_owned());
            }
            let seen = format!("stdout {:?}, stderr:\n{}", self.stdout(), self.stderr());
            if let Some(status) = ended {
                panic!("ended after {:?} with {status} without a line {prefix:?}; {seen}", begun.elapsed());
            }
            Err(seen)
        })
        .await
    }

    /// Sends a signal by its name: `TERM`, `INT`, `STOP`, `CONT`.
    pub fn signal(&self, name: &str) {
        // The shell's own kill needs no unsafe code, and there is a `sh` wherever these tests run.
        let script = format!("kill -{name} {}", self.id());
        let sent = Command::new("sh").args(["-c", &script]).status().expect("sh runs");
        assert!(sent.success(), "{script} failed: {sent}");
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("invariant: a child that was not waited for can be killed");
        self.child.wait().expect("invariant: a killed child ends");
    }

    /// Waits until it has ended by itself.
    pub async fn exit(&mut self, within: Duration) -> Exit {
        let status = eventually("the process ends", within, async || {
            let ended = self.child.try_wait().expect("invariant: a child can be asked whether it ended");
            ended.ok_or_else(|| format!("running; stdout {:?}, stderr:\n{}", self.stdout(), self.stderr()))
        })
        .await;
        let took = self.begun.elapsed();
        self.finish_reading();
        Exit { code: status.code(), signal: status.signal(), took, stdout: self.stdout(), stderr: self.stderr() }
    }

    /// The processor time it has used so far, to the hundredth of a second.
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).expect("the process is alive");
        // The name, the second field, is in brackets and may contain anything; utime and stime are
        // the 14th and 15th.
        let (_, fields) = stat.rsplit_once(')').expect("invariant: the name is in brackets");
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap_or(0)).sum();
        Duration::from_millis(ticks * 10)
    }

    /// The most memory it has had at once, in bytes.
    pub fn memory_peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process is alive");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("invariant: Linux shows it");
        let kilobytes: u64 = peak.trim().trim_end_matches(" kB").parse().expect("invariant: a number");
        kilobytes * 1_024
    }

    fn finish_reading(&mut self) {
        self.stdout.finish();
        self.stderr.finish();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        if self.child.kill().is_ok() {
            self.child.wait().ok();
        }
    }
}

/// How a process ended.
#[derive(Debug)]
pub struct Exit {
    /// Its exit code, if it was not a signal.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// From its start to its end.
    pub took: Duration,
    /// Everything it printed on stdout.
    pub stdout: String,
    /// Everything it printed on stderr.
    pub stderr: String,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, signal, took, stdout, stderr } = self;
        write!(f, "exit code {code:?}, signal {signal:?}, after {took:?}\nstdout: {stdout}\nstderr: {stderr}")
    }
}

/// The output of a process on one of its streams so far, read by its own thread.
#[derive(Debug)]
struct Printed {
    text: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Printed {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let growing = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                growing.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
                line.clear();
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn finish(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
    }
}

fn whole(line: &str) -> bool {
    line.ends_with('\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn sh(script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::spawn(command)
    }

    #[tokio::test]
    async fn lines_codes_and_streams_are_captured() {
        let mut process = sh("echo ready; echo oops >&2; exit 3");
        assert_eq!(process.line("rea", SOON).await, "ready");
        let exit = process.exit(SOON).await;
        assert_eq!((exit.code, exit.stdout.as_str(), exit.stderr.as_str()), (Some(3), "ready\n", "oops\n"));
    }

    #[tokio::test]
    async fn signals_arrive() {
        let mut process = sh("trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done");
        process.line("ready", SOON).await;
        process.signal("STOP");
        process.signal("TERM");
        process.signal("CONT");
        assert_eq!(process.exit(SOON).await.code, Some(7));
    }

    #[tokio::test]
    #[should_panic(expected = "without a line \"listening on \"")]
    async fn a_failed_start_shows_the_output() {
        let home = tempfile::tempdir().expect("a temporary directory can be made");
        Serve::new("/bin/false", home.path().join("data")).start().await;
    }

    #[tokio::test]
    async fn a_dropped_process_is_gone() {
        let mut process = sh("echo ready; exec sleep 60");
        process.line("ready", SOON).await;
        let of_it = PathBuf::from(format!("/proc/{}", process.id()));
        assert!(of_it.exists());
        drop(process);
        assert!(!of_it.exists());
    }
}
