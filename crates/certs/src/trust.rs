//! Whose word counts, for somebody who has no certificate.
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::errors::LoadError;
use crate::files;

const NOT_GIVEN: &str = "take the `ca.crt` of any folder that `pollux certs issue` made";

/// The authority of a site, as its clients know it.
#[derive(Clone, Debug)]
pub struct Trust {
    pub(crate) authorities: Arc<RootCertStore>,
}

impl Trust {
    /// Loads a `ca.crt`.
    pub fn load(path: &Path) -> Result<Trust, LoadError> {
        let authorities = files::certificates(path, NOT_GIVEN)?;
        Ok(Trust { authorities: roots(authorities, path)? })
    }
}

pub(crate) fn roots(
    authorities: Vec<CertificateDer<'static>>,
    path: &Path,
) -> Result<Arc<RootCertStore>, LoadError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority).map_err(|error| LoadError::Unusable {
            path: path.into(),
            reason: error.to_string(),
        })?;
    }
    Ok(Arc::new(roots))
}
