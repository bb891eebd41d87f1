//! Pages of a short list that is read as a whole.
//!
//! A page begins after a key, not after a number of items, so that items which come and go do not
//! shift the pages.

use crate::cursor::Listing;
use crate::extract::query::Query;
use crate::problem::{Code, Problem};

/// The sort key of an item: unique, and in the order of the list.
type ListKey = (u64, u64);

/// The part of a list that is wanted: all of it, unless a limit is given.
pub(super) struct Paging {
    listing: Listing<'static>,
    limit: usize,
    after: Option<ListKey>,
}

impl Paging {
    /// Reads `limit` and `cursor` of a list of this kind, which takes no other parameters.
    pub fn read(kind: &'static str, mut query: Query) -> Result<Self, Problem> {
        let (limit, cursor) = (query.given_limit(), query.take("cursor"));
        query.finish()?;
        let listing = Listing { kind, scope: "" };
        let after = cursor.map(|cursor| key(listing, &cursor)).transpose()?;
        Ok(Self { listing, limit: limit.unwrap_or(usize::MAX), after })
    }

    /// The page of `items`, whose keys are given by `key`, and the cursor of the next one.
    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> ListKey) -> (Vec<T>, Option<String>) {
        items.retain(|item| self.after.is_none_or(|after| key(item) > after));
        items.sort_by_key(&key);
        let is_last = items.len() <= self.limit;
        items.truncate(self.limit);
        let last = items.last().filter(|_| !is_last).map(key);
        (items, last.map(|(first, second)| self.listing.seal(&[first.to_be_bytes(), second.to_be_bytes()].concat())))
    }
}

fn key(listing: Listing<'_>, cursor: &str) -> Result<ListKey, Problem> {
    let refused = || Problem::new(Code::InvalidCursor, "the cursor must be a next_cursor of this very listing");
    let bytes: [u8; 16] = listing.open(cursor)?.try_into().map_err(|_| refused())?;
    let both = u128::from_be_bytes(bytes);
    let low = u64::try_from(both & u128::from(u64::MAX)).map_err(|_| refused())?;
    Ok((u64::try_from(both >> 64).map_err(|_| refused())?, low))
}
