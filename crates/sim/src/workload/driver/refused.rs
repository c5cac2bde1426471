//! Bad input: refused with the right reason, and nothing changed.
use block::{ByteLen, ByteOffset, Data, Position};
use engine::{
    CloneSpec, Op, OpError, RequestId, Runs, Since, SnapshotId, SnapshotSpec, Stamps, Subject,
    VolumeId, Zeroing,
};

use super::super::history::SECTOR;
use super::{Driver, Outcome};

type Right = fn(&OpError) -> bool;

const UNKNOWN: Right = |error| matches!(error, OpError::UnknownSnapshot { .. });
const FOREIGN: Right = |error| matches!(error, OpError::ForeignSnapshot { .. });
const DUPLICATE: Right = |error| matches!(error, OpError::DuplicateName { .. });
const NOT_ASCENDING: Right = |error| matches!(error, OpError::NotAscending { .. });
const BEYOND_END: Right = |error| matches!(error, OpError::BeyondEnd { .. });
const STAGING: Right = |error| matches!(error, OpError::Staging { .. });
const ATTACHED: Right = |error| matches!(error, OpError::Attached { .. });
const HAS_SNAPSHOTS: Right = |error| matches!(error, OpError::HasSnapshots { .. });
const ANY: Right = |_| true;

const NOBODY: VolumeId = VolumeId(9999);
const NEVER: SnapshotId = SnapshotId(9999);
const START: ByteOffset = ByteOffset(0);

impl Driver {
    pub(super) fn refused(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        let (volume, size) = self.volume();
        let position = self.position(volume);
        let data = Data::copy_of(&[1; 512]);
        let (end, one) = (ByteOffset(size * SECTOR), ByteLen(512));
        let stale = Position::new(0, 0);
        let bad = [
            Op::Write { volume, position, offset: end, data: data.clone() },
            Op::Write { volume, position, offset: ByteOffset(1), data: data.clone() },
            Op::Write { volume, position: stale, offset: START, data: data.clone() },
            Op::Write { volume: NOBODY, position, offset: START, data },
            Op::Read { volume, offset: end, len: one },
            Op::Read { volume, offset: START, len: ByteLen(0) },
            Op::Extents { of: Subject::Volume(volume), offset: end, len: one },
            Op::Extents { of: Subject::Volume(NOBODY), offset: START, len: one },
            Op::Read { volume, offset: ByteOffset(u64::MAX - 511), len: ByteLen(1024) },
            Op::Grow { volume, position: Some(position), size: ByteLen(SECTOR / 2) },
        ];
        for op in bad {
            self.pool().submit(RequestId(0), op);
            let answer = self.pool().reply();
            assert!(matches!(answer, Some((RequestId(0), Err(_)))), "bad input is refused at once");
            self.paths.add("refused", 1);
        }
    }

    /// Each has one thing wrong with it, so that there is one right answer.
    pub(super) fn refused_with_snapshots(&mut self) {
        if self.settle() == Outcome::Stopped {
            return;
        }
        let (volume, _) = self.volume();
        let attached = self.volumes[&volume].attached;
        let position = self.position(volume);
        let mut bad = vec![(snapshot(volume, Position::new(0, 0), "late"), NOT_ASCENDING)];
        bad.push((snapshot(volume, position, ""), ANY));
        bad.push((snapshot(NOBODY, position, "nobody's"), ANY));
        let deleted = self.history.settled().snapshots.iter().rev();
        let deleted = deleted.filter(|(_, found)| found.hidden).map(|(id, _)| *id).next();
        for gone in [Some(NEVER), deleted].into_iter().flatten() {
            bad.extend(about_unknown(gone, volume, position));
        }
        let line = self.history.settled().visible_of(volume);
        if let Some((id, found)) = line.first() {
            let (id, size) = (*id, found.frozen.size);
            bad.push((snapshot(volume, position, &found.name), DUPLICATE));
            bad.push((read(id, size, 512), BEYOND_END));
            let less = CloneSpec { size: Some(ByteLen(size - 512)), ..clone_spec("less") };
            bad.push((Op::Clone { snapshot: id, spec: less }, ANY));
            if attached {
                bad.push((Op::Rollback { volume, position, to: id, force: false }, ATTACHED));
            }
            let name = &self.history.settled().volumes[&volume].name;
            bad.push((Op::Clone { snapshot: id, spec: clone_spec(name) }, DUPLICATE));
        }
        let foreign = self.history.settled().visible().find(|(_, found)| found.volume != volume);
        if let Some((to, _)) = foreign {
            bad.push((Op::Rollback { volume, position, to, force: true }, FOREIGN));
            bad.push((Op::Stage { volume, base: to }, ANY));
        }
        let (staging, stamps) = (NOBODY, Stamps::Renew);
        bad.push((Op::Adopt { volume, staging, position, stamps, state: None }, ANY));
        for (op, right) in bad {
            self.expect("refused with snapshots", op, right);
        }
    }

    /// Nothing may change a volume under its import.
    pub(super) fn refused_while_staging(&mut self, volume: VolumeId) {
        let position = self.position(volume);
        let size = ByteLen(self.history.size_of(volume));
        let (offset, len) = (START, ByteLen(512));
        let data = Data::copy_of(&[1; 512]);
        let mut bad = vec![
            Op::Write { volume, position, offset, data },
            Op::Zero { volume, position, offset, len, how: Zeroing::Discard },
            Op::Grow { volume, position: Some(position), size },
            snapshot(volume, position, "meanwhile"),
        ];
        let line = self.history.settled().visible_of(volume);
        bad.extend(line.first().map(|(to, _)| Op::Rollback {
            volume,
            position,
            to: *to,
            force: true,
        }));
        for op in bad {
            self.expect("refused while staging", op, STAGING);
        }
    }

    pub(super) fn expect_attached(&mut self, op: Op) {
        self.expect("refused because attached", op, ATTACHED);
    }

    pub(super) fn expect_has_snapshots(&mut self, op: Op) {
        self.expect("refused because of snapshots", op, HAS_SNAPSHOTS);
    }

    fn expect(&mut self, path: &'static str, op: Op, right: Right) {
        let asked = format!("{op:?}");
        match self.call(op) {
            None | Some(Err(OpError::Busy)) => {}
            Some(Err(error)) if right(&error) => self.paths.add(path, 1),
            Some(other) => panic!("{asked} was answered with {other:?}"),
        }
    }
}

fn snapshot(volume: VolumeId, position: Position, name: &str) -> Op {
    let spec = SnapshotSpec { name: name.into(), uid: [4; 16], internal: false, created: 0 };
    Op::Snapshot { volume, position: Some(position), spec }
}

fn clone_spec(name: &str) -> CloneSpec {
    CloneSpec { name: name.into(), uid: [4; 16], size: None }
}

fn read(snapshot: SnapshotId, offset: u64, len: u64) -> Op {
    Op::ReadSnapshot { snapshot, offset: ByteOffset(offset), len: ByteLen(len) }
}

/// Everything that can be asked of a snapshot, where there is none.
fn about_unknown(gone: SnapshotId, volume: VolumeId, position: Position) -> Vec<(Op, Right)> {
    let (snapshot, since) = (gone, Since::Start);
    let ops = [
        Op::DeleteSnapshot { snapshot },
        read(snapshot, 0, 512),
        Op::Clone { snapshot, spec: clone_spec("of nothing") },
        Op::Rollback { volume, position, to: snapshot, force: true },
        Op::Changed { snapshot, since, from: START, to: None, max: 1, runs: Runs::Joined },
        Op::Usage { of: Subject::Snapshot(snapshot) },
        Op::Extents { of: Subject::Snapshot(snapshot), offset: START, len: ByteLen(512) },
    ];
    ops.into_iter().map(|op| (op, UNKNOWN)).collect()
}
