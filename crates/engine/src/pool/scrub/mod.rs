//! Scrubbing: everything that a pool has is read and compared with its checksum, in the
//! background, as far as the owner allows.
//!
//! What lies in two places is mended from its other copy. A damaged block is reported with every
//! volume and snapshot that has it; the owner brings good bytes ([`Op::Repair`](crate::Op)).
//!
//! A batch is looked at within one epoch: places are given to somebody else only when a checkpoint
//! counts, so a mismatch within an epoch is damage. When the epoch ended, the batch is read anew.
mod collect;
mod judge;
mod owners;

use std::collections::HashSet;

use block::{Buf, ByteLen, ByteOffset, Disk, DiskError};

use crate::format::{PageId, PagePtr};
use crate::map::Walk;
use crate::pool::{Pool, Purpose, Reply, RequestId, Subject};
use crate::units::{Checksum, Epoch, Granule, ObjectId, Sector, Slot, to_usize};
use collect::Collect;
use owners::Tracing;

/// Damages that are listed; a ruined pool has millions.
const DAMAGES_MAX: usize = 1000;

/// How far scrubbing has come, and what it found.
#[derive(Clone, Debug, Default)]
pub struct ScrubStatus {
    pub verified: ByteLen,
    /// What there was to verify when it began; more may have come since.
    pub total: ByteLen,
    pub damages: Vec<Damage>,
    /// Damages beyond those that are listed.
    pub more_damages: u64,
    /// Damages that were mended from a second copy.
    pub repaired: u64,
    pub finished: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    pub part: Part,
    /// Where on the device.
    pub at: ByteOffset,
    pub len: ByteLen,
    /// Mended from a second copy.
    pub repaired: bool,
}

/// What is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Superblock,
    Journal,
    Directory,
    SpaceMap,
    /// A map page: of a volume or snapshot, or of something that is on its way out.
    Map {
        of: Option<Subject>,
    },
    /// A block at this offset of everything that has it.
    Data {
        offset: ByteOffset,
        owners: Vec<Subject>,
    },
}

/// Where scrubbing goes on.
#[derive(Clone, Debug)]
enum At {
    /// A checkpoint after this one first: what was written until now shall be in the maps.
    Begin(Epoch),
    Superblocks,
    Journal(Slot),
    /// Objects from this number on, and the pages that lead to them: place, level and number. The
    /// next checkpoint gives those places to others, so they are good for this epoch alone.
    Directory {
        from: u64,
        epoch: Epoch,
        stack: Vec<(PagePtr, u8, u64)>,
    },
    /// Space pages: their level, and the number of the next.
    Space(u8, u64),
    /// The first object at or behind this number, from this granule on.
    Map(ObjectId, Granule),
    End,
}

/// What an IO of a batch must bring.
#[derive(Clone, Debug)]
enum Expect {
    Superblock(Epoch),
    /// Slots from this one up to another.
    Journal(Slot, Slot),
    Page {
        ptr: PagePtr,
        id: PageId,
        copy: usize,
        part: Part,
    },
    Block {
        object: ObjectId,
        granule: Granule,
        offset: ByteOffset,
        checksum: Checksum,
    },
}

struct Item {
    at: ByteOffset,
    len: usize,
    expect: Expect,
    read: Option<Result<Buf, DiskError>>,
}

struct Batch {
    epoch: Epoch,
    items: Vec<Item>,
    outstanding: usize,
    next: At,
}

pub struct Scrub {
    /// Counts scrubbings: what an earlier one asked for may still come back.
    run: u64,
    status: ScrubStatus,
    /// What it may still read; below zero when a batch took more than was left.
    allowance: i64,
    at: At,
    /// A walk over a map that gathers the next batch.
    gathering: Option<(Walk, Collect, Epoch)>,
    batch: Option<Batch>,
    /// Map pages that cannot be read at all: what lies below them is passed over.
    skipped: HashSet<PagePtr>,
    tracing: Option<Tracing>,
}

impl<D: Disk> Pool<D> {
    /// Begins to scrub, or begins anew. Nothing is read before [`Pool::allow_scrub`].
    pub fn begin_scrub(&mut self) {
        let layout = &self.space.layout;
        let used = layout.sectors - layout.regions_at.0 - self.space.free() - self.space.hidden();
        let status = ScrubStatus { total: layout.bytes(used), ..ScrubStatus::default() };
        self.checkpoint_wanted = true;
        self.scrub = Some(Box::new(Scrub {
            run: self.scrub.as_ref().map_or(0, |before| before.run + 1),
            status,
            allowance: 0,
            // A checkpoint that runs already was begun before the newest operations.
            at: At::Begin(Epoch(self.superblock.epoch.0 + u64::from(self.job.is_some()))),
            gathering: None,
            batch: None,
            skipped: HashSet::new(),
            tracing: None,
        }));
    }

    /// Lets scrubbing read this much more. The owner has the clock, so it sets the pace.
    pub fn allow_scrub(&mut self, more: ByteLen) {
        if let Some(scrub) = &mut self.scrub {
            let more = i64::try_from(more.0).unwrap_or(i64::MAX);
            scrub.allowance = scrub.allowance.saturating_add(more);
        }
    }

    pub fn scrub(&self) -> Option<&ScrubStatus> {
        self.scrub.as_ref().map(|scrub| &scrub.status)
    }

    /// Goes on as far as it is allowed to.
    pub(super) fn run_scrub(&mut self) {
        let Some(mut scrub) = self.scrub.take() else { return };
        while self.is_serving() && !scrub.status.finished {
            let went_on = match (&scrub.batch, &scrub.tracing) {
                (_, Some(_)) => self.trace_owners(&mut scrub),
                (Some(batch), None) if batch.outstanding > 0 => false,
                (Some(_), None) => {
                    self.judge(&mut scrub);
                    true
                }
                (None, None) if scrub.allowance <= 0 => false,
                (None, None) => self.gather(&mut scrub),
            };
            if !went_on {
                break;
            }
        }
        self.scrub = Some(scrub);
    }

    /// Sends a batch on its way.
    fn send_batch(&mut self, scrub: &mut Scrub, items: Vec<Item>, next: At, epoch: Epoch) {
        let bytes: usize = items.iter().map(|item| item.len).sum();
        scrub.allowance = scrub.allowance.saturating_sub_unsigned(bytes as u64);
        let sector = self.space.layout.sector.bytes();
        for (index, item) in items.iter().enumerate() {
            let purpose = Purpose::Scrub { run: scrub.run, index };
            self.device.read_sectors(Sector(item.at.0 / sector), item.len, purpose);
        }
        let outstanding = items.len();
        scrub.batch = Some(Batch { epoch, items, outstanding, next });
    }

    pub(super) fn scrubbed(
        &mut self,
        run: u64,
        index: usize,
        result: Result<Option<Buf>, DiskError>,
    ) {
        let scrub = self.scrub.as_mut().filter(|scrub| scrub.run == run);
        let Some(batch) = scrub.and_then(|scrub| scrub.batch.as_mut()) else {
            return;
        };
        let Some(item) = batch.items.get_mut(index) else { return };
        item.read = Some(result.map(|buf| buf.expect("a read returns its buffer")));
        batch.outstanding -= 1;
    }

    /// Good bytes that somebody brought were written, or are as bad as they were.
    pub(super) fn repaired(&mut self, id: RequestId, result: Result<Option<Buf>, DiskError>) {
        self.mending -= 1;
        self.answer(id, result.map(|_| Reply::Done).map_err(Into::into));
    }

    /// The good copy of a page was written over the bad one, if the device took it.
    pub(super) fn mended(&mut self, place: ByteOffset, result: Result<Option<Buf>, DiskError>) {
        self.mending -= 1;
        if let (Err(_), Some(scrub)) = (result, &mut self.scrub) {
            scrub.status.is_still_bad(place);
        }
    }
}

impl ScrubStatus {
    /// What was to be mended could not be.
    fn is_still_bad(&mut self, place: ByteOffset) {
        let listed = self.damages.iter_mut().filter(|damage| damage.repaired);
        for damage in listed.filter(|damage| damage.at == place) {
            damage.repaired = false;
            self.repaired -= 1;
        }
    }

    fn add(&mut self, damage: Damage) {
        self.repaired += u64::from(damage.repaired);
        if self.damages.len() < DAMAGES_MAX {
            self.damages.push(damage);
        } else {
            self.more_damages += 1;
        }
    }
}

impl Item {
    fn new(at: ByteOffset, len: u64, expect: Expect) -> Item {
        Item { at, len: to_usize(len), expect, read: None }
    }
}
