//! The objects of the catalog that a node has in memory.
//!
//! Invariant: what is known of a volume never goes back. Answers and watch events overtake one another, and an older
//! record would give a host back what was taken from it.
use std::collections::{BTreeMap, BTreeSet};

use proto::v1;

use super::Known;
use crate::records::VolumeRecord;

#[derive(Default)]
pub struct Copy {
    volumes: BTreeMap<String, Known>,
    pub nodes: BTreeMap<String, v1::Node>,
}

impl Copy {
    pub fn volume(&self, name: &str) -> Option<&Known> {
        self.volumes.get(name)
    }

    pub fn volumes(&self) -> impl Iterator<Item = &Known> {
        self.volumes.values()
    }

    /// What is known of the same volume, if it is not older than a record.
    pub fn newest(&self, record: &VolumeRecord) -> Option<&Known> {
        let known = self.volumes.get(&record.name)?;
        let is_same = known.record.uid == record.uid;
        let is_older = known.record.object.is_older_than(&record.object);
        (is_same && !is_older).then_some(known)
    }

    /// What is known of the same volume, if it is newer than a record.
    pub fn newer_than(&self, record: &VolumeRecord) -> Option<&Known> {
        let known = self.volumes.get(&record.name)?;
        let is_newer = record.object.is_older_than(&known.record.object);
        (known.record.uid == record.uid && is_newer).then_some(known)
    }

    pub fn insert(&mut self, known: Known) {
        self.volumes.insert(known.record.name.clone(), known);
    }

    /// The object of this version was deleted. Whether that was the one that is known.
    pub fn delete_volume(&mut self, name: &str, version: u64) -> bool {
        let is_known = self.volumes.get(name).is_none_or(|it| it.record.object.version.0 < version);
        if is_known {
            self.volumes.remove(name);
        }
        is_known
    }

    pub fn retain(&mut self, volumes: &BTreeSet<String>, nodes: &BTreeSet<String>) {
        self.volumes.retain(|name, _| volumes.contains(name));
        self.nodes.retain(|name, _| nodes.contains(name));
    }
}
