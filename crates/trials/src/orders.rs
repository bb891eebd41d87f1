//! The fixed settings of a trial, from before its load begins until its end: a queue of the load
//! has a low limit, and a schedule fires every second.

use std::collections::BTreeMap;
use std::time::Duration;

use punctual_client::{OccurrencePage, Schedule};
use punctual_core::ids::ScheduleId;
use punctual_core::time::Timestamp;
use punctual_testkit::eventually::{eventually, look};
use punctual_testkit::http::{ApiClient, Reply};
use serde_json::{Value, json};

use crate::dump::{PAGE, page};
use crate::history::{Occurred, Scheduled};
use crate::workload::Scene;

/// A queue of the load with a low `max_concurrency` …
pub const NARROW: &str = "narrow";
/// … of this many tasks.
const PLACES: usize = 3;

/// An edit of a schedule may have to wait for a node that fires it.
const OBEYED_WITHIN: Duration = Duration::from_secs(20);

/// The fixed settings, once they are made.
#[derive(Clone, Debug)]
pub struct StandingOrders {
    schedule: ScheduleId,
    created_at: Timestamp,
}

impl StandingOrders {
    /// Makes the settings.
    pub async fn give(scene: &Scene) -> Self {
        let api = scene.caller.api().await;
        put(&api, &format!("/v1/queues/{NARROW}"), &json!({"max_concurrency": PLACES})).await;
        let every_second = json!({
            "cron": "* * * * * *",
            "catchup": "all",
            "overlap_policy": "allow_all",
            "task": {
                "type": "tick",
                "queue": "ticks",
                "callback_url": scene.targets.good(),
                "payload": {"of": "ticks"},
                "timeout_seconds": 10,
                "retry_policy": {"max_retries": 100, "backoff": "fixed", "backoff_seconds": 0.2, "jitter": "none"},
            },
        });
        let made = put(&api, "/v1/schedules/by-name/ticks", &every_second).await;
        let made: Schedule = serde_json::from_slice(made.body()).unwrap_or_else(|error| panic!("{error}\n{made}"));
        Self { schedule: made.schedule_id, created_at: made.created_at }
    }

    /// Waits, within this time, until every instant so far has been decided; then pauses the
    /// schedule. Returns that instant.
    pub async fn end(&self, scene: &Scene, api: &ApiClient, within: Duration) -> Timestamp {
        let until = scene.in_millis(0);
        let last = Timestamp::from_millis(until.as_millis() / 1_000 * 1_000);
        let newest = format!("/v1/schedules/{}/occurrences?limit=1", self.schedule);
        // The checker reports missing records.
        look(within, async || {
            let newest: OccurrencePage = page(api, &newest).await;
            if newest.items.first().is_some_and(|newest| newest.instant >= last) { Ok(()) } else { Err(()) }
        })
        .await
        .ok();
        eventually("the schedule is paused", OBEYED_WITHIN, async || {
            let paused = api.post(&format!("/v1/schedules/{}/pause", self.schedule), &json!({})).await;
            if paused.status() == 200 { Ok(()) } else { Err(paused.to_string()) }
        })
        .await;
        until
    }

    /// The occurrences of the schedule up to `until`, as the API shows them.
    pub async fn obeyed(&self, api: &ApiClient, until: Timestamp) -> Scheduled {
        let (mut occurrences, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/schedules/{}/occurrences?limit={PAGE}{cursor}", self.schedule);
            let page: OccurrencePage = page(api, &path).await;
            occurrences.extend(page.items.into_iter().map(Occurred::from));
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        Scheduled { schedule: self.schedule, created_at: self.created_at, until, occurrences }
    }
}

/// The limits of queues, for the checker.
pub fn limits() -> BTreeMap<String, usize> {
    BTreeMap::from([(NARROW.to_owned(), PLACES)])
}

async fn put(api: &ApiClient, path: &str, body: &Value) -> Reply {
    let reply = api.call("PUT", path).json(body).send().await;
    assert!((200..300).contains(&reply.status()), "{reply}");
    reply
}
