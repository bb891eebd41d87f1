//! Webhooks that never end leave slots to others, at the numbers that docs/operations.md states.

use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Serve;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::json;

use crate::it::world::{Caller, PUNCTUAL, SOON, World, caller_of};

/// A priority of each band.
const BANDS: [u8; 3] = [9, 5, 1];

/// Sinks whose path `/hang` never answers.
fn hanging_sinks(count: usize) -> Vec<Sink> {
    let sinks: Vec<Sink> = (0..count).map(|_| Sink::start()).collect();
    for sink in &sinks {
        sink.answer("/hang", SinkAnswer::hang());
    }
    sinks
}

/// Submits more hanging calls of each priority to each sink than a target has slots.
async fn submit_hanging(caller: &Caller, sinks: &[Sink], priorities: &[u8]) {
    for sink in sinks {
        let task = |priority| json!({"type": "t", "priority": priority, "callback_url": sink.url("/hang")});
        let tasks = priorities.iter().flat_map(|priority| vec![task(priority); 70]).collect();
        caller.submit_all(tasks).await;
    }
}

/// Waits until this many calls hang.
async fn until_hanging(sinks: &[Sink], count: usize) {
    eventually("the calls hang", SOON, async || {
        let hanging = sinks.iter().map(Sink::waiting).sum::<usize>();
        if hanging >= count { Ok(()) } else { Err(format!("{hanging} calls")) }
    })
    .await;
}

/// Calls that end while the others still hang.
async fn complete(caller: &Caller, sink: &Sink, priorities: &[u8]) {
    for priority in priorities {
        let task = json!({"type": "t", "priority": priority, "callback_url": sink.url("/ok")});
        let id = caller.submit_id(task).await;
        caller.until(&id, "COMPLETED").await;
    }
}

/// Eight tenants hang in every band at two targets each.
async fn hang_eight_tenants(caller: &Caller) -> Vec<Sink> {
    let sinks = hanging_sinks(16);
    for (tenant, sinks) in sinks.chunks(2).enumerate() {
        submit_hanging(&caller.of_tenant(&format!("hanging-{tenant}")), sinks, &BANDS).await;
    }
    // Nearly all common slots, and a first one for each tenant, band and target.
    until_hanging(&sinks, 370 + 48).await;
    sinks
}

#[tokio::test]
async fn a_ninth_tenant_starts_beside_eight_that_hang() {
    let world = World::start().await;
    let sinks = hang_eight_tenants(&world.caller()).await;
    complete(&world.caller().of_tenant("ninth"), &Sink::start(), &BANDS).await;
    complete(&world.caller().of_tenant("ninth"), &sinks[0], &BANDS).await;
}

#[tokio::test]
async fn a_ninth_tenant_starts_on_postgres() {
    let postgres = Postgres::start().await;
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let serve = Serve::new(PUNCTUAL, home.path().join("unused"));
    let server = serve.setting("STORE", &postgres.create_database().await).start().await;
    let _sinks = hang_eight_tenants(&caller_of(&server)).await;
    complete(&caller_of(&server).of_tenant("ninth"), &Sink::start(), &BANDS).await;
}

#[tokio::test]
async fn a_sixth_tenant_starts_at_a_host_where_five_hang() {
    let world = World::start().await;
    let sinks = hanging_sinks(1);
    for tenant in 0..5 {
        submit_hanging(&world.caller().of_tenant(&format!("hanging-{tenant}")), &sinks, &BANDS).await;
    }
    // The common slots of the target, and a first one for each tenant and band.
    until_hanging(&sinks, 48 + 15).await;
    complete(&world.caller().of_tenant("sixth"), &sinks[0], &[5]).await;
}

#[tokio::test]
async fn a_band_starts_while_the_tenants_other_bands_hang() {
    let world = World::start().await;
    let caller = world.caller();
    let sinks = hanging_sinks(8);
    submit_hanging(&caller, &sinks, &[1, 5]).await;
    until_hanging(&sinks, 280).await;
    complete(&caller, &Sink::start(), &[9]).await;
    complete(&caller, &sinks[0], &[9]).await;
}

#[tokio::test]
async fn a_fifth_target_starts_while_four_hang() {
    let world = World::start().await;
    let sinks = hanging_sinks(4);
    submit_hanging(&world.caller(), &sinks, &[5]).await;
    until_hanging(&sinks, 4 * 49).await;
    complete(&world.caller(), &Sink::start(), &[5]).await;
}
