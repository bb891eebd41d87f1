//! Makes the task of an occurrence of what the schedule's owner wrote: the same body, judged by the same rules as every
//! other submission, when it is due.

use punctual_client as wire;
use punctual_core::ids::NodeId;
use punctual_core::schedules::Schedule;
use punctual_core::state::By;
use punctual_core::task::{Body, NewTask};
use punctual_core::trail::Actor;
use punctual_scheduler::occurrences::{Firing, Maker};

use crate::problem::Problem;
use crate::state::ApiConfig;
use crate::submit::Submitter;

/// Makes tasks for the occurrences that this node fires.
pub fn maker(config: &ApiConfig, node: NodeId) -> Maker {
    // Its size was judged when the schedule was written: a limit that was lowered since must not stop it.
    let config = ApiConfig { payload_bytes: usize::MAX, ..config.clone() };
    std::sync::Arc::new(move |schedule: &Schedule, firing: &Firing| {
        let Firing { instant, execute_at, now } = *firing;
        let new: wire::NewTask =
            serde_json::from_str(schedule.definition.task.get()).map_err(|fault| fault.to_string())?;
        let submitted = Submitter::new(&config, &schedule.tenant, now, node).check(new, None);
        let task = submitted.map_err(|problem| sentence(&problem))?;
        // What the queue adds to the instant of a task that is due now, it adds to this one's.
        let spread = task.due_at.millis_since(task.execute_at);
        let trail = By { now, node, actor: Actor::Schedule }.scheduled(instant);
        let body = Body { schedule_id: Some(schedule.id), ..task.body };
        Ok(NewTask { execute_at, due_at: execute_at.plus_millis(spread), body, trail, ..task })
    })
}

fn sentence(problem: &Problem) -> String {
    if problem.errors().is_empty() {
        return problem.detail().to_owned();
    }
    let told = problem.errors().iter().map(|fault| format!("{}: {}", fault.place(), fault.message));
    told.collect::<Vec<_>>().join("; ")
}
