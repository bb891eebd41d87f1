//! A slab of entries threaded into a fixed number of doubly linked chains by their indices.
//!
//! The wheel calls it. Every operation takes constant time; a node is in one chain, in none, or free, and
//! a free node is used again before the slab grows. It must not know what a chain stands for.

/// One key and when it is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<K> {
    pub key: K,
    pub due: u64,
    /// Rises with each schedule; decides between entries due at the same instant.
    pub order: u64,
}

#[derive(Debug)]
struct Node<K> {
    entry: Entry<K>,
    chain: usize,
    /// `None` at the head of a chain.
    prev: Option<usize>,
    /// In a free node, the next free one.
    next: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Chains<K> {
    nodes: Vec<Node<K>>,
    heads: Vec<Option<usize>>,
    free: Option<usize>,
}

impl<K: Copy> Chains<K> {
    pub fn new(count: usize) -> Self {
        Self { nodes: Vec::new(), heads: vec![None; count], free: None }
    }

    /// Stores an entry, in no chain yet.
    pub fn insert(&mut self, entry: Entry<K>) -> usize {
        let node = Node { entry, chain: 0, prev: None, next: None };
        if let Some(at) = self.free {
            self.free = self.nodes[at].next;
            self.nodes[at] = node;
            at
        } else {
            self.nodes.push(node);
            self.nodes.len() - 1
        }
    }

    pub fn entry(&self, at: usize) -> &Entry<K> {
        &self.nodes[at].entry
    }

    pub fn replace(&mut self, at: usize, entry: Entry<K>) {
        self.nodes[at].entry = entry;
    }

    /// Gives back a node that is in no chain.
    pub fn free(&mut self, at: usize) {
        self.nodes[at].next = self.free;
        self.free = Some(at);
    }

    /// Puts a node that is in no chain at the head of `chain`.
    pub fn link(&mut self, at: usize, chain: usize) {
        let next = self.heads[chain].replace(at);
        if let Some(next) = next {
            self.nodes[next].prev = Some(at);
        }
        let node = &mut self.nodes[at];
        node.chain = chain;
        node.prev = None;
        node.next = next;
    }

    /// Takes a node out of its chain and returns which that was.
    pub fn unlink(&mut self, at: usize) -> usize {
        let Node { chain, prev, next, .. } = self.nodes[at];
        match prev {
            Some(prev) => self.nodes[prev].next = next,
            None => self.heads[chain] = next,
        }
        if let Some(next) = next {
            self.nodes[next].prev = prev;
        }
        chain
    }

    /// Empties `chain` and returns its first node; the others follow by [`Chains::next`], each to be read before
    /// its predecessor is linked or freed.
    pub fn take(&mut self, chain: usize) -> Option<usize> {
        self.heads[chain].take()
    }

    pub fn next(&self, at: usize) -> Option<usize> {
        self.nodes[at].next
    }

    pub fn is_empty(&self, chain: usize) -> bool {
        self.heads[chain].is_none()
    }

    #[cfg(test)]
    pub fn chain(&self, at: usize) -> usize {
        self.nodes[at].chain
    }

    #[cfg(test)]
    pub fn capacity_used(&self) -> usize {
        self.nodes.len()
    }
}
