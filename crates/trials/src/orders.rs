//! The standing orders of a trial: what is set before its load begins, and holds until it is over.

use std::collections::BTreeMap;

use punctual_testkit::http::Api;
use serde_json::json;

/// A queue of the load of which only a few tasks may be in hands at once …
pub const NARROW: &str = "narrow";
/// … so many.
const PLACES: usize = 3;

/// Gives the orders to a server.
pub async fn give(api: &Api) {
    let limited =
        api.call("PUT", &format!("/v1/queues/{NARROW}")).json(&json!({"max_concurrency": PLACES})).send().await;
    assert!((200..300).contains(&limited.status()), "{limited}");
}

/// The limits of queues, as the checker has to know them.
pub fn limits() -> BTreeMap<String, usize> {
    BTreeMap::from([(NARROW.to_owned(), PLACES)])
}
