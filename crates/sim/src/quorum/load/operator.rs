//! An operator: takes and deletes snapshots, rolls back, marks clones, lets volumes grow.
use std::collections::{BTreeMap, BTreeSet};

use block::ByteLen;
use replication::client::Command;
use replication::state::SnapshotSpec;
use replication::words::{ClientId, SnapshotUid, VolumeUid};

use crate::Rng;
use crate::quorum::clients::{FinalCopy, Time, Violation, VolumeFacts, VolumeNo};

#[derive(Clone, Debug)]
pub(super) enum Order {
    NewStage { client: ClientId },
    TakeNote,
    Snapshot(SnapshotSpec),
    Delete(SnapshotUid),
    Rollback(SnapshotUid),
    MarkClone(SnapshotUid, VolumeUid),
    UnmarkClone(VolumeUid),
    Resize(u64),
}

impl Order {
    pub fn command(&self) -> Command {
        match self {
            Order::NewStage { .. } => Command::NewStage,
            Order::TakeNote => Command::TakeNote,
            Order::Snapshot(spec) => Command::Snapshot(spec.clone()),
            Order::Delete(uid) => Command::DeleteSnapshot(*uid),
            Order::Rollback(uid) => Command::Rollback { to: *uid },
            Order::MarkClone(snapshot, clone) => {
                Command::MarkClone { snapshot: *snapshot, clone: *clone }
            }
            Order::UnmarkClone(clone) => Command::UnmarkClone { clone: *clone },
            Order::Resize(size) => Command::Resize { size: ByteLen(*size) },
        }
    }
}

#[derive(Default)]
struct Books {
    /// Snapshots that were said to be there, and whose deletion was not asked for.
    done: BTreeSet<SnapshotUid>,
    ever: BTreeSet<SnapshotUid>,
    clones: BTreeSet<VolumeUid>,
    size: u64,
    granule: u64,
    /// A sparse volume that is larger than what it holds: it may grow by a lot.
    deep: bool,
    busy: bool,
}

#[derive(Default)]
pub(super) struct Operator {
    books: BTreeMap<VolumeNo, Books>,
    rng: Option<Rng>,
    next: Time,
    numbers: u64,
    snapshots_max: usize,
    stopped: bool,
}

/// Volumes above this size are sparse.
const DEEP: u64 = 16 << 20;
/// Entries of a page of a map: a volume that is this many times as large has one level more.
const FAN_OUT: u64 = 128;
/// No volume is larger.
const VOLUME_MAX: u64 = replication::constants::VOLUME_MAX;
/// So many snapshots are made at the common pace.
const FEW: usize = 4;

impl Operator {
    pub fn new(volumes: &[VolumeFacts], snapshots_max: usize, rng: Rng) -> Operator {
        let books = volumes.iter().map(|facts| {
            let (size, granule) = (facts.size, facts.granule);
            (facts.volume, Books { size, granule, deep: size > DEEP, ..Books::default() })
        });
        let next = Time::secs(2);
        Operator {
            books: books.collect(),
            rng: Some(rng),
            next,
            numbers: 0,
            snapshots_max,
            stopped: false,
        }
    }

    pub fn begin(&mut self, facts: &VolumeFacts) {
        let (size, granule) = (facts.size, facts.granule);
        self.books.insert(facts.volume, Books { size, granule, ..Books::default() });
    }

    pub fn snapshots(&self, volume: VolumeNo) -> Vec<SnapshotUid> {
        self.books[&volume].done.iter().copied().collect()
    }

    pub fn stop(&mut self) {
        self.stopped = true;
    }

    pub fn next(&self) -> Option<Time> {
        (!self.stopped).then_some(self.next)
    }

    pub fn wake(&mut self, now: Time) -> Option<(VolumeNo, Order)> {
        if self.stopped || now < self.next {
            return None;
        }
        let mut rng = self.rng.take().expect("begun");
        let pace = if self.snapshots_max > FEW { 8 } else { 1 };
        self.next = now.after(300_000 / pace + rng.below(3_000_000 / pace));
        let volume = VolumeNo(rng.index(self.books.len()));
        self.numbers += 1;
        let (number, max) = (self.numbers, self.snapshots_max);
        let books = self.books.get_mut(&volume).expect("one of them");
        let order = (!books.busy).then(|| books.choose(number, max, &mut rng)).flatten();
        books.busy |= order.is_some();
        self.rng = Some(rng);
        Some((volume, order?))
    }

    pub fn done(&mut self, volume: VolumeNo, order: &Order) {
        let books = self.books.get_mut(&volume).expect("one of them");
        match order {
            Order::NewStage { .. } | Order::TakeNote => return,
            Order::Snapshot(spec) => {
                books.done.insert(spec.uid);
                books.ever.insert(spec.uid);
            }
            Order::MarkClone(_, clone) => {
                books.clones.insert(*clone);
            }
            Order::UnmarkClone(clone) => {
                books.clones.remove(clone);
            }
            Order::Resize(size) => books.size = *size,
            Order::Delete(_) | Order::Rollback(_) => {}
        }
        books.busy = false;
    }

    /// It was refused, or nobody answered: it may have happened.
    pub fn unknown(&mut self, volume: VolumeNo, order: &Order) {
        let books = self.books.get_mut(&volume).expect("one of them");
        if let Order::MarkClone(_, clone) = order {
            books.clones.insert(*clone);
        }
        books.busy = false;
    }

    /// A copy with these snapshots is all that is left of a volume.
    pub fn chosen(&mut self, volume: VolumeNo, size: u64, snapshots: &BTreeSet<SnapshotUid>) {
        let books = self.books.get_mut(&volume).expect("one of them");
        books.done.retain(|uid| snapshots.contains(uid));
        books.size = size;
    }

    pub fn was_done(&self, volume: VolumeNo, uid: SnapshotUid) -> bool {
        self.books[&volume].ever.contains(&uid)
    }

    /// What was said to be there, and was not deleted, is there.
    pub fn judge(&self, copies: &[FinalCopy]) -> Result<(), Violation> {
        for (volume, books) in &self.books {
            for uid in &books.done {
                let there =
                    copies.iter().any(|copy| copy.volume == *volume && copy.snapshot == Some(*uid));
                if !there {
                    return Err(format!("{uid:?} of volume {} vanished", volume.0));
                }
            }
        }
        Ok(())
    }
}

impl Books {
    fn choose(&mut self, number: u64, max: usize, rng: &mut Rng) -> Option<Order> {
        let kept: Vec<SnapshotUid> = self.done.iter().copied().collect();
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&number.to_le_bytes());
        // Of many snapshots few are deleted, until there are as many as may be.
        let spares = max > FEW && kept.len() < max;
        match rng.below(12) {
            0..5 if kept.len() < max => Some(Order::Snapshot(SnapshotSpec {
                uid: SnapshotUid(uid),
                name: format!("snapshot-{number}"),
                created: number,
            })),
            5..8 if !(kept.is_empty() || spares && rng.chance(2, 3)) => {
                let oldest = *rng.pick(&kept);
                self.done.remove(&oldest);
                Some(Order::Delete(oldest))
            }
            8 if !kept.is_empty() => Some(Order::Rollback(*rng.pick(&kept))),
            9 if !kept.is_empty() && self.clones.len() < 3 => {
                Some(Order::MarkClone(*rng.pick(&kept), VolumeUid(uid)))
            }
            10 => self.clones.iter().next().map(|clone| Order::UnmarkClone(*clone)),
            11 if rng.chance(1, 3) => Some(Order::Resize(self.grown(rng))),
            _ => None,
        }
    }

    /// A little more; and of a sparse volume at times so much that its map has another level.
    fn grown(&self, rng: &mut Rng) -> u64 {
        match self.deep && rng.chance(1, 2) && self.size <= VOLUME_MAX / FAN_OUT {
            true => self.size * FAN_OUT,
            false => self.size + 8 * self.granule,
        }
    }
}
