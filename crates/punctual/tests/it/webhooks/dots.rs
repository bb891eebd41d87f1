//! A host with a trailing dot is the host without it: one target, with one breaker and one bound.

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{Caller, SOON, World, every, id_of};

const MINIMUM: usize = 5;

async fn open(caller: &Caller) -> Vec<Value> {
    caller.list("/v1/admin/breakers").await
}

#[tokio::test]
async fn a_breaker_is_the_same_with_a_dot_and_without() {
    let world = World::start_with(|serve| {
        serve.setting("BREAKERS__MINIMUM", &MINIMUM.to_string()).setting("BREAKERS__PROBE_SECONDS", "600")
    })
    .await;
    let caller = world.caller();
    // Nothing listens there; half of the failing runs name the host with the dot and half without.
    let task = |number: usize| {
        let host = if number.is_multiple_of(2) { "localhost." } else { "localhost" };
        let url = format!("http://{host}:1/hook");
        json!({"type": "t", "callback_url": url, "retry_policy": every(0, 0.1)})
    };
    for task in caller.submit_all((0..MINIMUM).map(task).collect()).await {
        caller.until(&id_of(&task), "DEAD_LETTERED").await;
    }
    for spelling in ["http://localhost.:1/", "http://localhost:1"] {
        let breaker = eventually("its breaker is open", SOON, async || {
            let open = open(&caller).await;
            if open.len() == 1 { Ok(open[0].clone()) } else { Err(format!("{open:#?}")) }
        })
        .await;
        assert_eq!(breaker["target"], "http://localhost:1", "{breaker:#}");
        let reset = json!({"tenant": "default", "target": spelling});
        assert_eq!(caller.api.post("/v1/admin/breakers/reset", &reset).await.status(), 204, "{spelling}");
        caller.api.post("/v1/admin/breakers/reset", &reset).await.problem_code(404, "not_found");
        for task in caller.submit_all((0..MINIMUM).map(task).collect()).await {
            caller.until(&id_of(&task), "DEAD_LETTERED").await;
        }
    }
}
