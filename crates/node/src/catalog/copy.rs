//! The objects of the catalog that a node has in memory.
//!
//! Invariants: what is known of an object never goes back, since answers and watch events overtake one another, and an
//! older record would give a host back what was taken from it. And what the catalog does not have any more is kept
//! until something says that it was deleted: a catalog that lost its end has not deleted anything, and what nodes know
//! is what it is rebuilt from.
use std::collections::{BTreeMap, BTreeSet};

use proto::deletion::mark_was_dropped;
use proto::v1;
use proto::v1::object::Body;
use replication::words::{CatalogVersion, VolumeUid};

use super::Known;
use super::nodes::Nodes;
use crate::records::VolumeRecord;

/// Kind and name.
pub type Place = (i32, String);

#[derive(Default)]
pub struct Copy {
    volumes: BTreeMap<String, Known>,
    pub nodes: Nodes,
    /// Everything but volumes, as the catalog told it.
    others: BTreeMap<Place, v1::Object>,
    /// What is left of deleted objects, as the catalog told it: without it, what was deleted would come back
    /// from an older copy when the catalog is rebuilt.
    deleted: BTreeMap<Place, v1::Object>,
    /// What the catalog has lost.
    lost: BTreeSet<Place>,
}

pub fn place(key: &v1::Key) -> Place {
    (key.kind, key.name.clone())
}

fn volume_place(name: &str) -> Place {
    (v1::Kind::Volume.into(), name.into())
}

impl Copy {
    pub fn volume(&self, name: &str) -> Option<&Known> {
        self.volumes.get(name)
    }

    pub fn volumes(&self) -> impl Iterator<Item = &Known> {
        self.volumes.values()
    }

    /// This very volume.
    pub fn volume_of(&self, name: &str, uid: VolumeUid) -> Option<&Known> {
        self.volumes.get(name).filter(|known| known.record.uid == uid)
    }

    /// What is known of the same volume, if it is not older than a record.
    pub fn newest(&self, record: &VolumeRecord) -> Option<&Known> {
        let known = self.volume_of(&record.name, record.uid)?;
        (!known.record.object.is_older_than(&record.object)).then_some(known)
    }

    /// What is known of the same volume, if it is newer than a record.
    pub fn newer_than(&self, record: &VolumeRecord) -> Option<&Known> {
        let known = self.volume_of(&record.name, record.uid)?;
        record.object.is_older_than(&known.record.object).then_some(known)
    }

    /// Takes a volume that is not older than what is known. Whether the catalog had lost it before.
    pub fn insert(&mut self, known: Known) -> bool {
        let name = known.record.name.clone();
        let was_lost = self.lost.remove(&volume_place(&name));
        self.deleted.remove(&volume_place(&name));
        self.volumes.insert(name, known);
        was_lost
    }

    /// Anything but a volume.
    pub fn insert_other(&mut self, place: Place, object: v1::Object) {
        if let Some(Body::Node(node)) = &object.body {
            self.nodes.insert(&place.1, object.version, node.clone());
        }
        let is_newer = |known: &v1::Object| known.version <= object.version;
        if self.others.get(&place).is_none_or(is_newer) {
            self.lost.remove(&place);
            self.deleted.remove(&place);
            self.others.insert(place, object);
        }
    }

    /// Something was deleted. Whether that was the object that is known, or a later one of its name.
    pub fn delete(&mut self, place: &Place, left: &v1::Object) -> bool {
        if place.0 == i32::from(v1::Kind::Node) {
            self.nodes.delete(&place.1, left.version);
        }
        let is_volume = place.0 == i32::from(v1::Kind::Volume);
        let is_known = match (is_volume, self.volumes.get(&place.1), self.others.get(place)) {
            (true, Some(known), _) => {
                is_deleted(left, known.record.uid, Some(known.record.object.version))
            }
            (false, _, Some(known)) => known.version < left.version,
            _ => true,
        };
        if !is_known {
            return false;
        }
        self.lost.remove(place);
        self.others.remove(place);
        let is_newer = |known: &v1::Object| known.version <= left.version;
        if self.deleted.get(place).is_none_or(is_newer) {
            self.deleted.insert(place.clone(), left.clone());
        }
        if is_volume {
            self.volumes.remove(&place.1);
        }
        true
    }

    /// Whether another volume may have the name of this one: it was deleted, perhaps before its mark was dropped, or, where a catalog of an earlier version keeps
    /// no marks, it is not lost and the other one is later.
    pub fn gives_way(&self, known: &Known, object: &v1::Object) -> bool {
        let seen = known.record.object.version;
        let is_later = object.deleted_uids.is_empty() && seen.0 < object.version;
        let is_lost = self.lost.contains(&volume_place(&known.record.name));
        // Nothing is wiped by this: content goes by its own mark only.
        let is_long_gone = mark_was_dropped(&known.object, object);
        is_deleted(object, known.record.uid, Some(seen)) || is_long_gone || is_later && !is_lost
    }

    /// The catalog has lost this very volume. Whether that is new.
    pub fn lose_volume(&mut self, name: &str, uid: VolumeUid) -> bool {
        self.volume_of(name, uid).is_some() && self.lost.insert(volume_place(name))
    }

    /// The catalog has told everything that it has, with what it has deleted, in these versions: the rest is lost, and so is
    /// what is known in a later version. Names of the volumes that were not known to be lost.
    pub fn compare(&mut self, told: &BTreeMap<Place, u64>) -> Vec<String> {
        let is_lost = |place: &Place, version: u64| told.get(place).is_none_or(|it| *it < version);
        let others = self.others.iter().filter(|(place, it)| is_lost(place, it.version));
        let others: Vec<Place> = others.map(|(place, _)| place.clone()).collect();
        self.lost.extend(others);
        self.nodes.compare(told);
        let mut new = Vec::new();
        for (name, known) in &self.volumes {
            let place = volume_place(name);
            if is_lost(&place, known.record.object.version.0) && self.lost.insert(place) {
                new.push(name.clone());
            }
        }
        new
    }

    /// All that is known, as the catalog told it, with what is left of deleted objects.
    pub fn objects(&self) -> Vec<v1::Object> {
        let volumes = self.volumes.values().map(|known| (*known.object).clone());
        volumes.chain(self.others.values().chain(self.deleted.values()).cloned()).collect()
    }

    /// Volumes that the catalog has lost.
    pub fn lost_volumes(&self) -> Vec<v1::VolumeRef> {
        let known = self.volumes.iter().filter(|(name, _)| self.lost.contains(&volume_place(name)));
        let of = |known: &Known| v1::VolumeRef {
            name: known.record.name.clone(),
            uid: known.record.uid.0.to_vec(),
        };
        known.map(|(_, known)| of(known)).collect()
    }
}

/// Whether what the catalog has under a name says that this volume, last seen in this version, was deleted. Catalogs of
/// earlier versions keep no uids: there only a later version says so.
pub fn is_deleted(object: &v1::Object, uid: VolumeUid, seen: Option<CatalogVersion>) -> bool {
    match object.deleted_uids.is_empty() {
        true => object.body.is_none() && seen.is_some_and(|seen| seen.0 < object.version),
        false => object.deleted_uids.iter().any(|deleted| *deleted == uid.0),
    }
}
