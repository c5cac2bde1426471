//! The model: a list of what was asked, in order, and what a volume is after a part of it.
use std::collections::{BTreeMap, BTreeSet};

use block::Position;
use engine::VolumeId;

/// The model thinks in the finest address that there is.
pub const SECTOR: u64 = 512;

/// What one operation does. Ranges are in sectors of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Create { volume: VolumeId, name: String, size: u64 },
    Delete { volume: VolumeId },
    Write { volume: VolumeId, first: u64, count: u64 },
    Zero { volume: VolumeId, first: u64, count: u64 },
    Grow { volume: VolumeId, size: u64 },
    SetState { volume: VolumeId, state: Vec<u8> },
    Mark { volume: VolumeId },
}

impl Change {
    pub fn volume(&self) -> VolumeId {
        match self {
            Change::Create { volume, .. }
            | Change::Delete { volume }
            | Change::Write { volume, .. }
            | Change::Zero { volume, .. }
            | Change::Grow { volume, .. }
            | Change::SetState { volume, .. }
            | Change::Mark { volume } => *volume,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Pending,
    Acked,
    /// Refused: it must have changed nothing.
    Refused,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub change: Change,
    pub position: Option<Position>,
    pub status: Status,
}

/// A volume as the model has it. A sector holds the number of the operation that wrote it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeState {
    pub name: String,
    pub size: u64,
    pub position: Position,
    pub state: Vec<u8>,
    pub sectors: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    pub volumes: BTreeMap<VolumeId, VolumeState>,
}

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
    /// Sectors that any operation ever touched, per volume.
    pub touched: BTreeMap<VolumeId, BTreeSet<u64>>,
    /// The state after the first `settled_count` operations, none of which is pending.
    settled: State,
    settled_count: usize,
    newest: BTreeMap<VolumeId, Position>,
}

impl History {
    pub fn push(&mut self, change: Change, position: Option<Position>) -> usize {
        if let Change::Write { volume, first, count } | Change::Zero { volume, first, count } =
            &change
        {
            let touched = self.touched.entry(*volume).or_default();
            // Of a huge range the ends and some inside stand for all of it.
            let step = if *count > 4096 { count / 16 } else { 1 };
            touched.extend((*first..first + count).step_by(usize::try_from(step).unwrap_or(1)));
            touched.insert(first + count - 1);
        }
        if let Some(position) = position {
            self.newest.insert(change.volume(), position);
        }
        self.entries.push(Entry { change, position, status: Status::Pending });
        self.entries.len() - 1
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
        if entry.status == Status::Refused {
            return;
        }
        let id = entry.change.volume();
        match &entry.change {
            Change::Create { name, size, .. } => {
                let (name, size) = (name.clone(), *size);
                state.volumes.insert(id, VolumeState { name, size, ..VolumeState::default() });
                return;
            }
            Change::Delete { .. } => {
                state.volumes.remove(&id);
                return;
            }
            _ => {}
        }
        let number = self.number(index);
        let Some(volume) = state.volumes.get_mut(&id) else {
            return;
        };
        volume.position = entry.position.expect("a change of a volume has a position");
        match &entry.change {
            Change::Write { first, count, .. } => {
                volume.sectors.extend((*first..first + count).map(|sector| (sector, number)));
            }
            Change::Zero { first, count, .. } => {
                let gone: Vec<u64> = volume
                    .sectors
                    .range(*first..first + count)
                    .map(|(sector, _)| *sector)
                    .collect();
                for sector in gone {
                    volume.sectors.remove(&sector);
                }
            }
            Change::Grow { size, .. } => volume.size = *size,
            Change::SetState { state, .. } => volume.state = state.clone(),
            Change::Mark { .. } | Change::Create { .. } | Change::Delete { .. } => {}
        }
    }

    /// Operations that were acknowledged: after a kill none of them may be missing.
    pub fn acked_prefix(&self) -> usize {
        self.entries.iter().rposition(|e| e.status == Status::Acked).map_or(0, |at| at + 1)
    }

    /// Takes operations whose answer is known into the settled state.
    fn settle(&mut self) {
        let mut settled = std::mem::take(&mut self.settled);
        while self.entries.get(self.settled_count).is_some_and(|e| e.status != Status::Pending) {
            self.apply(&mut settled, self.settled_count);
            self.settled_count += 1;
        }
        self.settled = settled;
    }

    /// What a read that is submitted now must see at the least.
    pub fn view(&mut self, volume: VolumeId, first: u64, count: u64) -> View {
        self.settle();
        let sectors = self.settled.volumes.get(&volume).map(|volume| &volume.sectors);
        let value = |sector| sectors.and_then(|sectors| sectors.get(&sector).copied());
        let mut values: Vec<u64> =
            (first..first + count).map(|sector| value(sector).unwrap_or(0)).collect();
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

    /// What an operation leaves in a sector, if it touches it.
    fn written(&self, index: usize, id: VolumeId, sector: u64) -> Option<u64> {
        match self.entries[index].change {
            Change::Write { volume, first, count } => (volume == id
                && (first..first + count).contains(&sector))
            .then(|| self.number(index)),
            Change::Zero { volume, first, count } => {
                (volume == id && (first..first + count).contains(&sector)).then_some(0)
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
    pub fn recognise(&self, volume: VolumeId, sector: u64, bytes: &[u8]) -> Option<u64> {
        let mut expected = vec![0; bytes.len()];
        (0..=self.entries.len() as u64).find(|number| {
            content(volume, sector, *number, &mut expected);
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

    /// Ranges of a volume that cover everything that was ever touched, for reading it back.
    pub fn touched_ranges(&self, volume: VolumeId, size: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &sector in self.touched.get(&volume).into_iter().flatten().filter(|s| **s < size) {
            match ranges.last_mut() {
                Some((first, count)) if sector < *first + *count + 16 && *count < 512 => {
                    *count = (sector - *first + 8).max(*count).min(size - *first);
                }
                _ => ranges.push((sector, 8.min(size - sector))),
            }
        }
        ranges
    }

    /// The size that a volume has, or will have when what is pending is done.
    pub fn size_of(&self, id: VolumeId) -> u64 {
        let counting = self.entries.iter().rev().filter(|e| e.status != Status::Refused);
        let size = |entry: &Entry| match entry.change {
            Change::Create { volume, size, .. } | Change::Grow { volume, size } => {
                (volume == id).then_some(size)
            }
            _ => None,
        };
        counting.into_iter().find_map(size).expect("a volume that was created")
    }

    /// The newest position that was given to a volume.
    pub fn newest(&self, volume: VolumeId) -> Position {
        self.newest.get(&volume).copied().unwrap_or_default()
    }
}

/// The bytes of a sector that an operation wrote. Number 0 stands for zeros.
pub fn content(volume: VolumeId, sector: u64, number: u64, bytes: &mut [u8]) {
    if number == 0 {
        return bytes.fill(0);
    }
    let mut word = number
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .wrapping_add(sector.wrapping_mul(0xbf58_476d_1ce4_e5b9))
        .wrapping_add(volume.0 << 7)
        | 1;
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number | 1);
    }
}
