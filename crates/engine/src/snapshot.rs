//! Snapshots, and who owns what when maps share blocks and pages.
//!
//! Maps form trees: a volume, and every snapshot, has at most one *parent*, the snapshot that it
//! goes on from. A map begins as its parent's and differs by what was written since, so:
//!
//! - **What was born after the parent belongs to the map alone**, or to it and those that go on
//!   from it. What is older belongs to the parent as well.
//! - A volume that drops a block or page gives its space back only if it was born after the
//!   parent; otherwise the parent still has it. So there are no dead lists to keep: what died
//!   between a snapshot and its child is what the one map has and the other has not.
//! - A deleted snapshot with one child is compared with it. Only pages that the child does not
//!   have are entered, and each of them is freed: deleting costs what it frees. With several
//!   children (clones, or what came after a rollback) it stays, hidden, until one is left.
//! - Dropping goes in order of address, in bounded steps. `dropped` says how far it came: below
//!   it, the child is the only owner of what both had; above it, both still are ([`Floor`]).
use block::{Position, Seq};

use crate::format::PagePtr;
use crate::units::{Birth, Granule, Slot, SnapshotId, VolumeId};
use crate::volume::{Durable, Header, MapRoot};

/// Which births a map shares with its parent: those up to `above`; up to `below` where the parent
/// was dropped already, in granules before `cut`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    pub below: Birth,
    pub cut: Granule,
    pub above: Birth,
}

impl Floor {
    pub fn flat(birth: Birth) -> Floor {
        Floor { below: birth, cut: Granule(0), above: birth }
    }

    /// That of a map which goes on from `parent`; `cut` finds snapshots.
    pub fn over<'a>(
        parent: Option<SnapshotId>,
        cut: impl Fn(SnapshotId) -> Option<&'a Cut>,
    ) -> Floor {
        match parent.and_then(&cut) {
            None => Floor::default(),
            Some(found) if found.dropped == Granule(0) => Floor::flat(found.birth),
            Some(found) => Floor {
                below: found.parent.and_then(&cut).map_or(Birth(0), |older| older.birth),
                cut: found.dropped,
                above: found.birth,
            },
        }
    }

    /// Whether something that was born then, and reaches up to `end`, is the map's own.
    ///
    /// A page that lies across the cut is either younger than the parent, or it is the parent's,
    /// and then dropping has passed over it as a whole.
    pub fn owns(self, born: Birth, end: u64) -> bool {
        born > if end <= self.cut.0 { self.below } else { self.above }
    }

    pub fn owns_page(self, ptr: PagePtr, end: u64) -> bool {
        self.owns(ptr.born, end)
    }
}

/// A snapshot as its object page keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The volume that it is of. It may be gone.
    pub volume: VolumeId,
    /// The volume's, as of the snapshot, with the snapshot's own name and uid.
    pub header: Header,
    pub map: MapRoot,
    pub position: Position,
    pub parent: Option<SnapshotId>,
    /// The last birth that can be in it.
    pub birth: Birth,
    pub created: u64,
    pub internal: bool,
    /// Gone for users; its space is on its way back, or needed by clones.
    pub deleted: bool,
    /// Granules before this one were dropped.
    pub dropped: Granule,
    /// Replication's, as the volume had it at the snapshot.
    pub state: Vec<u8>,
}

/// A map that nobody has any more, on its way back to free space: of a deleted volume, of the
/// time before a rollback, or cut off by a large discard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub volume: VolumeId,
    pub header: Header,
    pub map: MapRoot,
    /// As of the moment when it was orphaned.
    pub floor: Floor,
    pub dropped: Granule,
}

/// What an object page holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    Volume(Durable),
    Snapshot(Cut),
    Orphan(Orphan),
}

impl Object {
    pub fn map(&self) -> MapRoot {
        match self {
            Object::Volume(volume) => volume.map,
            Object::Snapshot(cut) => cut.map,
            Object::Orphan(orphan) => orphan.map,
        }
    }

    pub fn header(&self) -> &Header {
        match self {
            Object::Volume(volume) => &volume.header,
            Object::Snapshot(cut) => &cut.header,
            Object::Orphan(orphan) => &orphan.header,
        }
    }

    pub fn parent(&self) -> Option<SnapshotId> {
        match self {
            Object::Volume(volume) => volume.parent,
            Object::Snapshot(cut) => cut.parent,
            Object::Orphan(_) => None,
        }
    }
}

/// A snapshot of an open pool.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub id: SnapshotId,
    pub cut: Cut,
    /// Whether a checkpoint has given it its map. Until then it is in the overlay.
    pub settled: bool,
    /// Deleted by something that was accepted, but is not done yet.
    pub front_deleted: bool,
}

/// A volume that became something else as a whole: a rollback, or the end of an import. The map
/// that it had waits for the next checkpoint, which stamps what differs and orphans it.
#[derive(Clone, Copy, Debug)]
pub struct Jump {
    pub old: MapRoot,
    pub old_parent: Option<SnapshotId>,
    /// What it goes on from now; snapshots of it may have come since.
    pub parent: Option<SnapshotId>,
    pub stamp: Option<Seq>,
    /// Pages that stamping may write.
    pub budget: u64,
    /// The slot of its record: nobody sees it before that is held.
    pub slot: Slot,
}

#[cfg(test)]
mod tests;
