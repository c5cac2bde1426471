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
    busy: bool,
}

#[derive(Default)]
pub(super) struct Operator {
    books: BTreeMap<VolumeNo, Books>,
    rng: Option<Rng>,
    next: Time,
    numbers: u64,
    stopped: bool,
}

/// Snapshots of a volume at once.
const SNAPSHOTS_MAX: usize = 4;

impl Operator {
    pub fn new(volumes: &[VolumeFacts], rng: Rng) -> Operator {
        let books = volumes.iter().map(|facts| {
            let (size, granule) = (facts.size, facts.granule);
            (facts.volume, Books { size, granule, ..Books::default() })
        });
        let next = Time::secs(2);
        Operator { books: books.collect(), rng: Some(rng), next, numbers: 0, stopped: false }
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
        self.next = now.after(300_000 + rng.below(3_000_000));
        let volume = VolumeNo(rng.index(self.books.len()));
        self.numbers += 1;
        let number = self.numbers;
        let books = self.books.get_mut(&volume).expect("one of them");
        let order = (!books.busy).then(|| books.choose(number, &mut rng)).flatten();
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
    fn choose(&mut self, number: u64, rng: &mut Rng) -> Option<Order> {
        let kept: Vec<SnapshotUid> = self.done.iter().copied().collect();
        let mut uid = [0; 16];
        uid[..8].copy_from_slice(&number.to_le_bytes());
        match rng.below(12) {
            0..5 if kept.len() < SNAPSHOTS_MAX => Some(Order::Snapshot(SnapshotSpec {
                uid: SnapshotUid(uid),
                name: format!("snapshot-{number}"),
                created: number,
            })),
            5..8 if !kept.is_empty() => {
                let oldest = *rng.pick(&kept);
                self.done.remove(&oldest);
                Some(Order::Delete(oldest))
            }
            8 if !kept.is_empty() => Some(Order::Rollback(*rng.pick(&kept))),
            9 if !kept.is_empty() && self.clones.len() < 3 => {
                Some(Order::MarkClone(*rng.pick(&kept), VolumeUid(uid)))
            }
            10 => self.clones.iter().next().map(|clone| Order::UnmarkClone(*clone)),
            11 if rng.chance(1, 3) => Some(Order::Resize(self.size + 8 * self.granule)),
            _ => None,
        }
    }
}
