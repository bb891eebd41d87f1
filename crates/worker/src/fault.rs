//! Finds the cause of a failed call in the nested errors of the HTTP client.
//!
//! The webhook client calls [`classify`] for every error of its own, and [`is_unread`] before.

use std::error::Error;
use std::io;

use punctual_outbound::ResolveError;

use crate::answer::CallFault;

/// The most specific cause of an error.
pub(crate) fn classify(error: &(dyn Error + 'static)) -> CallFault {
    let mut last = "it was closed".to_owned();
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(error) = cause.downcast_ref::<ResolveError>() {
            return match error {
                ResolveError::Blocked => CallFault::Blocked,
                ResolveError::Unresolved(error) => CallFault::Dns(without_number(&error.to_string())),
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
    CallFault::Connection(without_number(&last))
}

/// The text of an I/O error without the number of the operating system, which says nothing more.
fn without_number(text: &str) -> String {
    text.split(" (os error ").next().unwrap_or(text).to_owned()
}

/// Whether the target has refused a request over HTTP/2 before it read any of it.
pub(crate) fn is_unread(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(refusal) = cause.downcast_ref::<h2::Error>() {
            let ends_well = refusal.is_go_away() && refusal.reason() == Some(h2::Reason::NO_ERROR);
            let is_refused = refusal.is_reset() && refusal.reason() == Some(h2::Reason::REFUSED_STREAM);
            return refusal.is_remote() && (ends_well || is_refused);
        }
        next = cause.source();
    }
    false
}

/// The TLS error itself, or inside the I/O errors of a handshake, which do not name it as their
/// source.
fn tls_cause<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(error);
    }
    tls_cause(cause.downcast_ref::<io::Error>()?.get_ref()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_has_no_number_of_the_system() {
        let refused = io::Error::from_raw_os_error(111);
        assert!(refused.to_string().contains("os error"), "{refused}");
        let CallFault::Connection(text) = classify(&refused) else { panic!("not a fault of the connection") };
        assert!(!text.is_empty() && !text.contains("os error"), "{text}");
    }
}
