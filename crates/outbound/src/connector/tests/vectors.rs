//! The table of what may not be called: addresses in every way of writing them, names that lead to
//! them, and texts that two readers would read differently.

use std::net::{Ipv4Addr, Ipv6Addr};

/// One thing to try.
pub struct Vector {
    pub url: String,
    /// What the name in it resolves to; none if the URL itself tells that it is refused.
    pub resolves_to: Option<Vec<String>>,
}

/// Forbidden IPv4 addresses, of each network its first and its last or a well-known one.
const V4: [[u8; 4]; 36] = [
    [0, 0, 0, 0],
    [0, 255, 255, 255],
    [10, 0, 0, 1],
    [10, 255, 255, 255],
    [100, 64, 0, 1],
    [100, 100, 100, 200],
    [100, 127, 255, 255],
    [127, 0, 0, 1],
    [127, 0, 0, 53],
    [127, 255, 255, 255],
    [168, 63, 129, 16],
    [169, 254, 0, 1],
    [169, 254, 169, 254],
    [169, 254, 170, 2],
    [169, 254, 255, 255],
    [172, 16, 0, 1],
    [172, 17, 0, 1],
    [172, 31, 255, 255],
    [192, 0, 0, 1],
    [192, 0, 0, 192],
    [192, 0, 2, 1],
    [192, 88, 99, 1],
    [192, 168, 0, 1],
    [192, 168, 255, 255],
    [198, 18, 0, 1],
    [198, 19, 255, 255],
    [198, 51, 100, 1],
    [203, 0, 113, 1],
    [224, 0, 0, 1],
    [224, 0, 0, 251],
    [239, 255, 255, 250],
    [239, 255, 255, 255],
    [240, 0, 0, 1],
    [254, 255, 255, 255],
    [255, 255, 255, 254],
    [255, 255, 255, 255],
];

/// Forbidden IPv6 addresses, apart from those in which an IPv4 one is hidden.
const V6: [&str; 33] = [
    "::1",
    "0:0:0:0:0:0:0:1",
    "0000:0000:0000:0000:0000:0000:0000:0001",
    "::2",
    "100::1",
    "100:0:0:1::1",
    "64:ff9b:1::1",
    "64:ff9b:1:ffff::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:1ff:ffff::1",
    "2001:db8::1",
    "2001:db8:ffff::1",
    "2002::1",
    "2002:ffff:ffff::1",
    "3fff::1",
    "3fff:fff:ffff::1",
    "5f00::1",
    "fc00::1",
    "fd00::1",
    "fd00:ec2::254",
    "fdff:ffff::1",
    "fe80::1",
    "fe80::a9fe:a9fe",
    "febf::1",
    "fec0::1",
    "ff01::1",
    "ff02::1",
    "ff05::2",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

/// Texts that are refused because they are no URL that all readers read alike, or because of the
/// address in them.
const TEXTS: [&str; 62] = [
    // A user name, in front of which a reader may see another host.
    "http://1.1.1.1@127.0.0.1/",
    "http://1.1.1.1:80@127.0.0.1/",
    "http://1.1.1.1%40@127.0.0.1/",
    "http://user:secret@10.0.0.1/",
    "http://@127.0.0.1/",
    "http://:@127.0.0.1/",
    "http://1.1.1.1#@127.0.0.1/\\",
    "http://a@b@127.0.0.1/",
    "http://[::ffff:1.1.1.1]@127.0.0.1/",
    // Blanks and control characters, which parsers drop.
    "http://127.0.0.1\t/",
    "http://127.0.\t0.1/",
    "http://127.0.0.1\n/",
    "http://127.0\r\n.0.1/",
    "\thttp://127.0.0.1/",
    "http://127.0.0.1 /",
    " http://127.0.0.1/",
    "http://127.0.0.1/ ",
    "ht\ntp://127.0.0.1/",
    "http:/\t/127.0.0.1/",
    "http://1.1.1.1\n@127.0.0.1/",
    "http://1.1.1.1\r\nHost: 127.0.0.1/",
    "http://127.0.0.1/\0",
    "http://127.0.0.1\0.example.com/",
    "http://127.0.0.1\u{a0}/",
    "http://127.0.0.1\u{2028}/",
    "http://\u{3000}127.0.0.1/",
    // Backslashes, and too many or too few slashes.
    "http:\\\\127.0.0.1\\",
    "http:/\\127.0.0.1/",
    "http:\\/127.0.0.1/",
    "http://1.1.1.1\\@127.0.0.1/",
    "http://127.0.0.1\\.example.com/",
    "http:127.0.0.1",
    "http:/127.0.0.1/",
    "http:///127.0.0.1/",
    "http:////127.0.0.1/",
    "//127.0.0.1/",
    "127.0.0.1",
    "127.0.0.1:80/",
    // Zones.
    "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/",
    "http://[::1%251]/",
    "http://[::1%lo]/",
    "http://[::1%00]/",
    // Brackets.
    "http://[127.0.0.1]/",
    "http://[::1/",
    "http://::1/",
    "http://[::1].example.com/",
    "http://[[::1]]/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]/",
    "http://[::FFFF:7F00:1]/",
    // Numbers that are too large for an address, which other readers cut.
    "http://4294967296/",
    "http://256.0.0.1/",
    "http://127.0.0.256/",
    "http://0x100000000/",
    "http://127.0.0.1.1/",
    // Other schemes, and ports.
    "ftp://127.0.0.1/",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:25/_x",
    "ws://127.0.0.1/",
    "unix:///var/run/docker.sock",
    "http://127.0.0.1:0/",
    "http://127.0.0.1:65536/",
];

/// Hosts and ports of this machine and its neighbours that attackers look for.
const SERVICES: [&str; 20] = [
    "127.0.0.1:22",
    "127.0.0.1:25",
    "127.0.0.1:2375",
    "127.0.0.1:5432",
    "127.0.0.1:6379",
    "127.0.0.1:7400",
    "127.0.0.1:8080",
    "127.0.0.1:9200",
    "127.0.0.1:11211",
    "[::1]:22",
    "[::1]:5432",
    "[::1]:7400",
    "[::]:7400",
    "0.0.0.0:7400",
    "0:7400",
    "10.0.0.1:6443",
    "169.254.169.254:80",
    "169.254.170.2:80",
    "100.100.100.200:80",
    "[fd00:ec2::254]:80",
];

/// Names that are refused because of what they lead to.
const NAMES: [(&str, &[&str]); 22] = [
    ("localhost", &["127.0.0.1", "::1"]),
    ("LOCALHOST", &["127.0.0.1"]),
    ("localhost.", &["127.0.0.1"]),
    ("localhost.localdomain", &["127.0.0.1"]),
    ("ip6-localhost", &["::1"]),
    ("a.localhost", &["127.0.0.1"]),
    ("metadata.google.internal", &["169.254.169.254"]),
    ("metadata.google.internal.", &["169.254.169.254"]),
    ("instance-data.ec2.internal", &["169.254.169.254"]),
    ("kubernetes.default.svc", &["10.96.0.1"]),
    ("127.0.0.1.nip.io", &["127.0.0.1"]),
    ("7f000001.example.com", &["127.0.0.1"]),
    ("localtest.me", &["127.0.0.1"]),
    ("b\u{fc}cher.example", &["10.0.0.1"]),
    ("\u{24c1}\u{24de}\u{24d2}\u{24d0}\u{24db}host", &["127.0.0.1"]),
    ("xn--bcher-kva.example", &["192.168.0.1"]),
    ("internal", &["10.0.0.1", "10.0.0.2", "fd00::1"]),
    ("host.docker.internal", &["172.17.0.1"]),
    ("under_score.example", &["10.0.0.1"]),
    ("a.", &["127.0.0.1"]),
    ("1.1.1.1.example", &["127.0.0.1"]),
    ("0x7f.example", &["127.0.0.1"]),
];

/// Every vector.
pub fn vectors() -> Vec<Vector> {
    let refused = |url: String| Vector { url, resolves_to: None };
    let leads_to = |host: &str, addresses: &[&str]| {
        let resolves_to = Some(addresses.iter().map(ToString::to_string).collect());
        Vector { url: format!("http://{host}/"), resolves_to }
    };
    let mut vectors = Vec::new();
    for (number, bytes) in V4.into_iter().enumerate() {
        let dotted = Ipv4Addr::from(bytes).to_string();
        vectors.extend(spellings(bytes).iter().map(|host| refused(format!("http://{host}/"))));
        vectors.push(refused(format!("https://{dotted}/")));
        vectors.push(leads_to(&format!("four-{number}.example"), &[&dotted]));
        vectors.push(leads_to(&format!("mapped-{number}.example"), &[&format!("::ffff:{dotted}")]));
        vectors.push(leads_to(&format!("nat64-{number}.example"), &[&hidden("64:ff9b::", 0, bytes)]));
    }
    for (number, text) in V6.into_iter().enumerate() {
        vectors.push(refused(format!("http://[{text}]/")));
        vectors.push(refused(format!("https://[{}]:8443/", text.to_uppercase())));
        vectors.push(leads_to(&format!("six-{number}.example"), &[text]));
    }
    vectors.extend(SERVICES.iter().map(|at| refused(format!("http://{at}/admin"))));
    vectors.extend(TEXTS.iter().map(|text| refused((*text).to_owned())));
    vectors.extend(NAMES.iter().map(|(name, addresses)| leads_to(name, addresses)));
    vectors
}

/// The ways to write an IPv4 address as a host, by which others than we may reach it.
fn spellings(bytes: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = bytes;
    let number = u32::from_be_bytes(bytes);
    let (low, half) = (number & 0x00ff_ffff, number & 0xffff);
    let dotted = Ipv4Addr::from(bytes).to_string();
    let fullwidth = |c: char| c.to_digit(10).and_then(|digit| char::from_u32(0xff10 + digit)).unwrap_or(c);
    vec![
        dotted.clone(),
        format!("{dotted}."),
        // As one number, and with fewer or other parts.
        number.to_string(),
        format!("0x{number:08x}"),
        format!("0X{number:08X}."),
        format!("0{number:o}."),
        format!("0x{a:02x}.0x{b:02x}.0x{c:02x}.0x{d:02x}"),
        format!("0{a:03o}.0{b:03o}.0{c:03o}.0{d:03o}"),
        format!("0x{a:x}.0{b:o}.{c}.0x000{d:x}"),
        format!("{a}.0x{low:06x}"),
        format!("{a}.{b}.0x{half:04x}"),
        // In characters that become digits and dots.
        dotted.chars().map(fullwidth).collect(),
        dotted.replace('.', "\u{3002}"),
        dotted.replace('.', "\u{ff0e}"),
        dotted.replace('.', "%2e"),
        dotted.bytes().map(|byte| format!("%{byte:02x}")).collect::<Vec<_>>().concat(),
        // Inside an IPv6 address.
        format!("[::ffff:{dotted}]"),
        format!("[0:0:0:0:0:ffff:{:x}:{half:x}]", number >> 16),
        format!("[{}]", hidden("::", 0, bytes)),
        format!("[::ffff:0:{dotted}]"),
        format!("[{}]", hidden("64:ff9b::", 0, bytes)),
        format!("[{}]", hidden("64:ff9b:1::", 0, bytes)),
        format!("[{}]", hidden("2002::", 80, bytes)),
        // Teredo has the address of the client inverted.
        format!("[{}]", hidden("2001:0:4136:e378:8000:63bf::", 0, bytes.map(|byte| !byte))),
    ]
}

/// The IPv6 address of a prefix with an IPv4 address in it, this many bits from its end.
fn hidden(prefix: &str, shift: u32, bytes: [u8; 4]) -> String {
    let prefix: Ipv6Addr = prefix.parse().expect("a prefix is an address");
    Ipv6Addr::from_bits(prefix.to_bits() | u128::from(u32::from_be_bytes(bytes)) << shift).to_string()
}
