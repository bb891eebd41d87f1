//! On whose behalf a webhook's host is looked up.

use std::borrow::Cow;

use punctual_core::lane::{Lane, LaneId};
use punctual_core::state::State;
use punctual_core::task::{Callback, CallbackBody, NewTask};
use punctual_testkit::fixtures::{START, task};

use super::*;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(20);

/// A tenant whose names hang has no thread left. The HTTP client tells no more than the URL, so
/// whose name it is depends on where it begins to connect.
#[tokio::test]
async fn a_webhook_is_looked_up_for_its_tenant() {
    rustls::crypto::ring::default_provider().install_default().ok();
    let (release, hangs) = std::sync::mpsc::channel::<()>();
    let hangs = Arc::new(parking_lot::Mutex::new(hangs));
    let lookups = Lookups::new(Arc::new(move |name| {
        if name == "slow.example" {
            hangs.lock().recv().ok();
        }
        Ok(vec![([127, 0, 0, 1], 0).into()])
    }));
    let config = WebhookConfig { allowed: AllowedNetworks::loopback(), ..WebhookConfig::default() };
    let webhooks = Webhooks::with_lookups(&config, &lookups);
    let call = tokio::spawn(async move {
        let task = running(task().tenant("patient").build(), "http://slow.example:1/");
        webhooks.call(&task, None, &SigningKeys::NONE, START, Instant::now() + SOON).await
    });
    punctual_testkit::eventually::eventually("its tenant looks it up", SOON, async || {
        let busy = lookups.threads_of("patient");
        if busy == 1 { Ok(()) } else { Err(busy.to_string()) }
    })
    .await;
    drop(release);
    call.await.unwrap();
}

fn running(mut new: NewTask, url: &str) -> Task {
    new.body.callback = Some(Callback { url: url.to_owned(), headers: [].into(), body: CallbackBody::Payload });
    let lane = Arc::new(Lane { id: LaneId::new(1), key: new.lane.clone() });
    let mut task = Task::created(Cow::Owned(new), lane, State::Pending);
    (task.position.state, task.position.attempts) = (State::Running, 1);
    task
}
