//! HTTP/2 by hand, for clients that no library would be.

/// What a client sends first. Its window is zero: nothing of an answer's body may be sent to it.
pub fn preface_without_window() -> Vec<u8> {
    let setting = [0, 4, 0, 0, 0, 0];
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &setting)].concat()
}

/// What a client sends first.
pub fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat()
}

/// `GET path`; the first stream is 1, the next 3.
pub fn get(stream: u32, authority: &str, path: &str) -> Vec<u8> {
    // `:method GET` and `:scheme http` have entries in the table of RFC 7541; the other two only
    // their names.
    let mut fields = vec![0x82, 0x86];
    for (name, value) in [(4, path), (1, authority)] {
        fields.extend([name, u8::try_from(value.len()).expect("a short text")]);
        fields.extend_from_slice(value.as_bytes());
    }
    // The end of the headers, and of the stream.
    frame(1, 0x5, stream, &fields)
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short frame").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
    [head.as_slice(), payload].concat()
}
