//! The log on stderr. The server never waits for it.
//!
//! `serve` starts it before anything else. Lines go through a bounded queue to a thread of their
//! own. If stderr is stuck and the queue is full, lines are dropped and counted, and the server
//! goes on. The count is logged as soon as stderr takes lines again.
//!
//! `tracing-appender` would save some thirty lines. It does not report the count, so the writer
//! would still be ours. At the end it prints to stdout if stderr is stuck, which panics if that is
//! closed.

use std::io::{self, IsTerminal, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{LogFormat, LogSettings};

/// Lines that wait for stderr: some megabytes at most.
const QUEUED_LINES_MAX: usize = 8_192;

/// How long the last lines may take when the process ends.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Keeps the log running. Dropping it writes the lines that are left.
pub struct Logging {
    lines: LogQueue,
    written: Receiver<()>,
}

impl Logging {
    /// Sends every event of this process, and every panic, to stderr.
    pub fn start(log: &LogSettings) -> anyhow::Result<Self> {
        let (lines, written) = spawn_writer(io::stderr(), log.format)?;
        let filter = EnvFilter::builder().parse(&log.level)?;
        let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(lines.clone());
        match log.format {
            LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).init(),
            LogFormat::Json => builder.json().flatten_event(true).with_span_list(false).init(),
        }
        panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            let message = panic.payload_as_str().unwrap_or("no message");
            tracing::error!(
                panic.place = place,
                panic.message = message,
                "a thread panicked; its work fails, and its owner decides what follows"
            );
        }));
        Ok(Self { lines, written })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // If the queue is full, stderr is stuck and nothing more can be written.
        if self.lines.queue.try_send(LogMessage::End).is_ok() {
            self.written.recv_timeout(FLUSH_TIMEOUT).ok();
        }
    }
}

/// A message to the writing thread.
enum LogMessage {
    Line(Vec<u8>),
    End,
}

/// The queue to the writing thread.
#[derive(Clone)]
struct LogQueue {
    queue: SyncSender<LogMessage>,
    dropped: Arc<AtomicU64>,
}

impl Write for LogQueue {
    /// Queues a whole line: the subscriber writes an event in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(LogMessage::Line(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn spawn_writer(mut out: impl Write + Send + 'static, format: LogFormat) -> io::Result<(LogQueue, Receiver<()>)> {
    let (queue, lines) = mpsc::sync_channel(QUEUED_LINES_MAX);
    let (done, written) = mpsc::sync_channel(1);
    let dropped = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&dropped);
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        // A failed write is no reason to stop: the line is lost either way.
        for line in lines {
            let LogMessage::Line(text) = line else { break };
            drop(out.write_all(&text));
            let lost = count.swap(0, Ordering::Relaxed);
            if lost > 0 {
                drop(match format {
                    LogFormat::Text => writeln!(out, "WARN stderr was stuck: log.dropped={lost} lines were dropped"),
                    LogFormat::Json => {
                        writeln!(out, r#"{{"level":"WARN","message":"stderr was stuck","log.dropped":{lost}}}"#)
                    }
                });
            }
        }
        drop(out.flush());
        done.send(()).ok();
    })?;
    Ok((LogQueue { queue, dropped }, written))
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// An output that blocks until it is opened.
    #[derive(Clone, Default)]
    struct StuckOutput(Arc<OutputState>);

    #[derive(Default)]
    struct OutputState {
        open: Mutex<bool>,
        opened: Condvar,
        written: Mutex<Vec<u8>>,
    }

    impl StuckOutput {
        fn open(&self) {
            *self.0.open.lock().unwrap() = true;
            self.0.opened.notify_all();
        }
    }

    impl Write for StuckOutput {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.opened.wait_while(self.0.open.lock().unwrap(), |open| !*open).unwrap());
            self.0.written.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_stderr_drops_and_counts_lines() {
        let stderr = StuckOutput::default();
        let (mut lines, written) = spawn_writer(stderr.clone(), LogFormat::Json).unwrap();
        // The thread holds one line, the queue is full, and the rest is dropped.
        let sent = QUEUED_LINES_MAX + 100;
        for number in 0..sent {
            lines.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        let dropped = lines.dropped.load(Ordering::Relaxed);
        assert!((99..=100).contains(&dropped), "{dropped}");
        stderr.open();
        drop(lines);
        written.recv().unwrap();
        let text = String::from_utf8(stderr.0.written.lock().unwrap().clone()).unwrap();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("line ")).count(),
            sent - usize::try_from(dropped).unwrap()
        );
        assert_eq!(text.lines().filter(|line| line.ends_with(&format!("\"log.dropped\":{dropped}}}"))).count(), 1);
    }
}
