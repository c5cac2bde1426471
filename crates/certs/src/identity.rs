//! Who this process is: a certificate that was looked at, its key, and the authority.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, RootCertStore};
use webpki::{EndEntityCert, KeyUsage};

use crate::errors::LoadError;
use crate::files::{self, CA_CERTIFICATE, CERTIFICATE, KEY};
use crate::inspect::{Date, name_of};
use crate::name::Name;
use crate::provider::provider;
use crate::trust;

const NOT_ISSUED: &str = "take the whole folder that `pollux certs issue` made";

/// What a participant of a site shows, and what it holds others to.
#[derive(Clone, Debug)]
pub struct Identity {
    name: Name,
    pub(crate) own: Arc<CertifiedKey>,
    pub(crate) authorities: Arc<RootCertStore>,
}

impl Identity {
    /// Loads the folder of a participant, and refuses one that its peers would refuse.
    pub fn load(folder: &Path) -> Result<Identity, LoadError> {
        Identity::load_at(folder, UnixTime::now())
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    pub(crate) fn load_at(folder: &Path, now: UnixTime) -> Result<Identity, LoadError> {
        let paths = Paths::below(folder);
        let authorities = files::certificates(&paths.authority, NOT_ISSUED)?;
        let chain = files::certificates(&paths.certificate, NOT_ISSUED)?;
        let key = files::key(&paths.key, NOT_ISSUED)?;
        let first = chain.first().expect("a file without certificates was refused").clone();
        let unusable =
            |reason: String| LoadError::Unusable { path: paths.certificate.clone(), reason };

        let own = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => paths.unpaired(),
            other => unusable(other.to_string()),
        })?;
        verify(&first, &authorities, now).map_err(|error| paths.refused(error))?;
        let name = name_of(&first).map_err(|error| unusable(error.to_string()))?;
        let authorities = trust::roots(authorities, &paths.authority)?;
        Ok(Identity { name, own: Arc::new(own), authorities })
    }
}

struct Paths {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Paths {
    fn below(folder: &Path) -> Paths {
        let [authority, certificate, key] =
            [CA_CERTIFICATE, CERTIFICATE, KEY].map(|name| folder.join(name));
        Paths { authority, certificate, key }
    }

    fn unpaired(&self) -> LoadError {
        LoadError::Unpaired { certificate: self.certificate.clone(), key: self.key.clone() }
    }

    fn refused(&self, error: webpki::Error) -> LoadError {
        let path = self.certificate.clone();
        match error {
            webpki::Error::CertExpired { not_after, .. } => {
                LoadError::Expired { path, on: Date::of(not_after) }
            }
            webpki::Error::CertNotValidYet { not_before, .. } => {
                LoadError::NotYetValid { path, from: Date::of(not_before) }
            }
            webpki::Error::UnknownIssuer | webpki::Error::InvalidSignatureForPublicKey => {
                LoadError::OtherAuthority { path, authority: self.authority.clone() }
            }
            other => LoadError::Unusable { path, reason: other.to_string() },
        }
    }
}

/// Looks at a certificate as a peer would, in both directions.
pub fn verify(
    certificate: &CertificateDer<'_>,
    authorities: &[CertificateDer<'_>],
    now: UnixTime,
) -> Result<(), webpki::Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    let anchors = authorities.iter().map(webpki::anchor_from_trusted_cert);
    let anchors: Vec<TrustAnchor<'_>> = anchors.collect::<Result<_, _>>()?;
    let certificate = EndEntityCert::try_from(certificate)?;
    for usage in [KeyUsage::server_auth(), KeyUsage::client_auth()] {
        certificate.verify_for_usage(algorithms, &anchors, &[], now, usage, None, None)?;
    }
    Ok(())
}
