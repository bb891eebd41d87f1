//! Genuine tokens of every algorithm, and the corpus of forged ones.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use punctual_core::tenants::AccessRole;
use ring::hmac;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use serde_json::{Value, json};

use super::*;

/// A key of 2,048 bits that only these tests use.
const RSA_KEY: &str = include_str!("tests/rsa_key.txt");
const NOW: i64 = 1_800_000_000;
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn rules() -> ClaimRules {
    ClaimRules { issuer: "https://issuer.example".to_owned(), audience: "punctual".to_owned(), leeway: 30 }
}

fn claims() -> Value {
    json!({"iss": "https://issuer.example", "aud": "punctual", "sub": "ci", "exp": NOW + 300, "role": "viewer"})
}

fn with(mut claims: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// A pair of keys, or a secret.
enum Signer {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
    Secret(hmac::Key),
}

impl Signer {
    fn rsa(encoding: &'static dyn RsaEncoding) -> Self {
        let key = BASE64_STANDARD.decode(RSA_KEY.split_whitespace().collect::<String>()).unwrap();
        Self::Rsa(RsaKeyPair::from_pkcs8(&key).unwrap(), encoding)
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    fn ed() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    fn secret(secret: &[u8]) -> Self {
        Self::Secret(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    fn sign(&self, text: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(key, encoding) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(*encoding, &random, text.as_bytes(), &mut signature).unwrap();
                signature
            }
            Self::Ec(key) => key.sign(&random, text.as_bytes()).unwrap().as_ref().to_vec(),
            Self::Ed(key) => key.sign(text.as_bytes()).as_ref().to_vec(),
            Self::Secret(key) => hmac::sign(key, text.as_bytes()).as_ref().to_vec(),
        }
    }

    /// The public key, as an issuer publishes it.
    fn published(&self, name: &str) -> Value {
        let mut key = match self {
            Self::Rsa(key, _) => {
                let public = PublicKeyComponents::<Vec<u8>>::from(key.public());
                json!({"kty": "RSA", "n": encode(public.n), "e": encode(public.e)})
            }
            Self::Ec(key) => {
                let point = &key.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if x.len() == 32 { "P-256" } else { "P-384" };
                json!({"kty": "EC", "crv": curve, "x": encode(x), "y": encode(y)})
            }
            Self::Ed(key) => json!({"kty": "OKP", "crv": "Ed25519", "x": encode(key.public_key())}),
            Self::Secret(_) => json!({"kty": "oct", "k": encode(SECRET)}),
        };
        key["kid"] = json!(name);
        key
    }

    fn token(&self, header: &Value, claims: &Value) -> String {
        self.token_of(&header.to_string(), &claims.to_string())
    }

    fn token_of(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self.sign(&signed);
        format!("{signed}.{}", encode(signature))
    }
}

fn key_set(keys: &[Value], accepted: &[Algorithm]) -> KeySet {
    KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes(), accepted).unwrap()
}

fn refused(token: &str, keys: &KeySet) -> TokenFault {
    verify(token, keys, &rules(), NOW).unwrap_err()
}

#[test]
fn a_token_of_each_algorithm_is_believed() {
    let signers = [
        (Signer::rsa(&RSA_PKCS1_SHA256), Algorithm::Rs256),
        (Signer::rsa(&RSA_PSS_SHA256), Algorithm::Ps256),
        (Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING), Algorithm::Es256),
        (Signer::ec(&ECDSA_P384_SHA384_FIXED_SIGNING), Algorithm::Es384),
        (Signer::ed(), Algorithm::EdDsa),
    ];
    for (signer, algorithm) in &signers {
        let keys = key_set(&[signer.published("k1")], &[*algorithm]);
        for header in [json!({"kid": "k1", "typ": "JWT"}), json!({"typ": "at+jwt"}), json!({})] {
            let token = signer.token(&with(header, "alg", json!(algorithm.name())), &claims());
            let believed = verify(&token, &keys, &rules(), NOW).unwrap();
            assert_eq!((believed.subject.as_str(), believed.expires_at), ("ci", NOW + 300), "{algorithm:?}");
            assert_eq!(believed.words("role"), ["viewer"]);
            let (signed, _) = token.rsplit_once('.').unwrap();
            let other = format!("{signed}.{}", encode(signer.sign("another text")));
            assert_eq!(refused(&other, &keys), TokenFault::Signature, "{algorithm:?}");
        }
    }
    let keys = KeySet::of_secret(Algorithm::Hs256, SECRET).unwrap();
    let token = Signer::secret(SECRET).token(&json!({"alg": "HS256", "kid": "any"}), &claims());
    assert!(verify(&token, &keys, &rules(), NOW).is_ok());
    let other = Signer::secret(b"another secret of 32 bytes or so").token(&json!({"alg": "HS256"}), &claims());
    assert_eq!(refused(&other, &keys), TokenFault::Signature);
}

#[test]
fn a_key_verifies_one_algorithm_only() {
    let rsa = Signer::rsa(&RSA_PKCS1_SHA256);
    let published = rsa.published("k1");
    let keys = key_set(std::slice::from_ref(&published), &[Algorithm::Rs256, Algorithm::Ps256]);
    let pss = Signer::rsa(&RSA_PSS_SHA256).token(&json!({"alg": "PS256", "kid": "k1"}), &claims());
    assert_eq!(refused(&pss, &keys), TokenFault::UnknownKey, "the set names no algorithm: the first one is meant");
    // The public key as a shared secret.
    let modulus = BASE64_URL_SAFE_NO_PAD.decode(published["n"].as_str().unwrap()).unwrap();
    for secret in [modulus.as_slice(), published.to_string().as_bytes(), b""] {
        let forged = Signer::secret(secret).token(&json!({"alg": "HS256", "kid": "k1"}), &claims());
        assert_eq!(refused(&forged, &keys), TokenFault::UnknownKey);
    }
    let secret = Signer::secret(SECRET);
    let set = json!({"keys": [secret.published("k1")]}).to_string();
    let taken = KeySet::from_jwks(set.as_bytes(), &Algorithm::ALL);
    assert_eq!(taken.unwrap_err(), KeySetFault::NoKey, "no secret is taken from a set");
}

#[test]
fn nothing_in_a_header_is_followed() {
    let (signer, forger) = (Signer::ed(), Signer::ed());
    let keys = key_set(&[signer.published("k1")], &[Algorithm::EdDsa]);
    let own = forger.published("k1");
    for (name, value) in [
        ("jwk", own),
        ("jku", json!("http://127.0.0.1/keys")),
        ("x5u", json!("http://127.0.0.1/chain")),
        ("x5c", json!(["MIIB"])),
    ] {
        let header = with(json!({"alg": "EdDSA", "kid": "k1"}), name, value);
        assert_eq!(refused(&forger.token(&header, &claims()), &keys), TokenFault::Signature, "{name}");
        assert!(verify(&signer.token(&header, &claims()), &keys, &rules(), NOW).is_ok(), "{name} is ignored");
    }
    for kid in ["../../../dev/null", "k1' OR 1=1 --", "k1\u{0}", "", "K1"] {
        let token = signer.token(&json!({"alg": "EdDSA", "kid": kid}), &claims());
        assert_eq!(refused(&token, &keys), TokenFault::UnknownKey, "{kid}");
    }
}

#[test]
fn odd_headers_are_refused() {
    let signer = Signer::ed();
    let keys = key_set(&[signer.published("k1")], &[Algorithm::EdDsa]);
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"nOnE"}"#,
        r#"{"alg":""}"#,
        r#"{"alg":null}"#,
        r#"{"alg":["EdDSA"]}"#,
        r#"{"alg":"eddsa"}"#,
        r#"{"alg":"EdDSA "}"#,
        "{}",
        r#"{"alg":"EdDSA","alg":"EdDSA"}"#,
        r#"{"alg":"EdDSA","crit":["exp"]}"#,
        r#"{"alg":"EdDSA","crit":[]}"#,
        r#"{"alg":"EdDSA","crit":["b64"],"b64":false}"#,
        r#"{"alg":"EdDSA","typ":"JWE"}"#,
        r#"{"alg":"EdDSA","typ":5}"#,
        r#"{"alg":"EdDSA","kid":5}"#,
        r#"["EdDSA"]"#,
        "null",
        "",
        "{",
    ] {
        let fault = refused(&signer.token_of(header, &claims().to_string()), &keys);
        assert!(matches!(fault, TokenFault::Malformed(_)), "{header}: {fault}");
    }
}

#[test]
fn what_is_no_token_is_refused() {
    let signer = Signer::ed();
    let keys = key_set(&[signer.published("k1")], &[Algorithm::EdDsa]);
    let token = signer.token(&json!({"alg": "EdDSA"}), &claims());
    let parts: Vec<&str> = token.split('.').collect();
    let [header, body, signature] = parts.as_slice() else { panic!("{token}") };
    let long = signer.token(&json!({"alg": "EdDSA"}), &with(claims(), "x", json!("x".repeat(TOKEN_BYTES))));
    for text in [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        format!("{header}.{body}"),
        format!("{header}.{body}.{signature}.{signature}"),
        format!("{header}.{body}.{signature}="),
        format!("{header}.{body}.{signature} "),
        format!("{header}=.{body}.{signature}"),
        format!("{header}.{body}.{signature}\n"),
        format!("{header}.{}.{signature}", encode("{\"exp\":1,\"exp\":2}")),
        format!("{header}.{}.{signature}", encode([0xff, 0xfe])),
        long,
    ] {
        assert!(matches!(refused(&text, &keys), TokenFault::Malformed(_)), "{text}");
    }
    for text in [format!("{header}.{body}."), format!("{header}.{}.{signature}", encode("{}"))] {
        assert_eq!(refused(&text, &keys), TokenFault::Signature, "{text}");
    }
}

#[test]
fn claims_must_be_there_and_hold() {
    let signer = Signer::ed();
    let keys = key_set(&[signer.published("k1")], &[Algorithm::EdDsa]);
    let token = |claims: &Value| signer.token(&json!({"alg": "EdDSA"}), claims);
    for (name, values) in [
        (
            "exp",
            vec![
                json!(null),
                json!(NOW - 30),
                json!("1900000000"),
                json!(1_900_000_000.5),
                json!(-1),
                json!(true),
                json!([NOW + 300]),
                json!({}),
            ],
        ),
        ("nbf", vec![json!(NOW + 31), json!("0"), json!(0.5), json!(-1), json!(false), json!(1e300)]),
        ("iat", vec![json!(NOW + 31), json!("0"), json!([])]),
        (
            "iss",
            vec![json!(null), json!("https://issuer.example/"), json!(["https://issuer.example"]), json!(5), json!("")],
        ),
        (
            "aud",
            vec![
                json!(null),
                json!("Punctual"),
                json!(["other"]),
                json!([]),
                json!({"0": "punctual"}),
                json!([["punctual"]]),
            ],
        ),
        ("sub", vec![json!(null), json!(""), json!(5), json!("a\nb"), json!("x".repeat(256))]),
    ] {
        for value in values {
            let fault = refused(&token(&with(claims(), name, value.clone())), &keys);
            assert!(matches!(fault, TokenFault::Claim(_)), "{name}: {value}: {fault}");
        }
    }
    for (name, value) in [
        ("exp", json!(NOW - 29)),
        ("nbf", json!(NOW + 30)),
        ("iat", json!(NOW + 30)),
        ("aud", json!(["other", "punctual"])),
    ] {
        assert!(verify(&token(&with(claims(), name, value)), &keys, &rules(), NOW).is_ok(), "{name}");
    }
}

#[test]
fn claims_are_found_by_their_paths() {
    let signer = Signer::ed();
    let keys = key_set(&[signer.published("k1")], &[Algorithm::EdDsa]);
    let claims = with(claims(), "realm_access", json!({"roles": ["viewer", 5, "worker"]}));
    let claims = with(claims, "https://acme.example/tenant", json!("acme"));
    let token = signer.token(&json!({"alg": "EdDSA"}), &claims);
    let believed = verify(&token, &keys, &rules(), NOW).unwrap();
    assert_eq!(believed.words("realm_access.roles"), ["viewer", "worker"]);
    assert_eq!(believed.words("https://acme.example/tenant"), ["acme"]);
    assert_eq!(believed.words("exp"), Vec::<&str>::new());
    assert_eq!(believed.words("realm_access.roles.0"), Vec::<&str>::new());
}

#[test]
fn key_sets_are_read_as_far_as_they_can_be_used() {
    let (first, second) = (Signer::ec(&ECDSA_P256_SHA256_FIXED_SIGNING), Signer::ed());
    let sealing = with(Signer::ed().published("enc"), "use", json!("enc"));
    let short = json!({"kty": "RSA", "kid": "short", "n": encode([0x80; 128]), "e": "AQAB"});
    let off = json!({"kty": "EC", "kid": "off", "crv": "P-256", "x": "AQ", "y": "AQ"});
    let keys = [sealing, short, off, first.published("a"), second.published("b"), json!({"kty": "new"})];
    let set = key_set(&keys, &Algorithm::ALL);
    assert_eq!(set.0.len(), 2, "{set:?}");
    for (signer, header) in [(&first, json!({"alg": "ES256"})), (&second, json!({"alg": "EdDSA", "kid": "b"}))] {
        assert!(verify(&signer.token(&header, &claims()), &set, &rules(), NOW).is_ok(), "{header}");
    }
    for text in ["", "[]", "{}", r#"{"keys": {}}"#, r#"{"keys": [5]}"#] {
        assert_eq!(KeySet::from_jwks(text.as_bytes(), &Algorithm::ALL).unwrap_err(), KeySetFault::NotASet, "{text}");
    }
    let none = KeySet::from_jwks(br#"{"keys": []}"#, &Algorithm::ALL);
    assert_eq!(none.unwrap_err(), KeySetFault::NoKey);
    assert_eq!(KeySet::of_secret(Algorithm::Hs256, &SECRET[1..]).unwrap_err(), KeySetFault::ShortSecret);
    assert_eq!(KeySet::of_secret(Algorithm::Rs256, SECRET).unwrap_err(), KeySetFault::NoKey);
    let two = key_set(&[Signer::ed().published("a"), second.published("b")], &[Algorithm::EdDsa]);
    let unnamed = second.token(&json!({"alg": "EdDSA"}), &claims());
    assert_eq!(refused(&unnamed, &two), TokenFault::UnknownKey, "a token has to say which of two keys signed it");
}

/// The bearer of a token with these claims beside the usual ones.
fn bearer(mapping: &ClaimMapping, more: &[(&str, Value)]) -> Result<crate::Principal, MappingFault> {
    let signer = Signer::ed();
    let keys = key_set(&[signer.published("k1")], &[Algorithm::EdDsa]);
    let claims = more.iter().fold(claims(), |claims, (name, value)| with(claims, name, value.clone()));
    let token = signer.token(&json!({"alg": "EdDSA"}), &claims);
    mapping.principal(&verify(&token, &keys, &rules(), NOW).unwrap(), |name| !name.contains(' '))
}

#[test]
fn a_scope_from_claims_fits_its_role() {
    let mapping = ClaimMapping {
        tenant: "tenant".to_owned(),
        role: "role".to_owned(),
        roles: [("root".to_owned(), AccessRole::Admin)].into(),
        types: Some("types".to_owned()),
        queues: Some("queues".to_owned()),
    };
    let both = |role: &str| {
        let (tenant, pattern) = (("tenant", json!("acme")), json!(["a*"]));
        bearer(&mapping, &[tenant, ("role", json!(role)), ("types", pattern.clone()), ("queues", pattern)])
    };
    assert_eq!(both("viewer").unwrap().scope.queues.len(), 1);
    assert_eq!(both("worker").unwrap_err(), MappingFault::Scope, "it leases by either");
    assert_eq!(both("root").unwrap().scope, punctual_core::tenants::KeyScope::default(), "nothing limits an admin");
    assert_eq!(both("admin").unwrap_err(), MappingFault::Role);
    let many: Vec<String> = (0..=crate::scope::PATTERNS_MAX).map(|number| number.to_string()).collect();
    let too_many = bearer(&mapping, &[("tenant", json!("acme")), ("types", json!(["a"])), ("queues", json!(many))]);
    assert_eq!(too_many.unwrap_err(), MappingFault::Scope);
}
