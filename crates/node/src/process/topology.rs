//! Where a node is: pairs such as `topology.pollux.io/zone=east`, as orchestrators know them.
//!
//! Keys and values are those of CSI, which are those of labels in Kubernetes: whatever is registered here can be
//! asked for there.
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::str::FromStr;

use thiserror::Error;

/// The key under which every node has its own name.
pub const OWN_KEY: &str = "topology.pollux.io/node";

/// The longest name or value.
const PART_MAX: usize = 63;
/// The longest domain before a name.
const DOMAIN_MAX: usize = 253 - 1 - PART_MAX;
/// As many as the catalog keeps.
const PAIRS_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TopologyError {
    #[error("{text:?} is no pair: write KEY=VALUE, such as topology.pollux.io/zone=east")]
    NoPair { text: String },
    #[error(
        "{key:?} is no key: it is a name of 1 to 63 letters, digits, '-', '_' and '.', beginning and \
         ending with a letter or a digit, and may have a domain and '/' before it"
    )]
    BadKey { key: String },
    #[error(
        "{value:?} is no value for {key}: it has 1 to 63 letters, digits, '-', '_' and '.', beginning and \
         ending with a letter or a digit"
    )]
    BadValue { key: String, value: String },
    #[error("{key} is given twice, as {first} and as {second}: a node is in one place")]
    Twice { key: String, first: String, second: String },
    #[error("{OWN_KEY} is the name of the node, {name}: leave it out")]
    NotItsName { name: String },
    #[error("{count} pairs are too many: at most {}", PAIRS_MAX - 1)]
    TooMany { count: usize },
}

/// One pair that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyPair {
    key: String,
    value: String,
}

impl FromStr for TopologyPair {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<TopologyPair, TopologyError> {
        let no_pair = || TopologyError::NoPair { text: text.into() };
        let (key, value) = text.split_once('=').ok_or_else(no_pair)?;
        let (key, value) = (key.to_owned(), value.to_owned());
        if !is_key(&key) {
            return Err(TopologyError::BadKey { key });
        }
        match is_part(&value) {
            true => Ok(TopologyPair { key, value }),
            false => Err(TopologyError::BadValue { key, value }),
        }
    }
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => is_part(key),
        Some((domain, name)) => {
            let is_label = |label: &str| {
                let is_plain =
                    |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
                is_part(label) && label.bytes().all(is_plain)
            };
            domain.len() <= DOMAIN_MAX && domain.split('.').all(is_label) && is_part(name)
        }
    }
}

fn is_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    bytes.len() <= PART_MAX
        && bytes.iter().all(is_inner)
        && is_end(bytes.first())
        && is_end(bytes.last())
}

/// What a node of this name registers.
pub fn topology(
    name: &str,
    pairs: &[TopologyPair],
) -> Result<BTreeMap<String, String>, TopologyError> {
    if pairs.len() >= PAIRS_MAX {
        return Err(TopologyError::TooMany { count: pairs.len() });
    }
    let mut all = BTreeMap::new();
    for TopologyPair { key, value } in pairs.iter().cloned() {
        match all.entry(key) {
            Entry::Vacant(vacant) => {
                vacant.insert(value);
            }
            Entry::Occupied(known) if *known.get() == value => {}
            Entry::Occupied(known) => {
                let (key, first) = known.remove_entry();
                return Err(TopologyError::Twice { key, first, second: value });
            }
        }
    }
    match all.insert(OWN_KEY.into(), name.into()) {
        Some(other) if other != name => Err(TopologyError::NotItsName { name: name.into() }),
        _ => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(text: &str) -> TopologyPair {
        text.parse().unwrap()
    }

    #[test]
    fn a_node_is_where_it_says_and_has_its_name() {
        let pairs = [pair("topology.pollux.io/zone=east"), pair("rack=R_4.2"), pair("rack=R_4.2")];
        let all = topology("node-1", &pairs).unwrap();
        let expected = [
            ("rack", "R_4.2"),
            ("topology.pollux.io/node", "node-1"),
            ("topology.pollux.io/zone", "east"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(all, BTreeMap::from(expected));
        let named = [pair("topology.pollux.io/node=node-1")];
        assert_eq!(topology("node-1", &named).unwrap().len(), 1);
    }

    #[test]
    fn what_is_no_pair_is_refused_with_the_reason() {
        let long = "x".repeat(64);
        for (text, reason) in [
            ("zone", "write KEY=VALUE"),
            ("", "write KEY=VALUE"),
            ("=east", "is no key"),
            ("/zone=east", "is no key"),
            ("a/b/c=east", "is no key"),
            ("Upper.io/zone=east", "is no key"),
            ("zo ne=east", "is no key"),
            ("-zone=east", "is no key"),
            (&format!("{long}=east"), "is no key"),
            ("zone=", "is no value for zone"),
            ("zone=a=b", "is no value for zone"),
            ("zone=east.", "is no value for zone"),
            (&format!("zone={long}"), "is no value for zone"),
        ] {
            let refused = text.parse::<TopologyPair>().unwrap_err().to_string();
            assert!(refused.contains(reason), "{text:?}: {refused}");
        }
        assert!(format!("{}.io/zone=x", "a".repeat(63)).parse::<TopologyPair>().is_ok());
        let domain = vec!["abcdefg"; 30].join(".");
        assert!(format!("{domain}/zone=x").parse::<TopologyPair>().is_err(), "too long a domain");
    }

    #[test]
    fn a_node_is_not_in_two_places() {
        let twice = topology("node-1", &[pair("zone=a"), pair("zone=b")]).unwrap_err();
        assert!(twice.to_string().contains("as a and as b"), "{twice}");
        let other = [pair("topology.pollux.io/node=node-2")];
        let refused = TopologyError::NotItsName { name: "node-1".into() };
        assert_eq!(topology("node-1", &other), Err(refused));
        let many: Vec<TopologyPair> = (0..64).map(|at| pair(&format!("key{at}=x"))).collect();
        assert_eq!(topology("node-1", &many), Err(TopologyError::TooMany { count: 64 }));
        assert_eq!(topology("node-1", &many[1..]).unwrap().len(), 64);
    }
}
