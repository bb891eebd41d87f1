//! The cursor of the reviews: which tasks held behind dead letters, and which parked ones, are
//! checked next. Pure.
//!
//! A review of the resolver checks one page of held ordering keys, one page of dead letters that
//! hold their children, and one page of concurrency keys that tasks wait for. The next review
//! continues behind it. When a queue stops holding, or allows more tasks of a key, the resolver
//! checks everything from the front, one page per step: a *round*. The round is kept in
//! memory only; after a crash the reviews check the pages that were left.

/// The keys and the dead letter behind which the next page begins. None: there is nothing behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReviewCursor<K, L> {
    pub key: Option<K>,
    pub letter: Option<L>,
    /// The concurrency key.
    pub parked: Option<K>,
}

impl<K: Default, L: Default> ReviewCursor<K, L> {
    /// Before everything.
    pub(crate) fn front() -> Self {
        Self { key: Some(K::default()), letter: Some(L::default()), parked: Some(K::default()) }
    }

    /// The cursor of the next review: behind the last page comes the first.
    pub(crate) fn or_front(self) -> Self {
        let front = Self::front();
        Self { key: self.key.or(front.key), letter: self.letter.or(front.letter), parked: self.parked.or(front.parked) }
    }

    /// The cursor of the next step of a round; none at its end.
    pub(crate) fn or_end(self) -> Option<Self> {
        (self.key.is_some() || self.letter.is_some() || self.parked.is_some()).then_some(self)
    }
}

impl<K: Default, L: Default> Default for ReviewCursor<K, L> {
    fn default() -> Self {
        Self::front()
    }
}

/// Where the next page begins: behind `last`, unless this page was not full.
pub(crate) fn behind<T>(rows: usize, page: usize, last: Option<T>) -> Option<T> {
    last.filter(|_| rows >= page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_where_a_review_starts_over() {
        let cursor = |key, letter, parked| ReviewCursor::<u8, u16> { key, letter, parked };
        assert_eq!(ReviewCursor::front(), cursor(Some(0), Some(0), Some(0)));
        for rest in [cursor(None, Some(7), None), cursor(None, None, Some(7))] {
            assert_eq!(rest.or_end(), Some(rest));
        }
        assert_eq!(cursor(Some(7), None, Some(8)).or_front(), cursor(Some(7), Some(0), Some(8)));
        let end = cursor(None, None, None);
        assert_eq!((end.or_end(), end.or_front()), (None, ReviewCursor::front()));
        assert_eq!((behind(3, 3, Some(9)), behind(2, 3, Some(9)), behind(0, 3, None::<u8>)), (Some(9), None, None));
    }
}
