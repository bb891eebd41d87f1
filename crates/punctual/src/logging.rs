//! Logs to stderr, without ever waiting for it.
//!
//! `serve` starts it before anything else. Lines go through a bounded queue to a thread of its own; when whoever
//! reads stderr is stuck and the queue is full, lines are dropped and counted, and the service goes on. The count
//! is logged as soon as stderr takes lines again.

use std::io::{self, IsTerminal, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Log, LogFormat};

/// Lines that wait for stderr; some megabytes at the most.
const QUEUE: usize = 8_192;

/// How long the last lines may take to be written when the process ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Keeps the log going; dropped, it writes out what is left.
pub struct Logging {
    lines: Lines,
    written: Receiver<()>,
}

impl Logging {
    /// Sends every event of this process, and every panic, to stderr.
    pub fn start(log: &Log) -> anyhow::Result<Self> {
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
            tracing::error!(panic.place = place, panic.message = message, "a thread panicked");
        }));
        Ok(Self { lines, written })
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        // Of a stuck stderr the queue may be full: then there is nobody to say farewell to.
        if self.lines.queue.try_send(Line::Last).is_ok() {
            self.written.recv_timeout(FAREWELL).ok();
        }
    }
}

/// What is sent to the writing thread.
enum Line {
    Text(Vec<u8>),
    Last,
}

/// The way to the writing thread.
#[derive(Clone)]
struct Lines {
    queue: SyncSender<Line>,
    dropped: Arc<AtomicU64>,
}

impl Write for Lines {
    /// Takes a whole line: the subscriber hands over one event in one call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Line::Text(line.to_vec())).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn spawn_writer(mut out: impl Write + Send + 'static, format: LogFormat) -> io::Result<(Lines, Receiver<()>)> {
    let (queue, lines) = mpsc::sync_channel(QUEUE);
    let (done, written) = mpsc::sync_channel(1);
    let dropped = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&dropped);
    thread::Builder::new().name("log".to_owned()).spawn(move || {
        // A stderr that nobody reads any more is no reason to stop; its lines are lost either way.
        for line in lines {
            let Line::Text(text) = line else { break };
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
    Ok((Lines { queue, dropped }, written))
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, Mutex};

    use super::*;

    /// An output that takes nothing until it is opened.
    #[derive(Clone, Default)]
    struct Stuck(Arc<Gate>);

    #[derive(Default)]
    struct Gate {
        open: Mutex<bool>,
        opened: Condvar,
        written: Mutex<Vec<u8>>,
    }

    impl Stuck {
        fn open(&self) {
            *self.0.open.lock().unwrap() = true;
            self.0.opened.notify_all();
        }
    }

    impl Write for Stuck {
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
    fn a_stuck_stderr_drops_and_counts_lines_and_holds_up_nobody() {
        let stderr = Stuck::default();
        let (mut lines, written) = spawn_writer(stderr.clone(), LogFormat::Json).unwrap();
        // The thread holds one line, the queue holds its fill, and the rest is dropped.
        let sent = QUEUE + 100;
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
