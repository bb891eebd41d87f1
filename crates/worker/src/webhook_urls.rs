//! The URLs of webhooks, parsed once and kept: most tasks of a target have the same one.
//!
//! The webhook client asks before each call. Invariant: a kept URL is what parsing it again would
//! give, so forgetting it costs time alone.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::Uri;
use parking_lot::Mutex;
use url::Url;

/// The maximum number of URLs that are kept. A URL is at most a few kilobytes long.
const KEPT_MAX: usize = 1_024;

/// Where a webhook is.
#[derive(Debug)]
pub(crate) struct WebhookUrl {
    pub(crate) url: Url,
    pub(crate) uri: Uri,
}

/// The URLs that are kept (see the module).
#[derive(Debug, Default)]
pub(crate) struct WebhookUrls {
    kept: Mutex<HashMap<String, Arc<WebhookUrl>>>,
}

impl WebhookUrls {
    /// The parsed URL; none if it cannot be called.
    pub(crate) fn parse(&self, text: &str) -> Option<Arc<WebhookUrl>> {
        if let Some(kept) = self.kept.lock().get(text) {
            return Some(Arc::clone(kept));
        }
        let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
        let uri = url.as_str().parse().ok()?;
        let parsed = Arc::new(WebhookUrl { url, uri });
        let mut kept = self.kept.lock();
        // Those in use come back at once.
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(text.to_owned(), Arc::clone(&parsed));
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_parsed_once_and_many_are_not_kept() {
        let urls = WebhookUrls::default();
        let parsed = urls.parse("http://a.example/b?c").unwrap();
        assert_eq!(parsed.uri, "http://a.example/b?c");
        assert!(Arc::ptr_eq(&parsed, &urls.parse("http://a.example/b?c").unwrap()));
        assert!(urls.parse("no url").is_none());
        for number in 0..KEPT_MAX * 2 {
            assert!(urls.parse(&format!("http://a.example/{number}")).is_some());
        }
        assert!(urls.kept.lock().len() <= KEPT_MAX);
    }
}
