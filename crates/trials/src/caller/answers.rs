//! Turns the server's replies into the answers of a history.

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use punctual_testkit::http::Reply;
use serde_json::Value;

use crate::history::{CallAnswer, Shown};

/// The answer to a call about one task.
pub fn answer(reply: Option<&Reply>) -> CallAnswer {
    let Some(reply) = reply else { return CallAnswer::Unknown };
    let replayed = reply.header("idempotent-replayed") == Some("true");
    judged(reply.status(), code_in(reply), || {
        let task = reply.value();
        Shown { lease_expires_at: instant(&task["lease_expires_at"]), ..shown(&task, reply.status(), replayed) }
    })
}

/// The answers to the items of one request; all unknown if it was not answered.
pub fn items(reply: Option<&Reply>, count: usize) -> Vec<CallAnswer> {
    let Some(reply) = reply else { return vec![CallAnswer::Unknown; count] };
    if reply.status() != 200 {
        return vec![judged(reply.status(), code_in(reply), Shown::default); count];
    }
    let answer = reply.value();
    let items = answer["items"].as_array().filter(|items| items.len() == count);
    let items = items.unwrap_or_else(|| panic!("not {count} items: {reply}"));
    let one = |item: &Value| {
        let status = item["status"].as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(0);
        let code = item["error"]["code"].as_str().unwrap_or_default().to_owned();
        judged(status, code, || {
            let task = if item["task"].is_object() { &item["task"] } else { item };
            Shown { lease_expires_at: instant(&item["lease_expires_at"]), ..shown(task, status, status == 200) }
        })
    };
    items.iter().map(one).collect()
}

fn judged(status: u16, code: String, shown: impl FnOnce() -> Shown) -> CallAnswer {
    match status {
        200..300 => CallAnswer::Ok(shown()),
        400..500 => CallAnswer::Refused { status, code },
        _ => CallAnswer::Unknown,
    }
}

/// The stable code of a problem.
fn code_in(reply: &Reply) -> String {
    let problem = serde_json::from_slice::<Value>(reply.body()).unwrap_or_default();
    problem["code"].as_str().unwrap_or_default().to_owned()
}

fn shown(task: &Value, status: u16, replayed: bool) -> Shown {
    Shown {
        status,
        task: id(task),
        state: task["status"].as_str().map(str::to_owned),
        version: task["version"].as_u64(),
        replayed,
        lease_expires_at: None,
    }
}

fn id(task: &Value) -> Option<TaskId> {
    task["task_id"].as_str()?.parse().ok()
}

fn instant(value: &Value) -> Option<Timestamp> {
    Timestamp::parse(value.as_str()?).ok()
}
