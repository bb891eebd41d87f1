//! The rules of `callback_url`, `callback_headers` and `callback_body`, for a task and for the
//! defaults of a queue.
//!
//! Invariant: a URL that passes names a target, and no address in a forbidden network.

use std::collections::{BTreeMap, HashSet};

use punctual_core::callback;
use punctual_core::lane::Route;
use punctual_core::networks::AllowedNetworks;
use punctual_core::task::{Callback, CallbackBody, limits};

use crate::error::pointer_token;
use crate::faults::Faults;

type Headers = BTreeMap<String, String>;

impl Faults {
    /// The route of a task and its callback. `allowed` says which networks it may go to.
    pub fn callback(
        &mut self,
        url: Option<String>,
        headers: Option<Headers>,
        body: CallbackBody,
        allowed: &AllowedNetworks,
    ) -> (Route, Option<Callback>) {
        let headers = headers.unwrap_or_default();
        self.callback_headers(&headers);
        let Some(url) = url else {
            if !headers.is_empty() && !self.is_left_out("/callback_url") {
                self.add("/callback_headers", "needs a callback_url beside it");
            }
            if body != CallbackBody::default() {
                self.add("/callback_body", "needs a callback_url beside it");
            }
            return (Route::Pull, None);
        };
        match callback::target_of(&url) {
            Ok((url, target)) => {
                if is_forbidden(&url, allowed) {
                    self.add("/callback_url", "points into a network that callbacks may not go to; `webhooks.allow_networks` lists those that they may");
                }
                (Route::Push(target), Some(Callback { url, headers, body }))
            }
            Err(fault) => {
                self.add("/callback_url", fault.to_string());
                (Route::Pull, None)
            }
        }
    }

    fn callback_headers(&mut self, headers: &Headers) {
        if headers.len() > limits::HEADERS {
            self.add("/callback_headers", format!("must have at most {} entries", limits::HEADERS));
        }
        if headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>() > limits::HEADER_BYTES {
            self.add("/callback_headers", format!("must have at most {} bytes in all", limits::HEADER_BYTES));
        }
        let mut seen = HashSet::new();
        for (name, value) in headers {
            let pointer = || format!("/callback_headers/{}", pointer_token(name));
            if let Err(fault) = callback::check_header(name, value) {
                self.add(pointer(), fault.to_string());
            } else if !seen.insert(name.to_ascii_lowercase()) {
                self.add(pointer(), "is given twice, in another case");
            }
        }
    }
}

/// Whether the URL names an address that may not be called. The worker checks host names, each time
/// that it resolves one.
fn is_forbidden(url: &str, allowed: &AllowedNetworks) -> bool {
    let Ok(url) = url::Url::parse(url) else { return false };
    let port = url.port_or_known_default().unwrap_or_default();
    callback::literal_address(&url).is_some_and(|address| allowed.forbids_at(address, port))
}
