//! How long it takes to check a key that the node knows, and to check a signature:
//! `cargo run --release -p punctual-auth --example verify`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use punctual_auth::{ClientSignature, IssuedKey, NewKey, Permission, PresentedKey, Principal, SignedRequest};
use punctual_core::tenants::{AccessRole, KeyScope};
use punctual_core::time::Timestamp;
use sha2::{Digest, Sha256};

const ROUNDS: u32 = 200_000;

fn main() {
    let new = NewKey {
        tenant: "acme".into(),
        name: "web shop".into(),
        role: AccessRole::Submitter,
        scope: KeyScope::default(),
        expires_at: None,
    };
    let issued = IssuedKey::new(new, [0x5c; 32], Timestamp::from_millis(0));
    let principal = Principal::of_key(&issued.record);
    let key = each(|| {
        let shown = PresentedKey::parse(black_box(issued.text.expose())).expect("it was issued");
        assert!(shown.is(Some(&issued.record.digest)) && principal.may(black_box(Permission::Submit)));
    });
    let (id, secret) = (issued.record.id, issued.text.expose().rsplit('_').next().unwrap_or_default());
    let body = vec![b'x'; 1_024];
    let text = format!("POST\n/v1/tasks\n17\nnonce-17\n{}", hex::encode(Sha256::digest(&body)));
    let code = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length").chain_update(text).finalize();
    let header = format!("keyid={id},ts=17,nonce=nonce-17,sig={}", hex::encode(code.into_bytes()));
    let signature = each(|| {
        let signature = ClientSignature::parse(black_box(&header)).expect("it is well formed");
        let request = SignedRequest { method: "POST", target: "/v1/tasks", body: &body };
        assert!(signature.covers(request, &issued.record.digest));
    });
    println!("a key: {key:?}; a signature over 1 KiB: {signature:?}");
}

/// The time of one call, on average.
fn each(call: impl Fn()) -> Duration {
    (0..ROUNDS / 10).for_each(|_| call());
    let began = Instant::now();
    (0..ROUNDS).for_each(|_| call());
    began.elapsed() / ROUNDS
}
