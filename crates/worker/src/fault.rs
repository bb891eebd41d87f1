//! Finds the cause of a failed call in the nested errors of the HTTP client.
//!
//! The webhook client calls [`classify`] for every error of its own.

use std::error::Error;
use std::io;

use crate::answer::CallFault;
use crate::guard::ResolveError;

/// The most specific cause of an error.
pub(crate) fn classify(error: &(dyn Error + 'static)) -> CallFault {
    let mut last = "it was closed".to_owned();
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<ResolveError>() {
            return match error {
                ResolveError::Blocked => CallFault::Blocked,
                ResolveError::Unresolved(error) => CallFault::Dns(error.to_string()),
            };
        }
        if let Some(error) = tls_cause(cause) {
            return CallFault::Tls(error.to_string());
        }
        if let Some(error) = cause.downcast_ref::<hyper::Error>()
            && (error.is_parse() || error.is_parse_status() || error.is_parse_too_large())
        {
            return CallFault::Invalid(error.to_string());
        }
        last = cause.to_string();
        next = cause.source();
    }
    CallFault::Connection(last)
}

/// The TLS error itself, or inside the I/O errors of a handshake, which do not name it as their
/// source.
fn tls_cause<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(error);
    }
    tls_cause(cause.downcast_ref::<io::Error>()?.get_ref()?)
}
