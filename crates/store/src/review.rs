//! How far what is held behind dead letters was looked at again: pure, the stores read the pages.
//!
//! A review looks at one page of the keys that are held, and of the dead letters that hold their children; the next one
//! goes on behind it. When a queue ceases to hold, the steps of the resolver look at all of it, a page a step and from the
//! front: a *round*. It is kept in memory only: what a crash loses of it the reviews find.

/// Behind which key and which dead letter the next page begins; none: there is nothing behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReviewCursor<K, L> {
    pub key: Option<K>,
    pub letter: Option<L>,
}

impl<K: Default, L: Default> ReviewCursor<K, L> {
    /// Before everything.
    pub(crate) fn front() -> Self {
        Self { key: Some(K::default()), letter: Some(L::default()) }
    }

    /// Behind the last page comes the first.
    pub(crate) fn or_front(self) -> Self {
        Self { key: self.key.or_else(|| Some(K::default())), letter: self.letter.or_else(|| Some(L::default())) }
    }

    /// The same as a place to go on at; none at the end of a round.
    pub(crate) fn or_end(self) -> Option<Self> {
        (self.key.is_some() || self.letter.is_some()).then_some(self)
    }
}

impl<K: Default, L: Default> Default for ReviewCursor<K, L> {
    fn default() -> Self {
        Self::front()
    }
}

/// Where the page behind these `rows` begins: at `last`, unless they were fewer than a page has.
pub(crate) fn behind<T>(rows: usize, page: usize, last: Option<T>) -> Option<T> {
    last.filter(|_| rows >= page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_when_both_have_ended_and_a_review_goes_on_at_the_front() {
        let place = |key, letter| ReviewCursor::<u8, u16> { key, letter };
        assert_eq!(ReviewCursor::front(), place(Some(0), Some(0)));
        assert_eq!(place(None, Some(7)).or_end(), Some(place(None, Some(7))));
        assert_eq!(place(Some(7), None).or_front(), place(Some(7), Some(0)));
        assert_eq!((place(None, None).or_end(), place(None, None).or_front()), (None, ReviewCursor::front()));
        assert_eq!((behind(3, 3, Some(9)), behind(2, 3, Some(9)), behind(0, 3, None::<u8>)), (Some(9), None, None));
    }
}
