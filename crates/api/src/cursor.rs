//! Cursors: opaque texts that mark where the next page begins. Called by every route that lists.
//!
//! A cursor carries a checksum over the listing it belongs to (its kind, its tenant, its order). So
//! a cursor that was changed, cut, or taken from another listing is refused instead of returning a
//! wrong page. It is not a secret and grants nothing: filter and tenant come with every request.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use punctual_client::{FieldError, Page};
use punctual_core::ids::TaskId;
use punctual_core::store::Cursor;
use punctual_core::time::Timestamp;
use punctual_submission::reading::quoted;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::problem::{Code, Problem};

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 6;

/// The listing a cursor belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// What is listed, and in which order.
    pub kind: &'a str,
    /// The tenant, or the thing whose items are listed.
    pub scope: &'a str,
}

impl Listing<'_> {
    /// The cursor for `position`.
    pub fn seal(self, position: &[u8]) -> String {
        let mut bytes = position.to_vec();
        bytes.extend_from_slice(&self.check(position));
        BASE64_URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position in `cursor`.
    pub fn open(self, cursor: &str) -> Result<Vec<u8>, Problem> {
        let mut bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).map_err(|_| refused(cursor))?;
        let check = bytes.split_off(bytes.len().checked_sub(CHECKSUM_BYTES).ok_or_else(|| refused(cursor))?);
        if check == self.check(&bytes) { Ok(bytes) } else { Err(refused(cursor)) }
    }

    fn check(self, position: &[u8]) -> [u8; CHECKSUM_BYTES] {
        let mut hash = Sha256::new();
        for part in [self.kind.as_bytes(), self.scope.as_bytes(), position] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let mut check = [0; CHECKSUM_BYTES];
        check.copy_from_slice(&hash.finalize()[..CHECKSUM_BYTES]);
        check
    }

    /// The name in `cursor`, after which the next page begins.
    pub fn open_name(self, cursor: &str) -> Result<String, Problem> {
        String::from_utf8(self.open(cursor)?).map_err(|_| refused(cursor))
    }

    /// The `N` bytes in `cursor`.
    pub fn open_bytes<const N: usize>(self, cursor: &str) -> Result<[u8; N], Problem> {
        self.open(cursor)?.try_into().map_err(|_| refused(cursor))
    }

    /// The cursor after a task.
    pub fn seal_task(self, cursor: Cursor) -> String {
        let mut position = cursor.execute_at.as_millis().to_be_bytes().to_vec();
        position.extend_from_slice(cursor.id.uuid().as_bytes());
        self.seal(&position)
    }

    /// The task after which the next page begins.
    pub fn open_task(self, cursor: &str) -> Result<Cursor, Problem> {
        let position = self.open(cursor)?;
        let (millis, uuid) = position.split_first_chunk::<8>().ok_or_else(|| refused(cursor))?;
        let uuid = Uuid::from_slice(uuid).map_err(|_| refused(cursor))?;
        let execute_at = Timestamp::from_millis(i64::from_be_bytes(*millis));
        Ok(Cursor { execute_at, id: TaskId::from_uuid(uuid) })
    }

    /// The cursor after the item with this version.
    pub fn seal_version(self, version: u64) -> String {
        self.seal(&version.to_be_bytes())
    }

    /// The version after which the page begins.
    pub fn open_version(self, cursor: &str) -> Result<u64, Problem> {
        Ok(u64::from_be_bytes(self.open_bytes(cursor)?))
    }

    /// The page of the first `limit` items; one item more shows that there is a next page.
    /// `position` is what its cursor holds of the last item.
    pub fn page<T>(self, mut items: Vec<T>, limit: usize, position: impl FnOnce(&T) -> Vec<u8>) -> Page<T> {
        let is_last = items.len() <= limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| !is_last).map(|last| self.seal(&position(last)));
        Page { items, next_cursor }
    }
}

/// The refusal of a text that is no cursor of this listing.
pub fn refused(cursor: &str) -> Problem {
    let fault = FieldError::new("?cursor", "is not a cursor of this listing").with_value(quoted("cursor", cursor));
    Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this listing, in the same order")
        .listing(vec![fault])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NEWEST: Listing<'static> = Listing { kind: "tasks:newest", scope: "default" };

    proptest! {
        #[test]
        fn a_sealed_position_is_opened(position: Vec<u8>) {
            let cursor = NEWEST.seal(&position);
            prop_assert!(cursor.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));
            prop_assert_eq!(NEWEST.open(&cursor).unwrap(), position);
        }

        #[test]
        fn a_changed_cursor_is_refused(position: Vec<u8>, at: prop::sample::Index, letter in "[A-Za-z0-9_-]") {
            let mut cursor = NEWEST.seal(&position).into_bytes();
            let at = at.index(cursor.len());
            let letter = letter.as_bytes()[0];
            prop_assume!(cursor[at] != letter);
            cursor[at] = letter;
            prop_assert!(NEWEST.open(std::str::from_utf8(&cursor).unwrap()).is_err());
        }

        #[test]
        fn no_text_panics(text: String) {
            prop_assert!(NEWEST.open(&text).is_err());
        }
    }

    #[test]
    fn a_task_and_a_count_come_back() {
        let cursor = Cursor { execute_at: Timestamp::from_millis(-5), id: TaskId::new() };
        assert_eq!(NEWEST.open_task(&NEWEST.seal_task(cursor)).unwrap(), cursor);
        assert_eq!(NEWEST.open_version(&NEWEST.seal_version(7)).unwrap(), 7);
        assert!(NEWEST.open_version(&NEWEST.seal_task(cursor)).is_err());
    }

    #[test]
    fn a_cursor_from_elsewhere_is_refused() {
        let cursor = NEWEST.seal_version(7);
        for other in [Listing { kind: "tasks:execute_at", ..NEWEST }, Listing { scope: "acme", ..NEWEST }] {
            assert_eq!(other.open(&cursor).unwrap_err().code(), Code::InvalidCursor);
        }
    }
}
