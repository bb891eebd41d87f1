//! The addresses that a request on a submitter's behalf may go to.
//!
//! Every address outside of the public internet is forbidden unless the operator has listed it:
//! loopback, private and link-local networks (cloud metadata is there), and the ranges in which an
//! IPv6 address stands for an IPv4 one. What the operator denies is forbidden in any case, and so
//! is the node's own API. Pure; the submission checks literal addresses with it, and the worker
//! those and every resolved one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// The networks that may be called: the public internet and what the operator has listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowedNetworks {
    /// Special networks that may be called.
    allow: Vec<Network>,
    /// Networks that may not be called, even if they are public or allowed.
    deny: Vec<Network>,
    /// The ports at which this node listens.
    own_ports: Vec<u16>,
    /// The addresses of this machine, apart from loopback.
    machine: Vec<Network>,
}

impl AllowedNetworks {
    /// Only the public internet.
    pub const fn none() -> Self {
        Self { allow: Vec::new(), deny: Vec::new(), own_ports: Vec::new(), machine: Vec::new() }
    }

    /// The public internet and this machine.
    pub fn loopback() -> Self {
        Self::none().allowing(LOOPBACK)
    }

    /// The public internet and these networks, written as `address/bits` or as single addresses.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, NotANetwork> {
        let networks = texts.into_iter().map(str::parse).collect::<Result<Vec<Network>, _>>()?;
        Ok(Self::none().allowing(networks))
    }

    /// The same and these special networks.
    #[must_use]
    pub fn allowing(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.allow.extend(networks);
        self
    }

    /// The same without these networks, public or special.
    #[must_use]
    pub fn denying(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.deny.extend(networks);
        self
    }

    /// The same without the API of the node that listens at `listen`: at its port, nothing on this
    /// machine may be called, which has these other addresses. A node that listens at more than one
    /// address takes them out one by one.
    #[must_use]
    pub fn without_own(mut self, listen: SocketAddr, others: impl IntoIterator<Item = IpAddr>) -> Self {
        let addresses = others.into_iter().chain([listen.ip()]);
        self.machine.extend(addresses.map(|address| Network::single(address.to_canonical())));
        self.own_ports.push(listen.port());
        self
    }

    /// The same without this machine, even if it is allowed. An unspecified address reaches it,
    /// too.
    #[must_use]
    pub fn without_this_machine(self) -> Self {
        let machine = self.machine.clone();
        self.denying(LOOPBACK.into_iter().chain(UNSPECIFIED).chain(machine))
    }

    /// Whether `address` may not be called at any port but the node's own.
    pub fn forbids(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let is_special = match address {
            IpAddr::V4(v4) => is_special_v4(v4),
            IpAddr::V6(v6) => is_special_v6(v6),
        };
        let is_in = |networks: &[Network]| networks.iter().any(|network| network.contains(address));
        is_in(&self.deny) || (is_special && !is_in(&self.allow))
    }

    /// Whether `address` may not be called at `port`.
    pub fn forbids_at(&self, address: IpAddr, port: u16) -> bool {
        self.forbids(address)
            || (self.own_ports.contains(&port) && self.clone().without_this_machine().forbids(address))
    }
}

const LOOPBACK: [Network; 2] = [
    Network { base: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), bits: 8 },
    Network { base: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 },
];

const UNSPECIFIED: [Network; 2] = [
    Network { base: IpAddr::V4(Ipv4Addr::UNSPECIFIED), bits: 8 },
    Network { base: IpAddr::V6(Ipv6Addr::UNSPECIFIED), bits: 128 },
];

/// A text that is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network such as 10.0.0.0/8, fd00::/8 or 127.0.0.1")]
pub struct NotANetwork(String);

/// A range of addresses that share their first bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    /// The network of one address.
    const fn single(address: IpAddr) -> Self {
        Self { base: address, bits: if address.is_ipv4() { 32 } else { 128 } }
    }

    /// Whether the address lies in the range.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => same_prefix(base.to_bits(), address.to_bits(), 32, self.bits),
            (IpAddr::V6(base), IpAddr::V6(address)) => same_prefix(base.to_bits(), address.to_bits(), 128, self.bits),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let fault = || NotANetwork(text.to_owned());
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let base: IpAddr = address.parse().map_err(|_| fault())?;
        let width = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().map_err(|_| fault())?,
            Some(_) => return Err(fault()),
        };
        // `10.1.2.3/8` is probably a mistake: its author may have meant the one address.
        let stray_bits = match base {
            IpAddr::V4(base) => base.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0,
            IpAddr::V6(base) => base.to_bits().checked_shl(bits.into()).unwrap_or(0) != 0,
        };
        if bits > width || stray_bits { Err(fault()) } else { Ok(Self { base, bits }) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn same_prefix(a: impl Into<u128>, b: impl Into<u128>, width: u32, bits: u8) -> bool {
    (a.into() ^ b.into()).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

const fn v4(a: u8, b: u8, c: u8, bits: u8) -> (Ipv4Addr, u8) {
    (Ipv4Addr::new(a, b, c, 0), bits)
}

/// Everything in IANA's registry of special addresses that is not a public service, and
/// 168.63.129.16. That is a public address, but in Azure it is the machine's own metadata service.
const SPECIAL_V4: [(Ipv4Addr, u8); 16] = [
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    v4(0, 0, 0, 8),
    v4(10, 0, 0, 8),
    v4(100, 64, 0, 10),
    v4(127, 0, 0, 8),
    v4(169, 254, 0, 16),
    v4(172, 16, 0, 12),
    v4(192, 0, 0, 24),
    v4(192, 0, 2, 24),
    v4(192, 88, 99, 24),
    v4(192, 168, 0, 16),
    v4(198, 18, 0, 15),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 4),
    v4(240, 0, 0, 4),
];

fn is_special_v4(address: Ipv4Addr) -> bool {
    SPECIAL_V4.iter().any(|(base, bits)| same_prefix(base.to_bits(), address.to_bits(), 32, *bits))
}

/// The special parts of `2000::/3`, the only range that is assigned for public use: IETF protocols
/// (Teredo among them), documentation twice, and 6to4.
const SPECIAL_V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_special_v6(address: Ipv6Addr) -> bool {
    let public = same_prefix(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0).to_bits(), address.to_bits(), 128, 3);
    !public || SPECIAL_V6.iter().any(|(base, bits)| same_prefix(base.to_bits(), address.to_bits(), 128, *bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn special_networks_are_forbidden_to_their_last_address() {
        for text in [
            "0.0.0.0",
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.255",
            "169.254.0.0",
            "169.254.169.254",
            "169.254.255.255",
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.0",
            "192.0.0.255",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.0",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::1",
            "100::1",
            "100:0:0:1::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
            "2001::1",
            "2001:2::1",
            "2001:10::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "4000::1",
            "1fff::1",
        ] {
            assert!(AllowedNetworks::none().forbids(ip(text)), "{text}");
        }
    }

    #[test]
    fn the_public_internet_is_allowed() {
        for text in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.88.98.1",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.1",
            "203.0.112.1",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "2001:200::1",
            "2001:4860:4860::8888",
            "2001:db7::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "3ffe::1",
            "3fff:1000::1",
        ] {
            assert!(!AllowedNetworks::none().forbids(ip(text)), "{text}");
        }
    }

    #[test]
    fn only_listed_networks_are_allowed() {
        let loopback = AllowedNetworks::loopback();
        for (text, forbidden) in [
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("::2", true),
            ("10.0.0.1", true),
            ("::7f00:1", true),
            ("0.0.0.0", true),
        ] {
            assert_eq!(loopback.forbids(ip(text)), forbidden, "{text}");
        }
        let listed = AllowedNetworks::parse(["10.1.0.0/16", "fd00:1::/32", "192.168.7.7"]).unwrap();
        for (text, forbidden) in [
            ("10.1.255.255", false),
            ("10.2.0.0", true),
            ("fd00:1:ffff::1", false),
            ("fd00:2::1", true),
            ("192.168.7.7", false),
            ("192.168.7.8", true),
            ("127.0.0.1", true),
            ("8.8.8.8", false),
        ] {
            assert_eq!(listed.forbids(ip(text)), forbidden, "{text}");
        }
        let everything = AllowedNetworks::parse(["0.0.0.0/0", "::/0"]).unwrap();
        assert!(!everything.forbids(ip("127.0.0.1")) && !everything.forbids(ip("fe80::1")));
    }

    #[test]
    fn denied_networks_are_forbidden_in_any_case() {
        let denied = ["10.1.2.0/24", "9.9.9.0/24", "2606:4700::/32"].map(|text| text.parse().unwrap());
        let networks = AllowedNetworks::parse(["10.0.0.0/8"]).unwrap().denying(denied);
        for (text, forbidden) in [
            ("10.1.1.1", false),
            ("10.1.2.3", true),
            ("9.9.9.9", true),
            ("::ffff:9.9.9.9", true),
            ("9.9.8.9", false),
            ("2606:4700::1111", true),
            ("2606:4701::1111", false),
        ] {
            assert_eq!(networks.forbids(ip(text)), forbidden, "{text}");
        }
    }

    #[test]
    fn the_own_api_is_forbidden_however_it_is_written() {
        let everything = AllowedNetworks::parse(["0.0.0.0/0", "::/0"]).unwrap();
        let networks = everything.clone().without_own("10.0.0.7:7400".parse().unwrap(), []);
        for text in ["10.0.0.7", "::ffff:10.0.0.7", "127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "::"] {
            assert!(networks.forbids_at(ip(text), 7400), "{text}");
            assert!(!networks.forbids_at(ip(text), 7401), "{text} at another port");
            assert!(networks.clone().without_this_machine().forbids(ip(text)), "{text} at any port");
        }
        assert!(!networks.forbids_at(ip("10.0.0.8"), 7400), "another machine");
        assert!(!everything.forbids_at(ip("127.0.0.1"), 7400), "no API is known");
        let both = networks.without_own("10.0.0.7:7401".parse().unwrap(), []);
        assert!([7400, 7401].iter().all(|port| both.forbids_at(ip("127.0.0.1"), *port)), "a node with two listeners");
    }

    #[test]
    fn every_address_of_the_machine_leads_to_its_own_api() {
        let (own, other) = (IpAddr::from([10, 0, 0, 7]), IpAddr::from([10, 0, 0, 8]));
        let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 7400));
        let allowed = AllowedNetworks::parse(["10.0.0.0/8"]).unwrap().without_own(listen, [own]);
        assert!(allowed.forbids_at(own, 7400));
        assert!(!allowed.forbids_at(own, 80) && !allowed.forbids_at(other, 7400));
        let remote = allowed.without_this_machine();
        assert!(remote.forbids(own) && !remote.forbids(other));
    }

    #[test]
    fn a_node_may_listen_at_several_addresses() {
        let allowed = AllowedNetworks::parse(["10.0.0.0/8", "127.0.0.0/8"]).unwrap();
        let api = "10.0.0.7:7400".parse().unwrap();
        let allowed = allowed.without_own(api, []).without_own("127.0.0.1:7401".parse().unwrap(), []);
        for port in [7400, 7401] {
            assert!(allowed.forbids_at(ip("10.0.0.7"), port) && allowed.forbids_at(ip("127.0.0.1"), port));
            assert!(!allowed.forbids_at(ip("10.0.0.8"), port), "another machine");
        }
        assert!(!allowed.forbids_at(ip("10.0.0.7"), 7402), "another port");
    }

    #[test]
    fn a_malformed_network_is_refused() {
        for text in [
            "",
            "10",
            "10.0.0.0/33",
            "10.0.0.1/8",
            "::/129",
            "::1/64",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-1",
            "host/8",
            "10.0.0.0/8/8",
        ] {
            assert!(AllowedNetworks::parse([text]).is_err(), "{text}");
        }
    }
}
