//! The model: a list of what was asked, in order, and what a pool is after a part of it.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::Position;
use engine::{SnapshotId, SnapshotsOfDeleted, VolumeId};

use super::change::{Change, Entry, Status};
use super::content::Content;
use super::state::{State, UNANSWERED};

/// The model thinks in the finest address that there is.
pub const SECTOR: u64 = 512;

/// What a read must see at the least, as of its submission.
#[derive(Clone, Debug)]
pub struct View {
    pub volume: VolumeId,
    pub first: u64,
    values: Vec<u64>,
    /// Operations that were under way.
    open: Vec<usize>,
    next: usize,
}

impl View {
    pub fn sectors(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.values.len() as u64
    }
}

/// Everything that was asked, in the order of its submission.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub entries: Vec<Entry>,
    /// Operations before this one are covered by an acknowledged flush.
    pub flushed: usize,
    /// The state after the first `settled_count` operations, none of which is pending.
    settled: State,
    settled_count: usize,
    newest: BTreeMap<VolumeId, Position>,
    unanswered: u64,
}

impl History {
    pub fn push(&mut self, change: Change, position: Option<Position>) -> usize {
        if let Some(position) = position {
            self.newest.insert(change.volume(), position);
        }
        if let Change::Clone { volume, snapshot, .. } = &change {
            // Its sequence goes on from the snapshot's.
            let from = self.settled.snapshots.get(snapshot).map(|from| from.position());
            self.newest.insert(*volume, from.unwrap_or_default());
        }
        self.entries.push(Entry { change, position, status: Status::Pending });
        self.entries.len() - 1
    }

    /// A number for something that the pool has not named yet.
    pub fn unanswered(&mut self) -> u64 {
        self.unanswered += 1;
        UNANSWERED + self.unanswered
    }

    /// The pool named the volume that an operation made.
    pub fn volume_given(&mut self, index: usize, id: VolumeId) {
        let ours = match &mut self.entries[index].change {
            Change::Create { volume, .. } | Change::Clone { volume, .. } => volume,
            Change::Stage { staging, .. } => staging,
            other => panic!("{other:?} makes no volume"),
        };
        let ours = std::mem::replace(ours, id);
        if let Some(position) = self.newest.remove(&ours) {
            self.newest.insert(id, position);
        }
    }

    pub fn snapshot_given(&mut self, index: usize, id: SnapshotId) {
        match &mut self.entries[index].change {
            Change::Snapshot { snapshot, .. } => *snapshot = id,
            other => panic!("{other:?} makes no snapshot"),
        }
    }

    /// The number that sectors of an entry's write hold.
    pub fn number(&self, index: usize) -> u64 {
        index as u64 + 1
    }

    /// The state after the first `count` operations, without those that were refused.
    pub fn state_after(&self, count: usize) -> State {
        let mut state = State::default();
        for index in 0..count {
            self.apply(&mut state, index);
        }
        state
    }

    pub fn apply(&self, state: &mut State, index: usize) {
        let entry = &self.entries[index];
        match entry.status {
            Status::Refused => state.note_refused(&entry.change),
            _ => state.apply(&entry.change, entry.position, self.number(index)),
        }
    }

    /// Operations that were acknowledged: after a kill none of them may be missing.
    pub fn acked_prefix(&self) -> usize {
        self.entries.iter().rposition(|e| e.status == Status::Acked).map_or(0, |at| at + 1)
    }

    /// The state as far as all answers are known; all of it when nothing is under way.
    pub fn settled(&mut self) -> &State {
        let mut settled = std::mem::take(&mut self.settled);
        while self.entries.get(self.settled_count).is_some_and(|e| e.status != Status::Pending) {
            self.apply(&mut settled, self.settled_count);
            self.settled_count += 1;
        }
        self.settled = settled;
        &self.settled
    }

    /// What a read that is submitted now must see at the least.
    pub fn view(&mut self, volume: VolumeId, first: u64, count: u64) -> View {
        let content = self.settled().volumes.get(&volume).map(|volume| volume.content.clone());
        let content = content.unwrap_or_default();
        let mut values: Vec<u64> =
            (first..first + count).map(|sector| content.value(sector)).collect();
        let mut open = Vec::new();
        for index in self.settled_count..self.entries.len() {
            match self.entries[index].status {
                Status::Pending => open.push(index),
                Status::Refused => {}
                Status::Acked => {
                    for (sector, value) in (first..).zip(&mut values) {
                        *value = self.written(index, volume, sector).unwrap_or(*value);
                    }
                }
            }
        }
        View { volume, first, values, open, next: self.entries.len() }
    }

    /// What an operation leaves in a sector, if it touches it. Adoptions are not looked at:
    /// nothing else is under way beside them.
    fn written(&self, index: usize, id: VolumeId, sector: u64) -> Option<u64> {
        let change = &self.entries[index].change;
        if change.volume() != id {
            return None;
        }
        let within = |first: u64, count: u64| (first..first + count).contains(&sector);
        match change {
            Change::Write { first, count, .. } => {
                within(*first, *count).then(|| self.number(index))
            }
            Change::Zero { first, count, .. } => within(*first, *count).then_some(0),
            Change::StageData { first, count, values, .. } => within(*first, *count).then(|| {
                let at = usize::try_from(sector - first).expect("within the part");
                values.as_ref().map_or(0, |values| values[at])
            }),
            Change::Rollback { to, .. } => {
                self.settled.snapshots.get(to).map(|to| to.content().value(sector))
            }
            _ => None,
        }
    }

    /// Which values a sector of a read may show when it is answered now: what it had to see, or
    /// what any operation that was under way meanwhile wrote.
    pub fn allowed(&self, view: &View, sector: u64) -> Vec<u64> {
        let at = usize::try_from(sector - view.first).expect("within the read");
        let mut allowed = vec![view.values[at]];
        let meanwhile = view.open.iter().copied().chain(view.next..self.entries.len());
        allowed.extend(meanwhile.filter_map(|index| self.written(index, view.volume, sector)));
        allowed
    }

    /// Which operation's bytes these are, if any: what a failure has to say.
    pub fn recognise(&self, sector: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = vec![0; bytes.len()];
        (0..=self.entries.len() as u64).find(|number| {
            content(sector, *number, &mut expected);
            expected == bytes
        })
    }

    /// Every operation that touched a sector, with its number.
    pub fn touching(&self, volume: VolumeId, sector: u64) -> Vec<(u64, &Entry)> {
        (0..self.entries.len())
            .filter(|index| self.written(*index, volume, sector).is_some())
            .map(|index| (self.number(index), &self.entries[index]))
            .collect()
    }

    /// The newest position that was given to a volume.
    pub fn newest(&self, volume: VolumeId) -> Position {
        self.newest.get(&volume).copied().unwrap_or_default()
    }
}

/// What later operations are judged by: everything that was submitted, answered or not.
impl History {
    fn counting(&self) -> impl Iterator<Item = &Change> {
        let counting = self.entries.iter().rev().filter(|e| e.status != Status::Refused);
        counting.map(|entry| &entry.change)
    }

    /// The size that a volume has, or will have when what is pending is done.
    pub fn size_of(&self, id: VolumeId) -> u64 {
        let size = self.counting().find_map(|change| match change {
            Change::Create { volume, size, .. }
            | Change::Clone { volume, size, .. }
            | Change::Grow { volume, size } => (*volume == id).then_some(*size),
            _ => None,
        });
        size.expect("a volume that was created")
    }

    pub fn is_attached(&self, id: VolumeId) -> bool {
        let attached = self.counting().find_map(|change| match change {
            Change::Attach { volume, attached } => (*volume == id).then_some(*attached),
            _ => None,
        });
        attached.unwrap_or(false)
    }

    fn pending(&self) -> impl Iterator<Item = &Change> {
        let unsettled = self.entries[self.settled_count..].iter();
        unsettled.filter(|entry| entry.status == Status::Pending).map(|entry| &entry.change)
    }

    /// Snapshots that are there for sure, and that nobody has asked to delete.
    pub fn live_snapshots(&mut self) -> Vec<SnapshotId> {
        self.settled();
        let going = |id: SnapshotId, of: VolumeId| {
            self.pending().any(|change| match change {
                Change::DeleteSnapshot { snapshot, .. } => *snapshot == id,
                Change::Delete { volume, snapshots } => {
                    *volume == of && *snapshots == SnapshotsOfDeleted::Delete
                }
                _ => false,
            })
        };
        let visible = self.settled.visible();
        visible.filter(|(id, found)| !going(*id, found.volume)).map(|(id, _)| id).collect()
    }

    /// Names that a new snapshot of a volume cannot have.
    pub fn names_taken(&mut self, of: VolumeId) -> BTreeSet<String> {
        let live = self.live_snapshots();
        let live = live.iter().map(|id| &self.settled.snapshots[id]);
        let live = live.filter(|found| found.volume == of).map(|found| found.name.clone());
        let coming = self.pending().filter_map(|change| match change {
            Change::Snapshot { volume, name, .. } => (*volume == of).then(|| name.clone()),
            _ => None,
        });
        live.chain(coming).collect()
    }

    /// What a volume held when it was at `seq`; `None` where that was before it was there. All
    /// answers up to there must be known.
    pub fn content_at(&self, id: VolumeId, seq: u64) -> Option<Arc<Content>> {
        let mut last = None;
        for (index, entry) in self.entries.iter().enumerate() {
            let born = match &entry.change {
                _ if entry.status != Status::Acked || entry.change.volume() != id => continue,
                Change::Create { .. } => Some(0),
                Change::Clone { snapshot, .. } => Some(self.settled.snapshots[snapshot].seq()),
                _ => entry.position.map(|position| position.seq.0),
            };
            if born.is_some_and(|born| born <= seq) {
                last = Some(index);
            }
        }
        let mut state = self.state_after(last? + 1);
        state.volumes.remove(&id).map(|volume| volume.content)
    }
}

/// The bytes of a sector that an operation wrote. Number 0 stands for zeros. Every third one can
/// be compressed: one word over and over, or one word and zeros. The volume is not in them: clones
/// and imports carry them to others.
pub fn content(sector: u64, number: u64, bytes: &mut [u8]) {
    if number == 0 {
        return bytes.fill(0);
    }
    let mut word = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(sector.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        | 1;
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
        if number.is_multiple_of(3) {
            word *= number % 2;
            continue;
        }
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1);
    }
}
