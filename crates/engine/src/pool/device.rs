//! The device with the purpose of every IO under way.
use block::{
    Buf, BufPool, ByteLen, ByteOffset, Completion, Data, Disk, DiskError, Done, Io, IoId,
    SectorSize,
};

use crate::map::PageKey;
use crate::pool::RequestId;
use crate::units::{Sector, Slot};

/// A read under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadKey(pub usize);

/// What an IO is for: decides who hears of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Page(PageKey),
    /// One run of a read, with the count of attempts, since a read may begin anew.
    Read {
        key: ReadKey,
        attempt: u32,
        run: usize,
    },
    /// Data or record of a slot.
    Slot(Slot),
    /// A page, superblock or flush of the running checkpoint.
    Checkpoint,
    Flush,
    /// One part of a batch, with the count of scrubbings, since one may begin anew.
    Scrub {
        run: u64,
        index: usize,
    },
    /// Good bytes over bad ones that somebody brought.
    Repair(RequestId),
    /// The good copy of a page over the bad one at this place.
    Mend(ByteOffset),
    /// That the pool has failed.
    FailureMark,
    /// Space for a step of a sparse device.
    Backing,
}

/// IOs that are gathered for one call at the most: the device should not stand idle while the
/// answers of a long batch are worked through.
const BATCH_MAX: usize = 8;

pub struct Device<D> {
    pub disk: D,
    pub bufs: BufPool,
    sector: SectorSize,
    purposes: Vec<Option<Purpose>>,
    spare: Vec<usize>,
    checkpoint_ios: usize,
    /// Submitted since the device last heard of anything.
    pub(super) unkicked: usize,
}

impl<D: Disk> Device<D> {
    pub fn new(disk: D, sector: SectorSize, buffer_bytes: usize) -> Device<D> {
        Device {
            disk,
            bufs: BufPool::new(buffer_bytes),
            sector,
            purposes: Vec::new(),
            spare: Vec::new(),
            checkpoint_ios: 0,
            unkicked: 0,
        }
    }

    fn id(&mut self, purpose: Purpose) -> IoId {
        self.checkpoint_ios += usize::from(purpose == Purpose::Checkpoint);
        let at = match self.spare.pop() {
            Some(at) => {
                self.purposes[at] = Some(purpose);
                at
            }
            None => {
                self.purposes.push(Some(purpose));
                self.purposes.len() - 1
            }
        };
        IoId(at as u64)
    }

    /// Memory for an IO: used before, or lent by the device, or fresh.
    pub fn buffer(&mut self, len: usize) -> Buf {
        if let Some(kept) = self.bufs.take_kept(len) {
            return kept;
        }
        match self.disk.lend(BufPool::capacity_for(len)) {
            Some(mut lent) => {
                lent.set_len(len);
                lent
            }
            None => self.bufs.take(len),
        }
    }

    pub fn read_sectors(&mut self, place: Sector, len: usize, purpose: Purpose) {
        let id = self.id(purpose);
        let buf = self.buffer(len);
        let at = ByteOffset(place.0 * self.sector.bytes());
        self.submit(id, Io::Read { at, buf });
    }

    pub fn write(&mut self, at: ByteOffset, data: Data, purpose: Purpose) {
        let id = self.id(purpose);
        self.submit(id, Io::Write { at, data });
    }

    pub fn flush(&mut self, purpose: Purpose) {
        let id = self.id(purpose);
        self.submit(id, Io::Flush);
    }

    pub fn allocate(&mut self, at: ByteOffset, len: ByteLen, purpose: Purpose) {
        let id = self.id(purpose);
        self.submit(id, Io::Allocate { at, len });
    }

    fn submit(&mut self, id: IoId, io: Io) {
        self.disk.submit(id, io);
        self.unkicked += 1;
        if self.unkicked >= BATCH_MAX {
            self.kick();
        }
    }

    pub fn kick(&mut self) {
        self.unkicked = 0;
        self.disk.kick();
    }

    pub fn complete(&mut self) -> Option<(Purpose, Result<Option<Buf>, DiskError>)> {
        let Completion { id, result } = self.disk.complete()?;
        let at = usize::try_from(id.0).expect("an id that was given here");
        let purpose = self.purposes[at].take().expect("an IO completes once");
        self.spare.push(at);
        self.checkpoint_ios -= usize::from(purpose == Purpose::Checkpoint);
        let result = result.map(|done| match done {
            Done::Read(buf) => Some(buf),
            Done::Written | Done::Flushed | Done::Trimmed | Done::Allocated => None,
        });
        Some((purpose, result))
    }

    /// IOs of all kinds that are under way.
    pub fn under_way(&self) -> usize {
        self.purposes.len() - self.spare.len()
    }

    /// IOs of the checkpoint that are under way.
    pub fn checkpoint_ios(&self) -> usize {
        self.checkpoint_ios
    }

    /// Keeps the memory of a finished write for the next one.
    pub fn recycle(&mut self, data: Data) {
        if let Some(buf) = data.into_buf() {
            self.bufs.give(buf);
        }
    }
}
