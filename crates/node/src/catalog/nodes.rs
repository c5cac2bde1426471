//! Where nodes are.
//!
//! Invariants: a record does not give way to one that the catalog had before it, and a node stays known until a mark says
//! that it was deleted. A catalog that was restored or began anew counts versions from a lower number: once it has told
//! everything, whatever it stores later is news, whatever its version is.
use std::collections::BTreeMap;

use proto::v1;
use replication::words::NodeId;

use super::copy::Place;

#[derive(Default)]
pub struct Nodes {
    known: BTreeMap<String, Known>,
}

struct Known {
    node: v1::Node,
    version: u64,
    /// The catalog has lost this record: the version that it had instead when it last told everything; 0: nothing.
    lost: Option<u64>,
}

impl Known {
    /// Whether the catalog stored a version after this record.
    fn is_before(&self, version: u64) -> bool {
        self.version < version || self.lost.is_some_and(|told| told < version)
    }
}

impl Nodes {
    pub fn iter(&self) -> impl Iterator<Item = &v1::Node> {
        self.known.values().map(|known| &known.node)
    }

    pub fn insert(&mut self, name: &str, version: u64, node: v1::Node) {
        let is_newer = |known: &Known| known.version == version || known.is_before(version);
        if self.known.get(name).is_none_or(is_newer) {
            self.known.insert(name.into(), Known { node, version, lost: None });
        }
    }

    /// It was deleted; the mark has this version.
    pub fn delete(&mut self, name: &str, version: u64) {
        if self.known.get(name).is_some_and(|known| known.is_before(version)) {
            self.known.remove(name);
        }
    }

    /// The catalog has told everything that it has, in these versions.
    pub fn compare(&mut self, told: &BTreeMap<Place, u64>) {
        for (name, known) in &mut self.known {
            let told = told.get(&(v1::Kind::Node.into(), name.clone())).copied().unwrap_or(0);
            known.lost = (told < known.version).then_some(told);
        }
    }

    /// Whether the catalog has a node, and as it registered if that is given. Whether it is cordoned is for others to say.
    pub fn has(&self, id: NodeId, registered: Option<&v1::Node>) -> bool {
        let is_same = |node: &v1::Node| {
            registered.is_none_or(|it| *node == v1::Node { cordoned: node.cordoned, ..it.clone() })
        };
        let is_it =
            |known: &Known| known.node.id == id.0 && known.lost.is_none() && is_same(&known.node);
        self.known.values().any(is_it)
    }
}
