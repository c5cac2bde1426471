//! One operation of the load, and what is told about it.
use block::{Buf, ByteLen, ByteOffset, Position};
use engine::{Op, VolumeId, Zeroing};

use super::content::{Place, SECTOR, Stamp, fill};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    Write,
    Zeroes,
    Discard,
}

/// A change of a run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub kind: StepKind,
    pub volume: VolumeId,
    pub position: Position,
    /// The first sector, counted from the start of the volume.
    pub first: u64,
    pub sectors: u32,
}

/// What happened to the load, in the order in which it happened. Issues are told before they are
/// submitted, answers after they came: whoever listens never knows less than the pool was asked,
/// and never more than it answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Issued(Step),
    Acked { volume: VolumeId, position: Position },
    FlushIssued { number: u64 },
    Flushed { number: u64 },
}

impl Step {
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.sectors)
    }

    pub fn stamp(&self) -> Stamp {
        match self.kind {
            StepKind::Write => Stamp::Written(self.position),
            StepKind::Zeroes | StepKind::Discard => Stamp::Zeros,
        }
    }

    /// The operation that carries the step out.
    pub fn op(&self) -> Op {
        let Step { volume, position, .. } = *self;
        let offset = ByteOffset(self.first * SECTOR as u64);
        let len = self.sectors as usize * SECTOR;
        let how = match self.kind {
            StepKind::Write => {
                let mut buf = Buf::zeroed(len);
                for (sector, bytes) in (self.first..).zip(buf.chunks_exact_mut(SECTOR)) {
                    fill(bytes, Place { volume, sector }, self.stamp());
                }
                return Op::Write { volume, position, offset, data: buf.into_data() };
            }
            StepKind::Zeroes => Zeroing::Zeroes,
            StepKind::Discard => Zeroing::Discard,
        };
        Op::Zero { volume, position, offset, len: ByteLen(len as u64), how }
    }
}
