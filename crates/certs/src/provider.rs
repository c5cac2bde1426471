//! The one place that says whose cryptography is used. Another provider is another line here.
use std::sync::{Arc, OnceLock};

use ring::hmac;
use rustls::crypto::CryptoProvider;
use rustls::crypto::hash::HashAlgorithm;

pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}

/// SHA-256, by the provider that TLS has anyway.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let suites = provider().cipher_suites.clone();
    let hashes =
        suites.iter().filter_map(|suite| suite.tls13()).map(|suite| suite.common.hash_provider);
    let mut hashes = hashes.filter(|hash| hash.algorithm() == HashAlgorithm::SHA256);
    let hash = hashes.next().expect("TLS 1.3 has a suite with SHA-256");
    let mut digest = [0; 32];
    digest.copy_from_slice(hash.hash(bytes).as_ref());
    digest
}

/// HMAC-SHA256: what shows that somebody knows a secret, without telling it.
pub fn hmac_sha256(secret: &[u8], message: &[u8]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut mac = [0; 32];
    mac.copy_from_slice(hmac::sign(&key, message).as_ref());
    mac
}

/// Whether this is [`hmac_sha256`] of a message. How long it takes does not tell where they differ.
pub fn is_hmac_sha256(secret: &[u8], message: &[u8], mac: &[u8; 32]) -> bool {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, message, mac).is_ok()
}

/// Bytes that nobody can guess.
pub fn random(bytes: &mut [u8]) {
    let filled = provider().secure_random.fill(bytes);
    filled.expect("the system has random numbers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_standard() {
        let [first, .., last] = sha256(b"abc");
        assert_eq!((first, last), (0xba, 0xad));
        let (mut one, mut other) = ([0; 16], [0; 16]);
        random(&mut one);
        random(&mut other);
        assert_ne!(one, other);
    }

    /// Case 2 of RFC 4231.
    #[test]
    fn a_code_is_that_of_the_standard_and_of_no_other_secret() {
        let message = b"what do ya want for nothing?";
        let mac = hmac_sha256(b"Jefe", message);
        assert_eq!((&mac[..4], mac[31]), (&[0x5b, 0xdc, 0xc1, 0x46][..], 0x43));
        assert!(is_hmac_sha256(b"Jefe", message, &mac));
        assert!(!is_hmac_sha256(b"Jeff", message, &mac));
        assert!(!is_hmac_sha256(b"Jefe", b"", &mac));
        let mut other = mac;
        other[31] ^= 1;
        assert!(!is_hmac_sha256(b"Jefe", message, &other));
    }
}
