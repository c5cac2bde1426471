//! The one place that says whose cryptography is used. Another provider is another line here.
use std::sync::{Arc, OnceLock};

use rustls::crypto::CryptoProvider;

pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER.get_or_init(|| Arc::new(rustls::crypto::ring::default_provider())).clone()
}
