//! Questions about maps that take reading pages: what changed, and how much space is whose.
//!
//! Maps of snapshots stay as they are. A volume's map is that of the last checkpoint; when the
//! next one counts meanwhile, the answer is looked for anew.
use block::{ByteLen, ByteOffset, Disk, Seq};

use crate::error::OpError;
use crate::map::{Changed, ChangedRun, Unique, Walk, WalkContext, WalkStep};
use crate::pool::{ChangedRange, Changes, Pool, Reply, RequestId, Runs, Since, Subject, Usage};
use crate::units::{Epoch, Granule, ObjectId, SnapshotId};
use crate::volume::MapRoot;

/// Ranges of one answer at the most: a megabyte of memory.
const RANGES_MAX: usize = 1 << 15;

/// Pages of one answer to what changed, however few ranges it may have: many times the height of a map, so
/// that every answer gets on, and less than a millisecond where all of them are in memory.
const PAGES_MIN: usize = 64;

/// A question under way.
pub struct Look {
    pub id: RequestId,
    question: Question,
    walk: Option<Walk>,
    /// The checkpoint that the walk belongs to.
    epoch: Epoch,
}

enum Question {
    Changed {
        snapshot: SnapshotId,
        base: Option<SnapshotId>,
        granule: u64,
        size: u64,
        guide: Changed,
    },
    Usage {
        of: Subject,
        guide: Unique,
    },
}

enum Looked {
    Wait,
    Answer(Result<Reply, OpError>),
}

impl<D: Disk> Pool<D> {
    pub(super) fn accept_changed(
        &mut self,
        id: RequestId,
        snapshot: SnapshotId,
        since: Since,
        (from, to): (ByteOffset, Option<ByteOffset>),
        max: usize,
        runs: Runs,
    ) -> Result<(), OpError> {
        let cut = &self.shown(snapshot)?.cut;
        let base = match since {
            Since::Start | Since::Seq(_) => None,
            Since::Snapshot(base) => {
                let found = &self.shown(base)?.cut;
                if found.volume != cut.volume {
                    let volume = cut.volume;
                    return Err(OpError::ForeignSnapshot { snapshot: base, volume });
                }
                if found.position > cut.position {
                    return Err(OpError::BaseIsNewer { base, snapshot });
                }
                Some(base)
            }
        };
        let granule = cut.header.block_size.granule();
        let guide = Changed {
            // Not by the seq of the base as well: where a history was undone in between, what
            // differs may have lower stamps.
            since: if let Since::Seq(seq) = since { Some(seq) } else { None },
            holes: since != Since::Start,
            from: from.0 / granule,
            granules: to.map_or(cut.header.size, |to| to.0.min(cut.header.size)).div_ceil(granule),
            by: runs,
            runs: Vec::new(),
            max: max.clamp(1, RANGES_MAX),
            pages: max.clamp(PAGES_MIN, RANGES_MAX),
        };
        let size = cut.header.size;
        self.look(id, Question::Changed { snapshot, base, granule, size, guide })
    }

    pub(super) fn accept_usage(&mut self, id: RequestId, of: Subject) -> Result<(), OpError> {
        match of {
            Subject::Volume(volume) => self.live(volume).map(|_| ())?,
            Subject::Snapshot(snapshot) => self.shown(snapshot).map(|_| ())?,
        }
        let guide = Unique { floor: self.floor_of(of), sectors: 0 };
        self.look(id, Question::Usage { of, guide })
    }

    fn look(&mut self, id: RequestId, question: Question) -> Result<(), OpError> {
        if self.looks.len() >= self.limits.queue_ops {
            return Err(OpError::Busy);
        }
        self.looks.push(Look { id, question, walk: None, epoch: Epoch(0) });
        Ok(())
    }

    pub(super) fn run_looks(&mut self) {
        let mut at = 0;
        while at < self.looks.len() {
            let mut look = self.looks.swap_remove(at);
            match self.run_look(&mut look) {
                Looked::Answer(answer) => self.answer(look.id, answer),
                Looked::Wait => {
                    // Back to its place, so that every one gets its turn.
                    self.looks.push(look);
                    let last = self.looks.len() - 1;
                    self.looks.swap(at, last);
                    at += 1;
                }
            }
        }
    }

    fn run_look(&mut self, look: &mut Look) -> Looked {
        let (of, base) = match &look.question {
            Question::Changed { snapshot, base, .. } => (Subject::Snapshot(*snapshot), *base),
            Question::Usage { of, .. } => (*of, None),
        };
        for subject in [Some(of), base.map(Subject::Snapshot)].into_iter().flatten() {
            match self.is_there(subject) {
                Ok(true) => {}
                Ok(false) => {
                    self.checkpoint_wanted = true;
                    return Looked::Wait;
                }
                Err(error) => return Looked::Answer(Err(error)),
            }
        }
        let moving = matches!(look.question, Question::Usage { .. });
        if look.walk.is_none() || moving && look.epoch != self.superblock.epoch {
            look.epoch = self.superblock.epoch;
            look.walk = Some(self.walk_for(&mut look.question, of, base));
        }
        let walk = look.walk.as_mut().expect("set above");
        let mut cx = WalkContext { pages: &mut self.pages, device: &mut self.device };
        let step = match &mut look.question {
            Question::Changed { guide, .. } => walk.step(guide, &mut cx),
            Question::Usage { guide, .. } => walk.step(guide, &mut cx),
        };
        let stopped = match step {
            WalkStep::Wait => return Looked::Wait,
            WalkStep::Bad(problem) => {
                return Looked::Answer(Err(OpError::MapDamaged { of, problem }));
            }
            WalkStep::Done => None,
            WalkStep::Stopped(at) => Some(at),
        };
        let pages = walk.pages;
        Looked::Answer(Ok(match &mut look.question {
            Question::Changed { granule, size, guide, .. } => {
                Reply::Changed(changes(guide, *granule, *size, stopped, pages))
            }
            Question::Usage { of, guide } => Reply::Usage(self.usage(*of, guide.sectors)),
        }))
    }

    fn walk_for(&self, question: &mut Question, of: Subject, base: Option<SnapshotId>) -> Walk {
        let id = ObjectId::from(of);
        match question {
            Question::Changed { guide, .. } => {
                let others: Vec<MapRoot> =
                    base.map(|base| self.map_of(base.into())).into_iter().collect();
                guide.runs.clear();
                Walk::new(self.map_of(id), &others, Granule(guide.from))
            }
            Question::Usage { guide, .. } => {
                let children = match of {
                    Subject::Volume(_) => Vec::new(),
                    Subject::Snapshot(snapshot) => self.children(snapshot),
                };
                let others: Vec<MapRoot> =
                    children.into_iter().map(|child| self.map_of(child)).collect();
                *guide = Unique { floor: self.floor_of(of), sectors: 0 };
                Walk::new(self.map_of(id), &others, Granule(0))
            }
        }
    }

    fn floor_of(&self, of: Subject) -> crate::snapshot::Floor {
        match of {
            Subject::Volume(id) => self.floor(self.volumes[&id].kept.parent),
            Subject::Snapshot(id) => self.floor(self.snapshots[&id].cut.parent),
        }
    }

    /// Whether something can be looked at; `false` until a checkpoint has given it a map.
    fn is_there(&self, of: Subject) -> Result<bool, OpError> {
        match of {
            Subject::Volume(id) => match self.volumes.get(&id).filter(|v| !v.deleting) {
                // While a jump is not finished, the map is another's.
                Some(volume) => Ok(volume.jump.is_none()),
                None => Err(OpError::UnknownVolume { volume: id }),
            },
            Subject::Snapshot(id) => match self.snapshots.get(&id).filter(|s| !s.cut.deleted) {
                Some(snapshot) => Ok(snapshot.settled),
                None => Err(OpError::UnknownSnapshot { snapshot: id }),
            },
        }
    }

    fn usage(&self, of: Subject, unique: u64) -> Usage {
        let (map, block_size) = {
            let object = self.object(of.into());
            (object.map(), object.header().block_size)
        };
        let held = map.root.held();
        let bytes = |sectors| self.space.layout.bytes(sectors);
        Usage {
            logical: ByteLen(held.blocks * block_size.granule()),
            stored: bytes(held.stored),
            unique: bytes(unique),
            // What a root says of its map is no invariant: the blocks below it may be more.
            shared: bytes(held.stored.saturating_sub(unique)),
        }
    }
}

impl From<Subject> for ObjectId {
    fn from(of: Subject) -> ObjectId {
        match of {
            Subject::Volume(id) => id.into(),
            Subject::Snapshot(id) => id.into(),
        }
    }
}

fn changes(
    guide: &mut Changed,
    granule: u64,
    size: u64,
    stopped: Option<Granule>,
    pages: u64,
) -> Changes {
    let range = |run: &ChangedRun| {
        let (offset, end) = (run.first * granule, (run.end * granule).min(size));
        ChangedRange {
            offset: ByteOffset(offset),
            len: ByteLen(end - offset),
            is_data: run.is_data,
            changed: Seq(run.changed.0),
        }
    };
    let ranges = guide.runs.iter().map(range).collect();
    let next = stopped.map(|at| ByteOffset(at.0 * granule));
    Changes { ranges, next, pages }
}
