//! The algorithms of signatures.

use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    RsaParameters, VerificationAlgorithm,
};

/// An algorithm that signs tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSA with PKCS#1 padding and SHA-256.
    Rs256,
    /// The same with SHA-384.
    Rs384,
    /// The same with SHA-512.
    Rs512,
    /// RSA with PSS padding and SHA-256.
    Ps256,
    /// The same with SHA-384.
    Ps384,
    /// The same with SHA-512.
    Ps512,
    /// ECDSA on P-256.
    Es256,
    /// ECDSA on P-384.
    Es384,
    /// Ed25519.
    EdDsa,
    /// A shared secret, with SHA-256.
    Hs256,
    /// The same with SHA-384.
    Hs384,
    /// The same with SHA-512.
    Hs512,
}

/// What verifies the signatures of an algorithm.
pub(super) enum SignatureVerifier {
    Rsa(&'static RsaParameters),
    Point(&'static dyn VerificationAlgorithm),
    Secret(hmac::Algorithm),
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
        Self::Hs256,
        Self::Hs384,
        Self::Hs512,
    ];

    /// Its name in the header of a token. Case matters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
        }
    }

    /// The algorithm of this name. `none` is not one.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Whether a secret that both sides know signs, instead of a pair of keys.
    pub fn is_shared(self) -> bool {
        matches!(self.verifier(), SignatureVerifier::Secret(_))
    }

    pub(super) fn verifier(self) -> SignatureVerifier {
        match self {
            Self::Rs256 => SignatureVerifier::Rsa(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => SignatureVerifier::Rsa(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => SignatureVerifier::Rsa(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => SignatureVerifier::Rsa(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => SignatureVerifier::Rsa(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => SignatureVerifier::Rsa(&RSA_PSS_2048_8192_SHA512),
            Self::Es256 => SignatureVerifier::Point(&ECDSA_P256_SHA256_FIXED),
            Self::Es384 => SignatureVerifier::Point(&ECDSA_P384_SHA384_FIXED),
            Self::EdDsa => SignatureVerifier::Point(&ED25519),
            Self::Hs256 => SignatureVerifier::Secret(hmac::HMAC_SHA256),
            Self::Hs384 => SignatureVerifier::Secret(hmac::HMAC_SHA384),
            Self::Hs512 => SignatureVerifier::Secret(hmac::HMAC_SHA512),
        }
    }
}
