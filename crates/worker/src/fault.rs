//! What went wrong with a call, out of the HTTP client's nested errors.

use std::error::Error;
use std::io;

use crate::guard::Nowhere;
use crate::outcome::Fault;

/// Finds the cause that says most.
pub(crate) fn classify(error: &reqwest::Error) -> Fault {
    if error.is_builder() {
        return Fault::NoTarget;
    }
    let mut last = "it was closed".to_owned();
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(nowhere) = cause.downcast_ref::<Nowhere>() {
            return match nowhere {
                Nowhere::Blocked => Fault::Blocked,
                Nowhere::Unresolved(error) => Fault::Dns(error.to_string()),
            };
        }
        if let Some(error) = tls_cause(cause) {
            return Fault::Tls(error.to_string());
        }
        if let Some(error) = cause.downcast_ref::<hyper::Error>()
            && (error.is_parse() || error.is_parse_status() || error.is_parse_too_large())
        {
            return Fault::Invalid(error.to_string());
        }
        last = cause.to_string();
        next = cause.source();
    }
    Fault::Connection(last)
}

/// The TLS error itself, or inside the I/O errors of a handshake, which do not name it as their source.
fn tls_cause<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    if let Some(error) = cause.downcast_ref::<rustls::Error>() {
        return Some(error);
    }
    tls_cause(cause.downcast_ref::<io::Error>()?.get_ref()?)
}
