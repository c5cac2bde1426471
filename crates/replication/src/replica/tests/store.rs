//! A store in memory: operations take effect when they are asked, and are answered later. What was
//! flushed survives a power cut, the rest does not.
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Data, Position, Seq};

use crate::cost::Costs;
use crate::state::{SnapshotEntry, SnapshotSpec};
use crate::store::{ChangedRange, Content, Extent, StoreError, StoreFacts, StoreOp, StoreReply};

pub const GRANULE: u64 = 4096;
pub const GRANULE_LEN: usize = 4096;

/// Which operations are refused, and why.
type Refused = (fn(&StoreOp) -> bool, StoreError);

type Cells = BTreeMap<u64, (Option<u8>, Seq)>;

#[derive(Clone)]
struct Frozen {
    cells: Cells,
    state: Vec<u8>,
    internal: bool,
    entry: SnapshotEntry,
}

/// Cells are granules of one repeated byte; `None` is a hole.
#[derive(Clone, Default)]
struct Copy {
    position: Position,
    state: Vec<u8>,
    size: u64,
    cells: Cells,
    frozen: Vec<Frozen>,
    staged: Option<(Cells, u64)>,
}

pub struct Store {
    now: Copy,
    durable: Copy,
    pub log: Vec<StoreOp>,
    /// Refuses the entry with this seq, once or for good.
    pub refuse: Option<(Seq, StoreError, bool)>,
    /// Refuses whatever this names.
    pub refuse_op: Option<Refused>,
}

impl Store {
    pub fn new(state: Vec<u8>, size: u64) -> Store {
        let now = Copy { state, size, ..Copy::default() };
        Store { durable: now.clone(), now, log: Vec::new(), refuse: None, refuse_op: None }
    }

    pub fn facts(&self) -> StoreFacts {
        let of = |internal| {
            let frozen = self.now.frozen.iter().filter(move |f| f.internal == internal);
            frozen.map(|f| f.entry.clone()).collect()
        };
        StoreFacts {
            position: self.now.position,
            state: self.now.state.clone(),
            size: ByteLen(self.now.size),
            block_size: ByteLen(GRANULE),
            snapshots: of(false),
            internal: of(true),
            staged: self.now.staged.as_ref().map(|staged| staged.1),
            costs: Costs {
                granule: ByteLen(GRANULE),
                per_write: ByteLen(100),
                per_granule: ByteLen(5000),
                is_clone: false,
            },
        }
    }

    pub fn cut_power(&mut self) {
        self.now = self.durable.clone();
    }

    pub fn byte(&self, offset: u64) -> u8 {
        self.now.cells.get(&(offset / GRANULE)).and_then(|cell| cell.0).unwrap_or(0)
    }

    pub fn durable_position(&self) -> Position {
        self.durable.position
    }

    pub fn durable_state(&self) -> &[u8] {
        &self.durable.state
    }

    pub fn state(&self) -> &[u8] {
        &self.now.state
    }

    pub fn apply(&mut self, op: &StoreOp) -> Result<StoreReply, StoreError> {
        self.log.push(op.clone());
        if let Some((which, error)) = &self.refuse_op
            && which(op)
        {
            return Err(error.clone());
        }
        let position = match op {
            StoreOp::Write { position, .. }
            | StoreOp::Zero { position, .. }
            | StoreOp::Mark { position }
            | StoreOp::Rollback { position, .. } => Some(*position),
            StoreOp::SetState { position, .. } | StoreOp::Snapshot { position, .. } => *position,
            _ => None,
        };
        if let Some(position) = position {
            if position.seq.0 != self.now.position.seq.0 + 1 {
                return Err(StoreError::Gap);
            }
            if let Some((seq, error, once)) = self.refuse.clone()
                && seq == position.seq
            {
                self.refuse = self.refuse.take().filter(|_| !once);
                return Err(error);
            }
        }
        let reply = self.change(op)?;
        self.now.position = position.unwrap_or(self.now.position);
        Ok(reply)
    }

    fn change(&mut self, op: &StoreOp) -> Result<StoreReply, StoreError> {
        let now = &mut self.now;
        match op {
            StoreOp::Write { position, offset, data, sums } => {
                assert!(sums.are_of(*offset, data), "they were compared");
                let bytes = Content::Bytes(data.clone());
                put(&mut now.cells, *offset, &bytes, position.seq);
            }
            StoreOp::Zero { position, offset, len, .. } => {
                put(&mut now.cells, *offset, &Content::Zeros(*len), position.seq);
            }
            StoreOp::Mark { .. } | StoreOp::Credit { .. } | StoreOp::Repair { .. } => {}
            StoreOp::SetState { state, .. } => now.state.clone_from(state),
            StoreOp::Snapshot { position, spec, internal } => {
                let SnapshotSpec { uid, name, created } = spec.clone();
                if now.find(uid).is_ok() {
                    return Err(StoreError::Refused { reason: "it exists".to_owned() });
                }
                let position = position.unwrap_or(now.position);
                let entry = SnapshotEntry { uid, name, created, position };
                let (cells, state) = (now.cells.clone(), now.state.clone());
                now.frozen.push(Frozen { cells, state, internal: *internal, entry });
            }
            StoreOp::Rollback { to, .. } => now.cells = now.find(*to)?.cells.clone(),
            StoreOp::Flush => {
                self.durable = self.now.clone();
                return Ok(StoreReply::Flushed);
            }
            StoreOp::Grow { size } => now.size = now.size.max(size.0),
            StoreOp::DeleteSnapshot { snapshot } => {
                now.find(*snapshot)?;
                now.frozen.retain(|f| f.entry.uid != *snapshot);
            }
            StoreOp::Read { offset, len } => return Ok(read(&now.cells, *offset, *len)),
            StoreOp::Extents { offset, len } => {
                return Ok(extents(&now.cells, *offset, *len));
            }
            StoreOp::ReadSnapshot { snapshot, offset, len } => {
                return Ok(read(&now.find(*snapshot)?.cells, *offset, *len));
            }
            StoreOp::SnapshotState { snapshot } => {
                return Ok(StoreReply::State(now.find(*snapshot)?.state.clone()));
            }
            StoreOp::Changed { snapshot, since, from, to, max } => {
                let to = to.map_or(now.size, |to| to.0);
                return Ok(changed(&now.find(*snapshot)?.cells, *since, from.0..to, *max));
            }
            StoreOp::Stage { base } => {
                now.staged = Some((now.find(*base)?.cells.clone(), 0));
            }
            StoreOp::StageData { changed, offset, content, progress } => {
                let no_import = StoreError::Refused { reason: "no import".to_owned() };
                let (cells, told) = now.staged.as_mut().ok_or(no_import)?;
                put(cells, *offset, content, *changed);
                *told = *progress;
            }
            StoreOp::Adopt { position, state } => {
                let no_import = StoreError::Refused { reason: "no import".to_owned() };
                now.cells = now.staged.take().ok_or(no_import)?.0;
                (now.position, now.state) = (*position, state.clone());
            }
            StoreOp::Abandon => now.staged = None,
        }
        Ok(StoreReply::Done)
    }
}

impl Copy {
    fn find(&self, uid: crate::words::SnapshotUid) -> Result<&Frozen, StoreError> {
        let found = self.frozen.iter().find(|f| f.entry.uid == uid);
        found.ok_or(StoreError::UnknownSnapshot)
    }
}

fn put(cells: &mut Cells, offset: ByteOffset, content: &Content, seq: Seq) {
    for no in offset.0 / GRANULE..(offset.0 + content.len().0).div_ceil(GRANULE) {
        let byte = match content {
            Content::Bytes(data) => Some(data[0]),
            Content::Zeros(_) => None,
        };
        cells.insert(no, (byte, seq));
    }
}

fn read(cells: &Cells, offset: ByteOffset, len: ByteLen) -> StoreReply {
    let mut bytes = Vec::new();
    for no in offset.0 / GRANULE..(offset.0 + len.0) / GRANULE {
        let byte = cells.get(&no).and_then(|cell| cell.0).unwrap_or(0);
        bytes.extend(std::iter::repeat_n(byte, GRANULE_LEN));
    }
    StoreReply::Read(Data::copy_of(&bytes))
}

fn extents(cells: &Cells, offset: ByteOffset, len: ByteLen) -> StoreReply {
    let mut extents: Vec<Extent> = Vec::new();
    for no in offset.0 / GRANULE..(offset.0 + len.0) / GRANULE {
        let has_data = cells.get(&no).is_some_and(|cell| cell.0.is_some());
        match extents.last_mut() {
            Some(last) if last.has_data == has_data => last.len.0 += GRANULE,
            _ => extents.push(Extent { len: ByteLen(GRANULE), has_data }),
        }
    }
    StoreReply::Extents(extents)
}

fn changed(cells: &Cells, since: Seq, range: std::ops::Range<u64>, max: usize) -> StoreReply {
    let mut ranges = Vec::new();
    for (no, (byte, seq)) in cells.range(range.start / GRANULE..range.end.div_ceil(GRANULE)) {
        let wanted = *seq > since;
        if !wanted {
            continue;
        }
        if ranges.len() == max {
            return StoreReply::Changed { ranges, next: Some(ByteOffset(no * GRANULE)) };
        }
        ranges.push(ChangedRange {
            offset: ByteOffset(no * GRANULE),
            len: ByteLen(GRANULE),
            is_data: byte.is_some(),
            changed: *seq,
        });
    }
    StoreReply::Changed { ranges, next: None }
}
