//! What a certificate says of its owner.
use std::fmt;
use std::str::FromStr;

use crate::errors::NameError;

/// No public name ends so, and no address that is asked for may: a name is never mistaken for one.
const ZONE: &str = ".pollux";

/// One label of DNS.
const LEN_MAX: usize = 63;

const NODE: &str = "node-";

/// Somebody who takes part in a site: `node-3`, `catalog`. In a certificate it stands as a name of DNS,
/// `node-3.pollux`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    pub fn node(id: u64) -> Name {
        Name(format!("{NODE}{id}"))
    }

    pub fn catalog() -> Name {
        Name("catalog".into())
    }

    /// The node that this is the name of.
    pub fn node_id(&self) -> Option<u64> {
        let id = self.0.strip_prefix(NODE)?.parse().ok()?;
        // One node has one name: `node-03` is nobody's.
        (Name::node(id) == *self).then_some(id)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As it stands in a certificate.
    pub fn dns(&self) -> String {
        format!("{}{ZONE}", self.0)
    }

    /// Whether text ends as only names do.
    pub(crate) fn is_in_zone(dns: &str) -> bool {
        dns.to_ascii_lowercase().ends_with(ZONE)
    }

    pub(crate) fn from_dns(dns: &str) -> Result<Name, NameError> {
        dns.strip_suffix(ZONE).unwrap_or_default().parse()
    }
}

impl FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Name, NameError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let fits = (1..=LEN_MAX).contains(&text.len()) && text.bytes().all(plain);
        if !fits || text.starts_with('-') || text.ends_with('-') {
            return Err(NameError { name: text.chars().take(LEN_MAX).collect() });
        }
        Ok(Name(text.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_from_a_certificate() {
        let name = Name::node(12);
        assert_eq!(Name::from_dns(&name.dns()), Ok(name.clone()));
        assert_eq!(name.node_id(), Some(12));
        assert_eq!(Name::catalog().node_id(), None);
    }

    /// Protects from two names for one node.
    #[test]
    fn only_the_plain_number_is_a_node() {
        for odd in ["node-03", "node-", "node-x", "node-99999999999999999999", "node"] {
            assert_eq!(odd.parse::<Name>().ok().and_then(|name| name.node_id()), None, "{odd}");
        }
    }

    #[test]
    fn a_name_is_one_plain_label() {
        let long = "n".repeat(LEN_MAX + 1);
        for bad in ["", "-a", "a-", "a.b", "A", "a b", "a/b", "ä", &long] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
        for bad in ["", ".pollux", "a.b.pollux", "a", "a.pollux.org"] {
            assert!(Name::from_dns(bad).is_err(), "{bad}");
        }
    }
}
