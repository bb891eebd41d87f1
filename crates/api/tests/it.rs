//! The server on real sockets: what it does with peers that are slow, hostile, many or in the
//! middle of something when it shuts down. The router behind it is as small as can be.

#![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]

mod it {
    mod connections;
    mod harness;
    mod hostile;
    mod http2;
    mod http2_floods;
    mod reload;
    mod tls;
}
