//! Cursors: opaque texts that say where the next page begins. Called by every route that lists.
//!
//! A cursor carries a checksum over the listing it belongs to (its kind, its tenant, its order). So
//! a cursor that was changed, cut, or taken from another listing is refused instead of returning a
//! wrong page. It is not a secret and grants nothing: filter and tenant come with every request.

use punctual_client::problem::Fault;
use punctual_core::ids::TaskId;
use punctual_core::store::Cursor;
use punctual_core::time::Timestamp;
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
        encode(&bytes)
    }

    /// The position in `cursor`.
    pub fn open(self, cursor: &str) -> Result<Vec<u8>, Problem> {
        let mut bytes = decode(cursor).filter(|bytes| bytes.len() >= CHECKSUM_BYTES).ok_or_else(refused)?;
        let check = bytes.split_off(bytes.len() - CHECKSUM_BYTES);
        if check == self.check(&bytes) { Ok(bytes) } else { Err(refused()) }
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

    /// The cursor after a task.
    pub fn seal_task(self, cursor: Cursor) -> String {
        let mut position = cursor.execute_at.as_millis().to_be_bytes().to_vec();
        position.extend_from_slice(cursor.id.uuid().as_bytes());
        self.seal(&position)
    }

    /// The task after which the next page begins.
    pub fn open_task(self, cursor: &str) -> Result<Cursor, Problem> {
        let position = self.open(cursor)?;
        let (millis, uuid) = position.split_first_chunk::<8>().ok_or_else(refused)?;
        let uuid = Uuid::from_slice(uuid).map_err(|_| refused())?;
        let execute_at = Timestamp::from_millis(i64::from_be_bytes(*millis));
        Ok(Cursor { execute_at, id: TaskId::from_uuid(uuid) })
    }

    /// The cursor after `count` items of a list that only grows at its end.
    pub fn seal_count(self, count: usize) -> String {
        self.seal(&(count as u64).to_be_bytes())
    }

    /// How many items to skip.
    pub fn open_count(self, cursor: &str) -> Result<usize, Problem> {
        let count: [u8; 8] = self.open(cursor)?.try_into().map_err(|_| refused())?;
        usize::try_from(u64::from_be_bytes(count)).map_err(|_| refused())
    }
}

fn refused() -> Problem {
    let detail = "the cursor must be a next_cursor of this very listing, in the same order";
    let Fault { pointer, message } = Fault::new("?cursor", "is not a cursor of this listing");
    Problem::new(Code::InvalidCursor, detail).at(pointer, message)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// base64url without padding, the alphabet that needs no escaping in a query.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().enumerate().fold(0_u32, |group, (at, byte)| group | u32::from(*byte) << (16 - 8 * at));
        for at in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(group >> (18 - 6 * at) & 63) as usize]));
        }
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        let mut group = 0_u32;
        for (at, byte) in chunk.iter().enumerate() {
            let digit = ALPHABET.iter().position(|known| known == byte)?;
            group |= u32::try_from(digit).ok()? << (18 - 6 * at);
        }
        let [_, rest @ ..] = group.to_be_bytes();
        let (kept, spare) = rest.split_at(chunk.len().checked_sub(1).filter(|kept| *kept > 0)?);
        // A cursor has one spelling: unused bits are zero.
        if spare.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(kept);
    }
    Some(bytes)
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
            prop_assert!(cursor.bytes().all(|b| ALPHABET.contains(&b)));
            prop_assert_eq!(NEWEST.open(&cursor).unwrap(), position);
        }

        #[test]
        fn a_changed_cursor_is_refused(position: Vec<u8>, at: prop::sample::Index, letter in 0..64_usize) {
            let mut cursor = NEWEST.seal(&position).into_bytes();
            let at = at.index(cursor.len());
            prop_assume!(cursor[at] != ALPHABET[letter]);
            cursor[at] = ALPHABET[letter];
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
        assert_eq!(NEWEST.open_count(&NEWEST.seal_count(7)).unwrap(), 7);
        assert!(NEWEST.open_count(&NEWEST.seal_task(cursor)).is_err());
    }

    #[test]
    fn a_cursor_from_elsewhere_is_refused() {
        let cursor = NEWEST.seal_count(7);
        for other in [Listing { kind: "tasks:execute_at", ..NEWEST }, Listing { scope: "acme", ..NEWEST }] {
            assert_eq!(other.open(&cursor).unwrap_err().code(), Code::InvalidCursor);
        }
    }
}
