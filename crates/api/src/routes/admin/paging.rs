//! Pages of a short list that is read as a whole.
//!
//! A page begins after a key, not after a number of items, so that items which come and go do not
//! shift the pages.

use punctual_client::Page;

use crate::cursor::Listing;
use crate::extract::query::Query;
use crate::problem::Problem;

/// The requested part of a list: all of it, unless a limit is given.
pub(super) struct Paging {
    listing: Listing<'static>,
    limit: usize,
    after: Option<u128>,
}

impl Paging {
    /// Reads `limit` and `cursor` of a list of this kind, which takes no other parameters.
    pub fn read(kind: &'static str, mut query: Query) -> Result<Self, Problem> {
        let (limit, cursor) = (query.limit(), query.take("cursor"));
        // Nodes and partitions have nothing that a summary leaves out.
        query.view();
        query.finish()?;
        let listing = Listing { kind, scope: "" };
        let after = cursor.map(|cursor| listing.open_bytes(&cursor)).transpose()?.map(u128::from_be_bytes);
        Ok(Self { listing, limit: limit.unwrap_or(usize::MAX), after })
    }

    /// The page of `items`. `key` is unique and gives the order of the list.
    pub fn page<T>(&self, mut items: Vec<T>, key: impl Fn(&T) -> u128) -> Page<T> {
        items.retain(|item| self.after.is_none_or(|after| key(item) > after));
        items.sort_by_key(&key);
        self.listing.page(items, self.limit, |last| key(last).to_be_bytes().to_vec())
    }
}
