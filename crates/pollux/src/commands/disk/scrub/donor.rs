//! Good bytes for damaged blocks, out of another pool that has the same volumes or snapshots.
//!
//! Whatever the other pool offers, a repair takes only what has the checksum of what was stored:
//! a candidate that is wrong costs a read, and nothing else.
use std::path::Path;

use anyhow::{Result, ensure};
use block::{ByteLen, ByteOffset, Data};
use disk::FileDisk;
use engine::{BlockSize, Op, Pool, Reply, SnapshotInfo, Subject, VolumeInfo};
use pollux::Shadow;

use crate::offline::{Contents, about, open_shadow};

/// A pool that is only read.
pub struct Donor {
    contents: Contents,
    pool: Pool<Shadow<FileDisk>>,
}

/// A volume or snapshot that is damaged.
struct Patient {
    of: Subject,
    size: ByteLen,
    block_size: BlockSize,
}

impl Donor {
    pub fn open(path: &Path, patient: &Path) -> Result<Donor> {
        let same = std::fs::canonicalize(path).ok() == std::fs::canonicalize(patient).ok();
        let contents = Contents::of(path)?;
        ensure!(!same, about(path, "is the pool that is scrubbed: name another one"));
        Ok(Donor { pool: open_shadow(path)?, contents })
    }

    /// Tries to mend a block that all of `owners` have at `offset`.
    pub fn mend(
        &mut self,
        pool: &mut Pool<FileDisk>,
        contents: &Contents,
        owners: &[Subject],
        offset: ByteOffset,
    ) -> bool {
        for owner in owners {
            let Some(patient) = patient(contents, *owner) else { continue };
            for candidate in self.candidates(contents, *owner) {
                let Some(data) = self.read(candidate, &patient, offset) else { continue };
                let of = patient.of;
                if matches!(pool.run(Op::Repair { of, offset, data }), Ok(Reply::Done)) {
                    return true;
                }
            }
        }
        false
    }

    /// What may have the same bytes: the very same volume or snapshot, then all others of the same
    /// volume, which may have kept an older block.
    fn candidates(&self, contents: &Contents, owner: Subject) -> Vec<Subject> {
        let (uid, volume) = match owner {
            Subject::Volume(id) => {
                let Some(volume) = contents.volume_of(id) else { return Vec::new() };
                (volume.uid, Some(volume.uid))
            }
            Subject::Snapshot(id) => {
                let Some(snapshot) = contents.snapshot_of(id) else { return Vec::new() };
                (snapshot.uid, contents.volume_of(snapshot.volume).map(|volume| volume.uid))
            }
        };
        let of_volume = |v: &&VolumeInfo| Some(v.uid) == volume;
        let volumes: Vec<&VolumeInfo> = self.contents.volumes().filter(of_volume).collect();
        let shown = self.contents.found.snapshots.iter().filter(|snapshot| !snapshot.hidden);
        let shown: Vec<&SnapshotInfo> = shown.collect();
        let same = shown.iter().filter(|s| s.uid == uid).map(|s| Subject::Snapshot(s.id));
        let present = volumes.iter().map(|v| Subject::Volume(v.id));
        let others =
            shown.iter().filter(|s| s.uid != uid && volumes.iter().any(|v| v.id == s.volume));
        same.chain(present).chain(others.map(|s| Subject::Snapshot(s.id))).collect()
    }

    fn read(&mut self, from: Subject, patient: &Patient, offset: ByteOffset) -> Option<Data> {
        let len = patient.block_size.granule().min(patient.size.0.checked_sub(offset.0)?);
        let len = ByteLen(len);
        let op = match from {
            Subject::Volume(volume) => Op::Read { volume, offset, len },
            Subject::Snapshot(snapshot) => Op::ReadSnapshot { snapshot, offset, len },
        };
        // A donor that is damaged there itself, or shorter, is none.
        match self.pool.run(op) {
            Ok(Reply::Read(data)) => Some(data),
            _ => None,
        }
    }
}

fn patient(contents: &Contents, of: Subject) -> Option<Patient> {
    let (size, block_size) = match of {
        Subject::Volume(id) => {
            let volume = contents.found.volumes.iter().find(|volume| volume.id == id)?;
            (volume.size, volume.block_size)
        }
        Subject::Snapshot(id) => {
            let snapshot = contents.snapshot_of(id)?;
            (snapshot.size, snapshot.block_size)
        }
    };
    Some(Patient { of, size, block_size })
}
