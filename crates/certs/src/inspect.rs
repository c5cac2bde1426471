//! What stands in a certificate, for people: who, and until when.
use std::fmt;
use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use time::OffsetDateTime;
use webpki::{EndEntityCert, KeyUsage};

use crate::errors::PeerError;
use crate::name::Name;

/// The last second that a certificate can name: the end of 9999.
const END_OF_TIME: Duration = Duration::from_secs(253_402_300_799);

/// A day of the calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(time::Date);

impl Date {
    pub(crate) fn of(time: UnixTime) -> Date {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        let moment = OffsetDateTime::from_unix_timestamp(seconds);
        Date(moment.map_or(time::Date::MAX, OffsetDateTime::date))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.0.to_calendar_date();
        write!(f, "{year:04}-{:02}-{day:02}", u8::from(month))
    }
}

/// What a certificate says of itself. Nothing of it was verified.
#[derive(Clone, Debug)]
pub struct Subject {
    /// An authority has none.
    pub name: Option<Name>,
    pub until: Option<Date>,
    pub expired: bool,
}

pub fn inspect(certificate: &CertificateDer<'_>) -> Subject {
    let until = not_after(certificate);
    Subject {
        name: name_of(certificate).ok(),
        until: until.map(Date::of),
        expired: until.is_some_and(|until| until < UnixTime::now()),
    }
}

/// When it ends. The verifier tells no dates, but says when a certificate ended that it is asked about
/// too late; and validity is what it looks at first.
pub fn not_after(certificate: &CertificateDer<'_>) -> Option<UnixTime> {
    let late = UnixTime::since_unix_epoch(END_OF_TIME);
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    let usage = KeyUsage::server_auth();
    match certificate.verify_for_usage(&[], &[], &[], late, usage, None, None) {
        Err(webpki::Error::CertExpired { not_after, .. }) => Some(not_after),
        _ => None,
    }
}

/// The one name of a participant that a certificate bears.
pub fn name_of(certificate: &CertificateDer<'_>) -> Result<Name, PeerError> {
    let certificate = EndEntityCert::try_from(certificate).map_err(|_| PeerError::Unreadable)?;
    let mut names = certificate.valid_dns_names().filter(|dns| Name::is_in_zone(dns));
    match (names.next(), names.next()) {
        (Some(dns), None) => Name::from_dns(dns).map_err(|_| PeerError::NoName),
        _ => Err(PeerError::NoName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_shown_as_it_is_sorted() {
        let date = |seconds| Date::of(UnixTime::since_unix_epoch(Duration::from_secs(seconds)));
        assert_eq!(date(0).to_string(), "1970-01-01");
        assert_eq!(date(1_767_225_600).to_string(), "2026-01-01");
        assert_eq!(date(u64::MAX).to_string(), "9999-12-31");
    }
}
