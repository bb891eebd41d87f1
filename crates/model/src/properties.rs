//! The properties for the checker: each law must always hold, and some events must occur, so that
//! no world is too small to break a law.

use punctual_core::state::State;
use stateright::Property;

use crate::bounds::{ModelBounds, Route};
use crate::law::Law;
use crate::protocol::Protocol;
use crate::row::{ModelRow, StepKind};
use crate::world::World;

/// The properties of a world of this size.
pub(crate) fn of(bounds: &ModelBounds) -> Vec<Property<Protocol>> {
    let mut properties = laws();
    properties.extend(sights(bounds));
    properties
}

fn laws() -> Vec<Property<Protocol>> {
    vec![
        always::<{ Law::TokensGrow as usize }>(),
        always::<{ Law::OneCompletion as usize }>(),
        always::<{ Law::NewestCompletes as usize }>(),
        always::<{ Law::Fenced as usize }>(),
        always::<{ Law::FinalAbsorbs as usize }>(),
        always::<{ Law::AttemptsBounded as usize }>(),
        always::<{ Law::AttemptsCounted as usize }>(),
        always::<{ Law::NoLeaseAfterCancel as usize }>(),
        always::<{ Law::StopIsKept as usize }>(),
        always::<{ Law::TrailGapless as usize }>(),
        always::<{ Law::StepsLegal as usize }>(),
        Property::always(Law::RepeatAccepted.sentence(), |protocol: &Protocol, world: &World| {
            world.rows.iter().all(|row| protocol.repeats_are_accepted(row))
        }),
        always::<{ Law::AnswersTrue as usize }>(),
        always::<{ Law::LeaseKept as usize }>(),
        always::<{ Law::WithinDeadline as usize }>(),
        always::<{ Law::RedrivenRuns as usize }>(),
    ]
}

fn always<const LAW: usize>() -> Property<Protocol> {
    Property::always(Law::ALL[LAW].sentence(), |_, world: &World| !world.broken.has(Law::ALL[LAW]))
}

/// The events that must occur in some world.
fn sights(bounds: &ModelBounds) -> Vec<Property<Protocol>> {
    let mut sights = vec![
        Property::sometimes("a task completes", |_, world: &World| {
            any(world, |row| row.position.state == State::Completed)
        }),
        Property::sometimes("a task becomes a dead letter", |_, world: &World| {
            any(world, |row| row.position.state == State::DeadLettered)
        }),
        Property::sometimes("a running task is cancelled", |_, world: &World| {
            any(world, |row| row.position.state == State::Cancelled && row.times(StepKind::CancelRequested) > 0)
        }),
        Property::sometimes("a write comes too late", |_, world: &World| world.has_a_late_write()),
        Property::sometimes("the reaper has judged a hold that changed since", |_, world: &World| {
            world.has_a_stale_judgement()
        }),
        Property::sometimes("every task finishes", |_, world: &World| world.is_finished()),
    ];
    if bounds.max_retries > 0 {
        sights.push(Property::sometimes("a task runs while an older token exists", |_, world: &World| {
            any(world, |row| row.position.state == State::Running && row.tokens().count() > 1)
        }));
    }
    if bounds.redrives > 0 {
        sights.push(Property::sometimes("a task completes after a re-drive", |_, world: &World| {
            any(world, |row| row.position.state == State::Completed && row.times(StepKind::Redriven) > 0)
        }));
    }
    if bounds.give_backs > 0 {
        sights.push(Property::sometimes("a task completes after it was given back", |_, world: &World| {
            any(world, |row| row.position.state == State::Completed && row.times(StepKind::GivenBack) > 0)
        }));
    }
    if bounds.spared > 0 {
        sights.push(Property::sometimes("a task completes after a failure that was spared", |_, world: &World| {
            any(world, |row| row.position.state == State::Completed && row.times_spared() > 0)
        }));
    }
    if bounds.crashes > 0 {
        sights.push(Property::sometimes("a task completes after a crash", |_, world: &World| {
            world.crashes == 0 && any(world, |row| row.position.state == State::Completed)
        }));
    }
    if bounds.expires_in.is_some() {
        sights.push(Property::sometimes("a task expires", |_, world: &World| {
            any(world, |row| row.position.state == State::Failed)
        }));
    }
    if bounds.tasks.contains(&Route::Pull) {
        sights.push(Property::sometimes("a heartbeat extends a lease", |_, world: &World| {
            any(world, |row| {
                row.hold.is_some_and(|hold| hold.ticks == ModelBounds::LEASE && hold.deadline < ModelBounds::DEADLINE)
            })
        }));
    }
    sights
}

fn any(world: &World, condition: impl Fn(&ModelRow) -> bool) -> bool {
    world.rows.iter().any(condition)
}
