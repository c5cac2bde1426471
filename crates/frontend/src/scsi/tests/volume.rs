//! A volume in memory: what answers the unit's questions.
use block::{Buf, ByteLen, Data};

use crate::ask::{Answer, Ask, AskError, Extent, Zeroing};

pub(super) const GRANULE: usize = 4096;

pub(super) struct Volume {
    pub(super) bytes: Vec<u8>,
    /// Which granules have space.
    pub(super) mapped: Vec<bool>,
    pub(super) kept: Vec<u8>,
    pub(super) flushes: usize,
    pub(super) through: usize,
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

impl Volume {
    pub(super) fn new(size: usize) -> Volume {
        Volume {
            bytes: vec![0; size],
            mapped: vec![false; size / GRANULE],
            kept: Vec::new(),
            flushes: 0,
            through: 0,
        }
    }

    pub(super) fn answer(&mut self, ask: &Ask) -> Result<Answer, AskError> {
        match ask {
            Ask::Read { offset, len } => {
                let start = index(offset.0);
                let bytes = &self.bytes[start..start + index(len.0)];
                Ok(Answer::Read(Data::copy_of(bytes)))
            }
            Ask::Write { offset, data, fua } => {
                let start = index(offset.0);
                self.bytes[start..start + data.len()].copy_from_slice(data);
                let last = (start + data.len()).div_ceil(GRANULE);
                self.mapped[start / GRANULE..last].fill(true);
                self.through += usize::from(*fua);
                Ok(Answer::Done)
            }
            Ask::Zero { offset, len, how, fua } => {
                let (start, end) = (index(offset.0), index(offset.0 + len.0));
                self.bytes[start..end].fill(0);
                let whole = start.div_ceil(GRANULE)..end / GRANULE;
                if *how == Zeroing::Discard && whole.start < whole.end {
                    self.mapped[whole].fill(false);
                }
                self.through += usize::from(*fua);
                Ok(Answer::Done)
            }
            Ask::Flush => {
                self.flushes += 1;
                Ok(Answer::Done)
            }
            Ask::Extents { offset, len } => Ok(Answer::Extents(self.extents(offset.0, len.0))),
            Ask::Reservations(bytes) => {
                self.kept = bytes.clone();
                Ok(Answer::Done)
            }
        }
    }

    fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let granule = GRANULE as u64;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let step = (granule - at % granule).min(end - at);
            let has_data = self.mapped[index(at / granule)];
            match extents.last_mut() {
                Some(last) if last.has_data == has_data => last.len.0 += step,
                _ => extents.push(Extent { len: ByteLen(step), has_data }),
            }
            at += step;
        }
        extents
    }
}

pub(super) struct Memory;

impl crate::ask::Buffers for Memory {
    fn take(&mut self, len: usize) -> Buf {
        // What a pool gives is never clean.
        let mut buf = Buf::zeroed(len);
        buf.fill(0xEE);
        buf
    }
}
