//! What differs between two snapshots of a replica, or what one of them has at all.
//!
//! Snapshots do not change, so these questions have no place in the order of their volume: they begin at
//! once, and a snapshot that is looked at is deleted when nobody looks any more.
use block::{ByteLen, ByteOffset, Disk, Position};
use engine::{Op, Runs, Since, SnapshotId};
use replication::store::{StoreError, StoreTag};
use replication::words::{SnapshotUid, VolumeUid};
use thiserror::Error;

use super::step::Step;
use super::{Asked, Cut, Host};

/// A snapshot at its place in the history of its volume. Another history may have had one of this uid
/// elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub snapshot: SnapshotUid,
    pub at: Position,
}

/// What is looked at, found in the pool.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    snapshot: (SnapshotUid, SnapshotId),
    /// `None`: what is allocated is told.
    base: Option<(SnapshotUid, SnapshotId)>,
    /// Of the volume at the snapshot.
    pub size: ByteLen,
}

impl Compared {
    fn step(&self) -> Step {
        match self.base {
            None => Step::Look(self.snapshot.0),
            Some((base, _)) => Step::Compare(self.snapshot.0, base),
        }
    }
}

/// Why two snapshots cannot be compared; `which` of them.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Missing {
    #[error("the replica here has no such {which}, or not yet: ask another node")]
    Unknown { which: &'static str },
    #[error(
        "the replica here has the {which} at {found}, and not at {at}: one of them is of an end of the \
         history that was undone"
    )]
    Elsewhere { which: &'static str, found: Position, at: Position },
    #[error("the {which} cannot be looked at: {error}")]
    Store { which: &'static str, error: StoreError },
}

impl<D: Disk> Host<D> {
    /// Finds users' snapshots of a replica that is here.
    pub fn compared(
        &self,
        volume: VolumeUid,
        snapshot: Point,
        base: Option<Point>,
    ) -> Result<Compared, Missing> {
        let of = self.at(volume, "snapshot", snapshot)?;
        let base = base.map(|base| Ok((base.snapshot, self.at(volume, "base", base)?.id)));
        Ok(Compared {
            snapshot: (snapshot.snapshot, of.id),
            base: base.transpose()?,
            size: of.shared.size,
        })
    }

    fn at(&self, volume: VolumeUid, which: &'static str, point: Point) -> Result<Cut, Missing> {
        let Point { snapshot, at } = point;
        match self.snapshot(volume, snapshot) {
            Ok(cut) if cut.position == at => Ok(cut),
            Ok(cut) => Err(Missing::Elsewhere { which, found: cut.position, at }),
            Err(StoreError::UnknownSnapshot) => Err(Missing::Unknown { which }),
            Err(error) => Err(Missing::Store { which, error }),
        }
    }

    /// What differs from `from` on, at most `max` ranges. Answered like an operation.
    pub fn compare(
        &mut self,
        volume: VolumeUid,
        tag: StoreTag,
        compared: &Compared,
        from: ByteOffset,
        max: usize,
    ) -> Result<(), StoreError> {
        let place = self.places.get_mut(&volume).filter(|place| place.volume().is_some());
        let place = place.ok_or(StoreError::UnknownSnapshot)?;
        let points = || std::iter::once(compared.snapshot).chain(compared.base);
        if !points().all(|(uid, id)| place.snapshots.get(&uid) == Some(&id)) {
            return Err(StoreError::UnknownSnapshot);
        }
        points().for_each(|(uid, _)| place.look_at(uid));
        let op = Op::Changed {
            snapshot: compared.snapshot.1,
            since: compared.base.map_or(Since::Start, |(_, base)| Since::Snapshot(base)),
            from,
            to: Some(ByteOffset(compared.size.0)),
            max,
            runs: Runs::Joined,
        };
        self.ask(Asked { volume, tag, step: compared.step(), at: from }, op);
        Ok(())
    }
}
