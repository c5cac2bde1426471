//! The authority of a site: makes itself once, and certificates for everybody who takes part.
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, DnsName, UnixTime};
use time::OffsetDateTime;

use crate::errors::{IssueError, LoadError, WriteError};
use crate::files::{self, CA_CERTIFICATE, CA_KEY, CERTIFICATE, Content, KEY};
use crate::identity::verify;
use crate::inspect::{Date, not_after};
use crate::name::Name;

/// What its name begins with; the rest is of its key, so that one site's is not taken for another's.
const AUTHORITY_NAME: &str = "Pollux CA";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks of machines that are set up together may be off by hours.
const EARLIER: Duration = DAY;
const AUTHORITY_LASTS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// Long enough to be renewed by hand once a year, with a month to spare.
const CERTIFICATE_LASTS: Duration = Duration::from_secs(395 * 24 * 60 * 60);

const NO_AUTHORITY: &str = "make an authority first with `pollux certs init`";

/// From when to when a certificate counts.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Validity {
    pub fn of_authority(now: SystemTime) -> Validity {
        Validity { from: now - EARLIER, until: now + AUTHORITY_LASTS }
    }

    pub fn of_certificate(now: SystemTime) -> Validity {
        Validity { from: now - EARLIER, until: now + CERTIFICATE_LASTS }
    }
}

pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

/// A certificate with its key, not yet written anywhere.
pub struct Issued {
    name: Name,
    authority: String,
    certificate: String,
    key: KeyPair,
}

impl Authority {
    /// Its folder among those that it issues.
    pub const FOLDER: &str = "ca";

    pub fn make(valid: Validity) -> Result<Authority, IssueError> {
        let made = |error| IssueError::Made { error };
        let key = KeyPair::generate().map_err(made)?;
        let mut params = authority_params(&key);
        (params.not_before, params.not_after) = (valid.from.into(), valid.until.into());
        let certificate = params.self_signed(&key).map_err(made)?;
        let pem = certificate.pem();
        Ok(Authority { certificate: certificate.into(), pem, key })
    }

    /// Writes it below a folder of certificates, where there is none yet.
    pub fn write(&self, folder: &Path) -> Result<(), WriteError> {
        let key = self.key.serialize_pem();
        let files =
            [(CA_CERTIFICATE, Content::Certificate(&self.pem)), (CA_KEY, Content::Key(&key))];
        files::write_folder(&folder.join(Authority::FOLDER), &files)
    }

    pub fn open(folder: &Path) -> Result<Authority, LoadError> {
        let folder = folder.join(Authority::FOLDER);
        let (certificate, key) = (folder.join(CA_CERTIFICATE), folder.join(CA_KEY));
        let found = files::certificates(&certificate, NO_AUTHORITY)?;
        let not_pem = || LoadError::NotPem { path: key.clone(), what: "private key" };
        let text = String::from_utf8(files::key_text(&key, NO_AUTHORITY)?);
        let key = KeyPair::from_pem(&text.map_err(|_| not_pem())?).map_err(|_| not_pem())?;
        let [found] = <[_; 1]>::try_from(found).map_err(|found| LoadError::Unusable {
            path: certificate.clone(),
            reason: format!("it holds {} certificates instead of one", found.len()),
        })?;
        let pem = std::fs::read_to_string(&certificate)
            .map_err(|error| LoadError::Io { path: certificate, error })?;
        Ok(Authority { certificate: found, pem, key })
    }

    /// A certificate for a participant, which also counts for these addresses.
    pub fn issue(
        &self,
        name: &Name,
        addresses: &[String],
        valid: Validity,
    ) -> Result<Issued, IssueError> {
        let made = |error| IssueError::Made { error };
        let key = KeyPair::generate().map_err(made)?;
        let mut params = params_for(name, addresses)?;
        (params.not_before, params.not_after) = (valid.from.into(), self.clamp(valid.until)?);
        let issuer = Issuer::new(authority_params(&self.key), &self.key);
        let certificate = params.signed_by(&key, &issuer).map_err(made)?;
        self.check(&certificate, valid)?;
        let (authority, certificate) = (self.pem.clone(), certificate.pem());
        Ok(Issued { name: name.clone(), authority, certificate, key })
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Nobody looks at the dates of an authority, so what it issues ends with it.
    fn clamp(&self, until: SystemTime) -> Result<OffsetDateTime, IssueError> {
        let ends = not_after(&self.certificate).unwrap_or(UnixTime::now());
        if ends <= UnixTime::now() {
            return Err(IssueError::AuthorityExpired { on: Date::of(ends) });
        }
        let ends = SystemTime::UNIX_EPOCH + Duration::from_secs(ends.as_secs());
        Ok(ends.min(until).into())
    }

    /// The certificate of an authority may be of another one than its key.
    fn check(&self, issued: &Certificate, valid: Validity) -> Result<(), IssueError> {
        let since = valid.from.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let then = UnixTime::since_unix_epoch(since + Duration::from_secs(1));
        let authorities = std::slice::from_ref(&self.certificate);
        verify(issued.der(), authorities, then)
            .map_err(|error| IssueError::WrongAuthority { error })
    }
}

impl Issued {
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Writes a folder of its own, named after its owner, below a folder of certificates.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, WriteError> {
        let path = folder.join(self.name.as_str());
        let key = self.key.serialize_pem();
        let files = [
            (CA_CERTIFICATE, Content::Certificate(&self.authority)),
            (CERTIFICATE, Content::Certificate(&self.certificate)),
            (KEY, Content::Key(&key)),
        ];
        files::write_folder(&path, &files)?;
        Ok(path)
    }
}

/// They follow from the key: an authority is opened again without its certificate being taken apart.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let print = params.key_identifier(key);
    let print: String = print.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{AUTHORITY_NAME} {print}"));
    // It signs participants, and no further authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn params_for(name: &Name, addresses: &[String]) -> Result<CertificateParams, IssueError> {
    if name.as_str() == Authority::FOLDER {
        return Err(IssueError::Reserved { name: name.to_string() });
    }
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name.dns());
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Every participant both calls and is called.
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.subject_alt_names = vec![dns(&name.dns())?];
    for address in addresses {
        params.subject_alt_names.push(alternative(address)?);
    }
    Ok(params)
}

fn alternative(address: &str) -> Result<SanType, IssueError> {
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(ip));
    }
    if Name::is_in_zone(address) {
        return Err(IssueError::AddressInZone { address: address.into() });
    }
    dns(address)
}

fn dns(name: &str) -> Result<SanType, IssueError> {
    let bad = || IssueError::BadAddress { address: name.into() };
    DnsName::try_from(name).map_err(|_| bad())?;
    Ok(SanType::DnsName(Ia5String::try_from(name).map_err(|_| bad())?))
}
