//! The rule for idempotency keys, in the header and in the body.

use punctual_core::task::limits;

/// The rule, as a fault states it.
pub const RULE: &str = "must be 1 to 255 visible ASCII characters, with blanks only between them";

/// Whether `text` can be a key.
pub fn is_key(text: &str) -> bool {
    (1..=limits::NAME).contains(&text.len())
        && text.bytes().all(|b| (b' '..=b'~').contains(&b))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
}
