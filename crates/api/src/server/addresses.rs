//! How many connections each peer address has, so that one peer cannot take them all.
//!
//! Called by the accept loop of [`super::serve`]. Invariant: the table has one entry for each
//! address with an open connection, so the bound on connections bounds it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// The open connections by address.
pub(super) struct AddressCaps {
    most: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection of an address; dropping it gives its place back.
pub(super) struct AddressPlace {
    caps: Arc<AddressCaps>,
    address: IpAddr,
}

impl AddressCaps {
    /// At most this many connections for each address.
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// A place for another connection of `peer`; none if it has all that it may have.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<AddressPlace> {
        let address = counted_as(peer);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(AddressPlace { caps: Arc::clone(self), address })
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.caps.open.lock().entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The address that a peer counts as. A host with IPv6 usually has a whole network of 64 bits.
fn counted_as(peer: IpAddr) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match peer.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & NETWORK).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_its_places_and_no_others() {
        let caps = AddressCaps::new(2);
        let (first, _second) = (caps.admit(ip("10.0.0.1")).unwrap(), caps.admit(ip("::ffff:10.0.0.1")).unwrap());
        assert!(caps.admit(ip("10.0.0.1")).is_none());
        let other = caps.admit(ip("10.0.0.2")).unwrap();
        drop(first);
        let _third = caps.admit(ip("10.0.0.1")).unwrap();
        assert!(caps.admit(ip("10.0.0.1")).is_none());
        drop(other);
        assert_eq!(caps.open.lock().len(), 1, "an address without connections is forgotten");
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let caps = AddressCaps::new(1);
        let _first = caps.admit(ip("2001:db8:0:1::1")).unwrap();
        assert!(caps.admit(ip("2001:db8:0:1:ffff::2")).is_none());
        assert!(caps.admit(ip("2001:db8:0:2::1")).is_some());
    }
}
