//! Webhook targets: one that works, one that is slow, one that fails every other time.

use std::time::Duration;

use punctual_testkit::sink::{Hit, Sink, SinkAnswer};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::history::{Arrival, Recorder, Stamp};

/// The number of scripted answers of the unreliable target; after them it always works.
const MOODS: usize = 4_000;

/// A target with a path for each behaviour.
#[derive(Debug)]
pub struct TemperTargets {
    sink: Sink,
}

impl TemperTargets {
    /// Starts the target.
    pub fn start() -> Self {
        let sink = Sink::start();
        sink.answer("/slow", SinkAnswer::status(200).after(Duration::from_millis(150)));
        let moods = (0..MOODS).map(|n| SinkAnswer::status(if n % 2 == 0 { 500 } else { 200 }));
        sink.script("/moody", moods);
        sink.answer("/gone", SinkAnswer::status(404));
        Self { sink }
    }

    /// The path that works.
    pub fn good(&self) -> String {
        self.sink.url("/good")
    }

    /// The path that refuses every webhook for good.
    pub fn gone(&self) -> String {
        self.sink.url("/gone")
    }

    /// The slow path.
    pub fn slow(&self) -> String {
        self.sink.url("/slow")
    }

    /// A random path that works in the end.
    pub fn any(&self, dice: &mut StdRng) -> String {
        self.sink.url(["/good", "/slow", "/moody"][dice.random_range(0..3)])
    }

    /// Webhooks that wait for their answers.
    pub fn waiting(&self) -> usize {
        self.sink.waiting()
    }

    /// Records everything that arrived.
    pub fn record_arrivals(&self, recorder: &Recorder) {
        for hit in self.sink.all_hits() {
            recorder.arrived(arrival(&hit));
        }
    }
}

/// A request to the sink, as an event of the history.
pub fn arrival(hit: &Hit) -> Arrival {
    let number =
        |name: &str| hit.header(name).parse::<u64>().unwrap_or_else(|error| panic!("{name}: {error}; {hit:?}"));
    Arrival {
        task: hit.header("punctual-task-id").parse().unwrap_or_else(|error| panic!("{error}; {hit:?}")),
        attempt: u32::try_from(number("punctual-attempt")).unwrap_or(u32::MAX),
        token: number("punctual-fencing-token"),
        payload: serde_json::from_slice(&hit.body).unwrap_or_else(|error| panic!("{error}; {hit:?}")),
        at: Stamp(hit.at.as_microsecond()),
    }
}
