//! Where volumes are to be, and where a node is.
use proto::csi::{Topology, TopologyRequirement};
use thiserror::Error;
use tonic::Status;

use super::status::{invalid, missing};
use crate::api::types::Pairs;
use crate::catalog::limits::PAIRS_MAX;
use crate::controller::NODE_KEY;

/// The longest part of a key, and the longest value (CSI).
const PART_LEN_MAX: usize = 63;

/// Where the replicas of a volume may be, and where rather.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub accessible: Vec<Pairs>,
    pub preferred: Vec<Pairs>,
}

pub fn wanted(of: Option<TopologyRequirement>) -> Result<Wanted, Status> {
    const FIELD: &str = "accessibility_requirements";
    let Some(TopologyRequirement { requisite, preferred }) = of else {
        return Ok(Wanted::default());
    };
    if requisite.is_empty() && preferred.is_empty() {
        return Err(missing("accessibility_requirements.requisite or .preferred"));
    }
    let accessible = segments(&format!("{FIELD}.requisite"), requisite)?;
    let preferred = segments(&format!("{FIELD}.preferred"), preferred)?;
    let stray = |one: &&Pairs| !accessible.is_empty() && !accessible.contains(one);
    match preferred.iter().find(stray) {
        Some(_) => Err(invalid(&format!("{FIELD}.preferred"), "one of them is not in requisite")),
        None => {
            // Where it is used one replica is best.
            let nodes = accessible.iter().filter(|one| one.contains_key(NODE_KEY));
            let rather = preferred.iter().chain(nodes).cloned().collect();
            Ok(Wanted { accessible: reach(accessible), preferred: rather })
        }
    }
}

/// A volume is reached over the network from every node that is where it may be, so a node by itself is no
/// bound for its replicas. None: everywhere.
pub fn reach(segments: Vec<Pairs>) -> Vec<Pairs> {
    let mut reach: Vec<Pairs> = Vec::new();
    for mut segment in segments {
        segment.remove(NODE_KEY);
        if segment.is_empty() {
            return Vec::new();
        }
        if !reach.contains(&segment) {
            reach.push(segment);
        }
    }
    reach
}

fn segments(field: &str, of: Vec<Topology>) -> Result<Vec<Pairs>, Status> {
    let each = of.into_iter().enumerate();
    each.map(|(at, topology)| segment(&format!("{field}[{at}]"), topology)).collect()
}

/// One place, as a request says it.
pub fn segment(field: &str, of: Topology) -> Result<Pairs, Status> {
    match of.segments.is_empty() {
        true => Err(missing(&format!("{field}.segments"))),
        false => Ok(of.segments.into_iter().collect()),
    }
}

pub fn told(pairs: &Pairs) -> Topology {
    Topology { segments: pairs.clone().into_iter().collect() }
}

/// Why a node's place cannot be told to an orchestrator.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    #[error(
        "`{0}` is no key of a topology: write name or prefix/name, each of up to 63 of a-z, 0-9, - and ."
    )]
    Key(String),
    #[error("`{0}` is no value of a topology: write up to 63 letters, digits, -, _ and .")]
    Value(String),
    #[error("`{0}` is there twice; capitals make no difference")]
    Twice(String),
    #[error("`{0}` has another prefix than the keys before it")]
    Prefix(String),
    #[error("there are more than {PAIRS_MAX} keys")]
    Many,
}

/// Where a node is, from keys and values that an operator gave it. Its name is known already.
pub fn place(given: Vec<(String, String)>) -> Result<Pairs, PlaceError> {
    let mut place = Pairs::new();
    if given.len() > PAIRS_MAX {
        return Err(PlaceError::Many);
    }
    for (key, value) in given {
        let (prefix, name) = parts(&key);
        let domain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let prefix_fits =
            prefix.is_none_or(|prefix| bounded(prefix, domain, |byte| matches!(byte, b'-' | b'.')));
        if !prefix_fits || !worded(name) {
            return Err(PlaceError::Key(key));
        }
        if !worded(&value) {
            return Err(PlaceError::Value(value));
        }
        let is_known = |other: &str| other.eq_ignore_ascii_case(&key);
        if is_known(NODE_KEY) || place.keys().any(|other: &String| is_known(other)) {
            return Err(PlaceError::Twice(key));
        }
        let other = place.keys().next().map(|other| parts(other).0);
        if other.is_some_and(|other| other != prefix) {
            return Err(PlaceError::Prefix(key));
        }
        place.insert(key, value);
    }
    Ok(place)
}

fn parts(key: &str) -> (Option<&str>, &str) {
    key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name))
}

fn worded(text: &str) -> bool {
    bounded(text, |byte| byte.is_ascii_alphanumeric(), |byte| matches!(byte, b'-' | b'_' | b'.'))
}

/// Begins and ends with `edge`; in between may be `inner` too.
fn bounded(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    (1..=PART_LEN_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| edge(*byte) || inner(*byte))
        && edge(bytes[0])
        && edge(bytes[bytes.len() - 1])
}

#[cfg(test)]
mod tests;
