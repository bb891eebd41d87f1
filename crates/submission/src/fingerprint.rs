//! The digest that identifies a repeated submission.
//!
//! It covers the meaning and not the bytes: blanks, the order of keys and defaults that every node
//! has make no difference. A delay stays a delay, or no retry of a request would ever match. A
//! default that a node or a queue may set otherwise is no part of it: a repeat on another node, or
//! after a restart, is the same submission. Numbers in the payload count as they are written: two
//! of them may differ where doubles do not.
//!
//! Invariant: the digest of a submission never changes without the earlier one being accepted,
//! since keys of earlier builds are stored, for `retention.idempotency_days`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use punctual_client::{Dependency, RetryPolicyFields};
use punctual_core::json::Json;
use punctual_core::lane::LaneKey;
use punctual_core::retry::{Backoff, Jitter, RetryCondition, RetryPolicy};
use punctual_core::task::{Body, CallbackBody, Idempotency, OnDependencyFailure};
use punctual_core::time::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::fields::When;

/// The meaning of a submission.
pub struct Meaning<'a> {
    /// Its type, queue and priority.
    pub lane: &'a LaneKey,
    /// When it is to run, in the submitter's terms.
    pub when: When,
    /// When it expires.
    pub expires_at: Option<Timestamp>,
    /// Its dependencies as they were sent: a task of a batch gets another id each time.
    pub depends_on: &'a [Dependency],
    /// The retry fields that were given.
    pub retry_policy: Option<&'a RetryPolicyFields>,
    /// Whether a timeout was given.
    pub has_timeout: bool,
    /// The rest, with the defaults of this node.
    pub body: &'a Body,
}

/// The digested fields. Their order is fixed: digests of earlier builds are compared with new ones.
#[derive(Serialize)]
struct Digested<'a> {
    kind: &'a str,
    queue: &'a str,
    priority: u8,
    when: When,
    expires_at: Option<Timestamp>,
    callback_url: Option<&'a str>,
    callback_headers: BTreeMap<String, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_policy: Option<&'a DigestedPolicy<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_millis: Option<u64>,
    metadata: &'a BTreeMap<String, String>,
    // Fields that were added later are left out when absent, so that older digests still match.
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency_key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    depends_on: &'a [Dependency],
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dependency_failure: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    callback_body: Option<&'static str>,
}

/// The number of retries that earlier builds digested for a submission that gave none.
const EARLIER_RETRIES: u32 = 3;

/// The fields of a retry policy.
#[derive(PartialEq, Eq, Serialize)]
struct DigestedPolicy<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff: Option<Backoff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backoff_millis: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_backoff_millis: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    jitter: Option<Jitter>,
    // Added later, see above.
    #[serde(skip_serializing_if = "Option::is_none")]
    delays_millis: Option<&'a [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_on: Option<&'a BTreeSet<RetryCondition>>,
}

impl Meaning<'_> {
    /// How a repeat of the submission under this key is recognised.
    pub fn under(&self, key: String) -> Idempotency {
        let mut payload = Vec::new();
        canonical(&self.body.payload, &mut payload);
        let (given, timeout_millis) = (self.given_policy(), self.has_timeout.then_some(self.body.timeout_millis));
        let fingerprint = self.digest(given.as_ref(), timeout_millis, &payload);
        // Earlier builds digested the defaults of the node that took the submission.
        let (whole, timeout_millis) = (Some(self.earlier_policy()), Some(self.body.timeout_millis));
        let is_whole = given == whole && self.has_timeout;
        let earlier = (!is_whole).then(|| self.digest(whole.as_ref(), timeout_millis, &payload));
        Idempotency { key, fingerprint, earlier, replace_final: false }
    }

    fn whole_policy(&self) -> DigestedPolicy<'_> {
        let policy = &self.body.retry_policy;
        DigestedPolicy {
            max_retries: Some(policy.max_retries),
            backoff: Some(policy.backoff),
            backoff_millis: Some(policy.backoff_millis),
            max_backoff_millis: Some(policy.max_backoff_millis),
            jitter: Some(policy.jitter),
            delays_millis: Some(policy.delays_millis.as_slice()).filter(|delays| !delays.is_empty()),
            retry_on: policy.retry_on.as_ref(),
        }
    }

    /// The whole policy as earlier builds had it, with the number of retries that was the default
    /// then.
    fn earlier_policy(&self) -> DigestedPolicy<'_> {
        let whole = self.whole_policy();
        let is_given = self.retry_policy.is_some_and(|given| given.max_retries.is_some());
        let is_default = whole.max_retries == Some(RetryPolicy::default().max_retries);
        let max_retries = if is_default && !is_given { Some(EARLIER_RETRIES) } else { whole.max_retries };
        DigestedPolicy { max_retries, ..whole }
    }

    /// The fields that were given; none if there is none.
    fn given_policy(&self) -> Option<DigestedPolicy<'_>> {
        let given = self.retry_policy.filter(|given| **given != RetryPolicyFields::default())?;
        let whole = self.whole_policy();
        Some(DigestedPolicy {
            max_retries: whole.max_retries.filter(|_| given.max_retries.is_some()),
            backoff: whole.backoff.filter(|_| given.backoff.is_some()),
            backoff_millis: whole.backoff_millis.filter(|_| given.backoff_seconds.is_some()),
            max_backoff_millis: whole.max_backoff_millis.filter(|_| given.max_backoff_seconds.is_some()),
            jitter: whole.jitter.filter(|_| given.jitter.is_some()),
            delays_millis: whole.delays_millis.filter(|_| given.delays_seconds.is_some()),
            retry_on: whole.retry_on.filter(|_| given.retry_on.is_some()),
        })
    }

    fn digest(
        &self,
        retry_policy: Option<&DigestedPolicy<'_>>,
        timeout_millis: Option<u64>,
        payload: &[u8],
    ) -> [u8; 32] {
        let callback = self.body.callback.as_ref();
        let body = callback.map(|callback| callback.body);
        let (on_failure, usual) = (self.body.dependencies.on_failure, OnDependencyFailure::default());
        let headers = callback.into_iter().flat_map(|callback| &callback.headers);
        let digested = Digested {
            kind: &self.lane.kind,
            queue: &self.lane.queue,
            priority: self.lane.priority,
            when: self.when,
            expires_at: self.expires_at,
            callback_url: callback.map(|callback| callback.url.as_str()),
            callback_headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), value.as_str())).collect(),
            retry_policy,
            timeout_millis,
            metadata: &self.body.metadata,
            ordering_key: self.body.ordering_key.as_deref(),
            concurrency_key: self.body.concurrency_key.as_deref(),
            depends_on: self.depends_on,
            on_dependency_failure: Some(on_failure).filter(|_| on_failure != usual).map(OnDependencyFailure::as_str),
            callback_body: body.filter(|body| *body != CallbackBody::default()).map(CallbackBody::as_str),
        };
        let mut bytes = serde_json::to_vec(&digested).expect("invariant: only texts, numbers and maps of texts");
        bytes.push(b'\n');
        bytes.extend_from_slice(payload);
        Sha256::digest(&bytes).into()
    }
}

/// Writes a valid document without blanks, with sorted keys and one way to escape strings.
fn canonical(document: &Json, out: &mut Vec<u8>) {
    let mut reader = JsonReader { rest: document.get().as_bytes() };
    reader.value(out);
}

/// Reads a document that is known to be valid JSON.
struct JsonReader<'a> {
    rest: &'a [u8],
}

impl<'a> JsonReader<'a> {
    /// Recursion is bounded: the strict reader accepts 127 levels.
    fn value(&mut self, out: &mut Vec<u8>) {
        match self.peek() {
            Some(b'{') => self.object(out),
            Some(b'[') => self.array(out),
            Some(b'"') => write_string(&self.string(), out),
            _ => {
                let end = self.rest.iter().position(|b| b",]} \t\r\n".contains(b)).unwrap_or(self.rest.len());
                out.extend_from_slice(&self.rest[..end]);
                self.rest = &self.rest[end..];
            }
        }
    }

    fn object(&mut self, out: &mut Vec<u8>) {
        let mut members: Vec<(Cow<'a, str>, Vec<u8>)> = Vec::new();
        self.skip();
        while self.peek() == Some(b'"') {
            let key = self.string();
            self.expect(b':');
            let mut value = Vec::new();
            self.value(&mut value);
            members.push((key, value));
            self.expect(b',');
        }
        self.expect(b'}');
        members.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        out.push(b'{');
        for (key, value) in members {
            write_string(&key, out);
            out.push(b':');
            out.extend_from_slice(&value);
            out.push(b',');
        }
        out.push(b'}');
    }

    fn array(&mut self, out: &mut Vec<u8>) {
        out.push(b'[');
        self.skip();
        while !matches!(self.peek(), Some(b']') | None) {
            self.value(out);
            out.push(b',');
            self.expect(b',');
        }
        self.expect(b']');
        out.push(b']');
    }

    fn string(&mut self) -> Cow<'a, str> {
        let mut end = 1;
        while self.rest.get(end).is_some_and(|b| *b != b'"') {
            end += if self.rest[end] == b'\\' { 2 } else { 1 };
        }
        let (quoted, rest) = self.rest.split_at((end + 1).min(self.rest.len()));
        self.rest = rest;
        let plain =
            quoted.get(1..end).filter(|inner| !inner.contains(&b'\\')).and_then(|inner| str::from_utf8(inner).ok());
        match plain {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(serde_json::from_slice(quoted).unwrap_or_default()),
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first().copied()
    }

    fn skip(&mut self) {
        self.rest = &self.rest[1..];
    }

    fn expect(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.skip();
        }
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    serde_json::to_writer(out, text).expect("invariant: a text can always be written to memory");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canon(text: &str) -> String {
        let mut out = Vec::new();
        canonical(&Json::parse(text).unwrap(), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn blanks_and_the_order_of_keys_make_no_difference() {
        let one = r#"{"b":[1,2,{"y":null,"x":"\u00e9"}],"a":"q\"\\/"}"#;
        let other = " { \"a\" : \"q\\\"\\\\\\/\" ,\n\t\"b\": [ 1 , 2 , { \"x\" : \"é\" , \"y\" : null } ] } ";
        assert_eq!(canon(one), canon(other));
        assert_eq!(canon("[]"), canon("[ ]"));
        assert_eq!(canon("{}"), canon("{ }"));
    }

    #[test]
    fn everything_else_does() {
        let texts = [
            "null",
            "true",
            "1",
            "1.0",
            "\"1\"",
            "[1]",
            "[[1]]",
            "[1,1]",
            "{}",
            "[]",
            "{\"a\":1}",
            "{\"a\":[1]}",
            "{\"a\":{\"b\":1}}",
            "{\"a\":1,\"b\":1}",
            "123456789012345678901",
            "123456789012345678902",
            "\"\"",
            "\"a,b\"",
            "\"]\"",
        ];
        let canons: std::collections::HashSet<String> = texts.iter().map(|text| canon(text)).collect();
        assert_eq!(canons.len(), texts.len());
    }

    #[test]
    fn the_deepest_document_is_read() {
        let deep = format!("{}{}", "[".repeat(127), "]".repeat(127));
        assert!(canon(&deep).starts_with("[["));
    }
}
