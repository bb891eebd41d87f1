//! Records a history while it happens: cheap, and from any thread.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use punctual_core::clock::{Clock, SystemClock};
use serde::Serialize;

use super::{Act, Arrival, CallAnswer, Dumped, Grant, History, HistoryEvent, Op, RecordedCall, Shown, Stamp};

/// Records what the actors of a trial see. A clone records into the same history.
#[derive(Clone, Debug)]
pub struct Recorder {
    book: Arc<RecordBook>,
}

#[derive(Debug)]
struct RecordBook {
    began: Instant,
    began_at: i64,
    latest: AtomicI64,
    events: Mutex<Vec<HistoryEvent>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty history that begins now.
    pub fn new() -> Self {
        let began_at = wall_micros();
        let book = RecordBook { began: Instant::now(), began_at, latest: AtomicI64::new(0), events: Mutex::default() };
        Self { book: Arc::new(book) }
    }

    /// The current instant.
    pub fn now(&self) -> Stamp {
        let elapsed = i64::try_from(self.book.began.elapsed().as_micros()).unwrap_or(i64::MAX / 2);
        // Kept within the wall clock's millisecond: over minutes the two drift apart.
        let wall = wall_micros();
        let stamp = (self.book.began_at + elapsed).clamp(wall, wall + 999);
        Stamp(self.book.latest.fetch_max(stamp, Ordering::SeqCst).max(stamp))
    }

    /// A call is about to be sent; its answer ends it.
    pub fn invoke(&self, op: Op) -> OpenCall {
        OpenCall { recorder: self.clone(), begun: Some((op, self.now())) }
    }

    /// A worker got a lease.
    pub fn granted(&self, grant: Grant) {
        self.write(HistoryEvent::Grant(grant));
    }

    /// A webhook arrived.
    pub fn arrived(&self, arrival: Arrival) {
        self.write(HistoryEvent::Arrival(arrival));
    }

    /// The nemesis did something.
    pub fn act(&self, what: impl Into<String>) {
        self.write(HistoryEvent::Act(Act { what: what.into(), at: self.now() }));
    }

    /// Reads what was recorded so far.
    pub fn peek<T>(&self, look: impl FnOnce(&[HistoryEvent]) -> T) -> T {
        look(&self.book.events.lock())
    }

    /// The history so far, with the tasks as they are now.
    pub fn finish(&self, dump: Vec<Dumped>) -> History {
        History { events: self.book.events.lock().clone(), dump, ..History::default() }
    }

    fn write(&self, event: HistoryEvent) {
        self.book.events.lock().push(event);
    }
}

fn wall_micros() -> i64 {
    SystemClock.now().as_millis() * 1_000
}

/// A call that was sent. If it is dropped without an answer, its effect is unknown.
#[derive(Debug)]
#[must_use = "a call that is dropped is recorded as one without an answer"]
pub struct OpenCall {
    recorder: Recorder,
    begun: Option<(Op, Stamp)>,
}

impl OpenCall {
    /// It was answered with 2xx.
    pub fn ok(self, shown: Shown) {
        self.end(CallAnswer::Ok(shown));
    }

    /// It was answered with 4xx.
    pub fn refused(self, status: u16, code: &str) {
        self.end(CallAnswer::Refused { status, code: code.to_owned() });
    }

    /// It was not answered, or with 5xx.
    pub fn unknown(self) {
        drop(self);
    }

    /// It was answered like this.
    pub fn end(mut self, answer: CallAnswer) {
        self.write(answer);
    }

    fn write(&mut self, answer: CallAnswer) {
        if let Some((op, invoked)) = self.begun.take() {
            let answered = self.recorder.now();
            self.recorder.write(HistoryEvent::Call(RecordedCall { op, invoked, answered, answer }));
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.write(CallAnswer::Unknown);
    }
}

impl History {
    /// Writes the history out, one JSON object per line, and returns the file's full path.
    pub fn write_to(&self, path: &Path) -> io::Result<PathBuf> {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        for event in &self.events {
            line(&mut file, event)?;
        }
        for task in &self.dump {
            line(&mut file, task)?;
        }
        for schedule in &self.schedules {
            line(&mut file, schedule)?;
        }
        if let Some(witness) = &self.witness {
            line(&mut file, witness)?;
        }
        file.flush()?;
        path.canonicalize()
    }
}

fn line(file: &mut impl Write, entry: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *file, entry)?;
    file.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use punctual_core::ids::TaskId;

    use super::*;

    #[test]
    fn a_dropped_call_is_unknown() {
        let recorder = Recorder::new();
        drop(recorder.invoke(Op::Cancel { task: TaskId::new() }));
        recorder.invoke(Op::Redrive { task: TaskId::new() }).refused(409, "not_dead_lettered");
        let history = recorder.finish(Vec::new());
        let answers: Vec<&CallAnswer> = history.calls().map(|call| &call.answer).collect();
        assert!(matches!(answers[..], [CallAnswer::Unknown, CallAnswer::Refused { status: 409, .. }]), "{answers:?}");
        assert!(history.calls().all(|call| call.invoked <= call.answered));
    }

    #[test]
    fn a_history_is_written_as_json_lines() {
        let recorder = Recorder::new();
        recorder.act("kill");
        recorder.invoke(Op::Cancel { task: TaskId::new() }).unknown();
        let home = tempfile::tempdir().unwrap();
        let path = recorder.finish(Vec::new()).write_to(&home.path().join("history.jsonl")).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let events: Vec<HistoryEvent> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(matches!(&events[..], [HistoryEvent::Act(_), HistoryEvent::Call(_)]), "{text}");
    }
}
