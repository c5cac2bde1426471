//! A replica's operation as one of the engine, and what its answer means for the place.
use block::{ByteLen, ByteOffset};
use engine::{
    GranuleSums, Op, OpError, Reply, Runs, SnapshotId, SnapshotSpec, SnapshotsOfDeleted, Staged,
    Stamps, Subject, VolumeId,
};
use replication::entry::Zeroing;
use replication::store::{ChangedRange, Content, Extent, StoreError, StoreOp, StoreReply};
use replication::words::SnapshotUid;

use super::origin::First;
use super::place::{Phase, Place, Staging};

/// What an answer changes here.
#[derive(Clone, Debug)]
pub enum Step {
    Plain,
    /// From this size.
    Grow(ByteLen),
    Snapshot(SnapshotUid),
    /// Something is read of a snapshot.
    Look(SnapshotUid),
    /// Two are compared.
    Compare(SnapshotUid, SnapshotUid),
    DeleteSnapshot(SnapshotUid, SnapshotId),
    Stage,
    /// The end of an import, one way or the other.
    EndImport(VolumeId),
    Create(First),
    FirstState {
        id: VolumeId,
        first: First,
    },
    /// An import that goes before its volume: behind it, that would not be deleted. If this or what
    /// follows fails, the place is as it was.
    DropImport {
        id: VolumeId,
        was: Phase,
    },
    Delete {
        was: Phase,
    },
    /// The deletion becomes durable.
    Settle {
        was: Phase,
    },
}

/// What follows from an answer.
pub enum Next {
    Answer,
    GiveState {
        id: VolumeId,
        first: First,
    },
    /// When the engine had a chance to go on.
    GiveStateLater {
        id: VolumeId,
        first: First,
    },
    Ready {
        id: VolumeId,
    },
    Delete {
        id: VolumeId,
        was: Phase,
    },
    Settle {
        was: Phase,
    },
    /// When the engine had a chance to go on.
    SettleLater {
        was: Phase,
    },
}

/// What the engine is asked, and where the operation begins. The place is told already: what comes
/// behind is judged by it.
pub fn of(
    place: &mut Place,
    volume: VolumeId,
    op: StoreOp,
) -> Result<(Op, Step, ByteOffset), StoreError> {
    let start = ByteOffset(0);
    let known = |place: &Place, uid: SnapshotUid| {
        place.snapshots.get(&uid).copied().ok_or(StoreError::UnknownSnapshot)
    };
    Ok(match op {
        StoreOp::Write { position, offset, data, sums } => {
            let granule = sums.granule();
            let sums = sums.shared().map_or_else(GranuleSums::Many, GranuleSums::One);
            let op = Op::WriteChecked { volume, position, offset, data, granule, sums };
            (op, Step::Plain, offset)
        }
        StoreOp::Zero { position, offset, len, how } => {
            let how = match how {
                Zeroing::Zeroes => engine::Zeroing::Zeroes,
                Zeroing::Discard => engine::Zeroing::Discard,
                Zeroing::Release => engine::Zeroing::Release,
            };
            (Op::Zero { volume, position, offset, len, how }, Step::Plain, offset)
        }
        StoreOp::Mark { position } => (Op::Mark { volume, position }, Step::Plain, start),
        StoreOp::SetState { position, state } => {
            (Op::SetState { volume, position, state }, Step::Plain, start)
        }
        StoreOp::Snapshot { position, spec, internal } => {
            if place.snapshots.contains_key(&spec.uid) {
                let reason = "a snapshot with this uid exists already".into();
                return Err(StoreError::Refused { reason });
            }
            place.making.insert(spec.uid);
            let uid = spec.uid;
            let (name, created) = (spec.name, spec.created);
            let spec = SnapshotSpec { name, uid: uid.0, internal, created };
            (Op::Snapshot { volume, position, spec }, Step::Snapshot(uid), start)
        }
        StoreOp::Rollback { position, to } => {
            let to = known(place, to)?;
            // The sequence says so: whoever is attached was asked before.
            (Op::Rollback { volume, position, to, force: true }, Step::Plain, start)
        }
        StoreOp::Flush => (Op::Flush, Step::Plain, start),
        StoreOp::Grow { size } => {
            let before = place.size;
            place.size = before.max(size);
            let op = Op::Grow { volume, position: None, size: place.size };
            (op, Step::Grow(before), start)
        }
        StoreOp::DeleteSnapshot { snapshot: uid } => {
            let snapshot = known(place, uid)?;
            place.snapshots.remove(&uid);
            (Op::DeleteSnapshot { snapshot }, Step::DeleteSnapshot(uid, snapshot), start)
        }
        StoreOp::Read { offset, len } => (Op::Read { volume, offset, len }, Step::Plain, offset),
        StoreOp::Extents { offset, len } => {
            let of = Subject::Volume(volume);
            (Op::Extents { of, offset, len }, Step::Plain, offset)
        }
        StoreOp::ReadSnapshot { snapshot: uid, offset, len } => {
            let snapshot = known(place, uid)?;
            place.look_at(uid);
            (Op::ReadSnapshot { snapshot, offset, len }, Step::Look(uid), offset)
        }
        StoreOp::SnapshotState { .. } => unreachable!("the engine is not asked for it"),
        StoreOp::Changed { snapshot: uid, since, from, to, max } => {
            let snapshot = known(place, uid)?;
            place.look_at(uid);
            let since = engine::Since::Seq(since);
            let runs = Runs::ByStamp;
            (Op::Changed { snapshot, since, from, to, max, runs }, Step::Look(uid), from)
        }
        StoreOp::Stage { base } => {
            let base = known(place, base)?;
            if let Staging::Open(_) = place.staging {
                let reason = "an import is under way already".into();
                return Err(StoreError::Refused { reason });
            }
            place.staging = Staging::Beginning;
            (Op::Stage { volume, base }, Step::Stage, start)
        }
        StoreOp::StageData { changed, offset, content, progress } => {
            let staging = open_import(place)?;
            let content = match content {
                Content::Bytes(data) => Staged::Bytes(data),
                Content::Zeros(len) => Staged::Zeros(len),
            };
            (Op::StageData { staging, changed, offset, content, progress }, Step::Plain, offset)
        }
        StoreOp::Adopt { position, state } => {
            let staging = open_import(place)?;
            place.staging = Staging::Ending;
            let (stamps, state) = (Stamps::Keep, Some(state));
            let op = Op::Adopt { volume, staging, position, stamps, state };
            (op, Step::EndImport(staging), start)
        }
        StoreOp::Abandon => {
            let staging = open_import(place)?;
            place.staging = Staging::Ending;
            let op = Op::Delete { volume: staging, snapshots: SnapshotsOfDeleted::Refuse };
            (op, Step::EndImport(staging), start)
        }
        StoreOp::Repair { snapshot, offset, data } => {
            let of = match snapshot {
                None => Subject::Volume(volume),
                Some(uid) => Subject::Snapshot(known(place, uid)?),
            };
            (Op::Repair { of, offset, data }, Step::Plain, offset)
        }
        StoreOp::Credit { bytes } => (Op::Credit { volume, bytes }, Step::Plain, start),
    })
}

fn open_import(place: &Place) -> Result<VolumeId, StoreError> {
    match place.staging {
        Staging::Open(staging) => Ok(staging),
        Staging::None | Staging::Beginning | Staging::Ending => {
            Err(StoreError::Refused { reason: "no import was begun".into() })
        }
    }
}

/// The place learns what became of an operation.
pub fn answered(place: &mut Place, step: Step, result: &Result<Reply, OpError>) -> Next {
    match (step, result) {
        (Step::Plain | Step::Grow(_), Ok(_)) | (Step::Plain, Err(_)) => {}
        // What was asked for behind it in view of this size was judged by the engine itself.
        (Step::Grow(before), Err(_)) => place.size = before,
        (Step::Look(uid), _) => place.looked_at(uid),
        (Step::Compare(uid, base), _) => {
            place.looked_at(uid);
            place.looked_at(base);
        }
        (Step::Snapshot(uid), result) => {
            place.making.remove(&uid);
            if let Ok(Reply::Snapshotted(id)) = result {
                place.snapshots.insert(uid, *id);
            }
        }
        (Step::DeleteSnapshot(uid, id), Err(error)) => {
            if !matches!(error, OpError::UnknownSnapshot { .. }) {
                place.snapshots.insert(uid, id);
            }
        }
        (Step::DeleteSnapshot(..), Ok(_)) => {}
        (Step::Stage, result) => {
            place.staging = match result {
                Ok(Reply::Created(staging)) => Staging::Open(*staging),
                _ => Staging::None,
            };
        }
        (Step::EndImport(_), Ok(_)) => place.staging = Staging::None,
        (Step::EndImport(staging), Err(_)) => place.staging = Staging::Open(staging),
        (Step::Create(first), Ok(Reply::Created(id))) => {
            return Next::GiveState { id: *id, first };
        }
        (Step::Create(_), _) => place.phase = Phase::Absent,
        // The engine was full for a moment; what is made by now is only whole with it.
        (Step::FirstState { id, first }, Err(OpError::Busy)) => {
            return Next::GiveStateLater { id, first };
        }
        (Step::FirstState { .. }, Err(_)) => place.phase = Phase::Absent,
        (Step::FirstState { id, first }, Ok(_)) => {
            let waiting = std::mem::take(&mut place.waiting);
            *place = Place { waiting, under_way: place.under_way, ..Place::ready(id, first.size) };
            return Next::Ready { id };
        }
        (Step::DropImport { id, was }, Ok(_)) => {
            place.staging = Staging::None;
            return Next::Delete { id, was };
        }
        // Whoever was told that it is gone must not find it again after a crash.
        (Step::Delete { was }, Ok(_)) => return Next::Settle { was },
        (Step::Settle { was }, Err(OpError::Busy)) => return Next::SettleLater { was },
        (Step::Settle { .. }, Ok(_)) => {
            let waiting = std::mem::take(&mut place.waiting);
            *place = Place { waiting, under_way: place.under_way, ..Place::default() };
        }
        // The pool has failed if it cannot flush: the place stays, so that nobody is told that
        // there was nothing.
        (Step::DropImport { was, .. } | Step::Delete { was } | Step::Settle { was }, Err(_)) => {
            place.phase = was
        }
    }
    Next::Answer
}

pub fn reply(reply: Reply) -> StoreReply {
    match reply {
        Reply::Read(data) => StoreReply::Read(data),
        Reply::Extents(extents) => {
            let extent = |engine::Extent { len, has_data }| Extent { len, has_data };
            StoreReply::Extents(extents.into_iter().map(extent).collect())
        }
        Reply::Flushed => StoreReply::Flushed,
        Reply::Changed(changes) => {
            let range = |range: engine::ChangedRange| {
                let engine::ChangedRange { offset, len, is_data, changed } = range;
                ChangedRange { offset, len, is_data, changed }
            };
            let ranges = changes.ranges.into_iter().map(range).collect();
            StoreReply::Changed { ranges, next: changes.next }
        }
        Reply::Done | Reply::Created(_) | Reply::Snapshotted(_) | Reply::Usage(_) => {
            StoreReply::Done
        }
    }
}
