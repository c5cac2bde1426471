//! Is an operation legal? What is refused here has changed nothing.
use block::{ByteLen, ByteOffset, Disk, LOGICAL_SECTOR, Position};

use crate::error::OpError;
use crate::limits::{SEQ_MAX, STATE_MAX, WRITE_MAX};
use crate::pool::change::is_zero;
use crate::pool::queue::{Change, Content, Edge, Kind, Queued};
use crate::pool::{Op, Pool, Reply, RequestId, Zeroing};
use crate::units::{Granule, VolumeId, to_usize};
use crate::volume::{Durable, Volume, VolumeSpec, check_size};

impl<D: Disk> Pool<D> {
    /// Accepts an operation, or answers at once why not. Never blocks.
    pub fn submit(&mut self, id: RequestId, op: Op) {
        if !self.is_serving() {
            let error = self.failed_error();
            return self.answer(id, Err(error));
        }
        let accepted = match op {
            Op::Read { volume, offset, len } => self.accept_read(id, volume, offset, len),
            other => self.accept(other).and_then(|kind| self.enqueue(id, kind)),
        };
        if let Err(error) = accepted {
            self.counters.refused += 1;
            self.answer(id, Err(error));
        }
    }

    fn enqueue(&mut self, id: RequestId, kind: Kind) -> Result<(), OpError> {
        self.note_accepted(&kind);
        let number = self.queue.push(Queued { id, kind });
        self.read_edges(number);
        Ok(())
    }

    fn accept(&mut self, op: Op) -> Result<Kind, OpError> {
        if self.queue.len() >= self.limits.queue_ops
            || self.queue.bytes() >= self.limits.queue_bytes
        {
            return Err(OpError::Busy);
        }
        match op {
            Op::Write { volume, position, offset, data } => {
                if data.len() as u64 > WRITE_MAX {
                    return Err(OpError::TooLong { len: ByteLen(data.len() as u64) });
                }
                let len = ByteLen(data.len() as u64);
                self.counters.writes += 1;
                self.accept_change(volume, position, offset, len, Content::Bytes(data))
            }
            Op::Zero { volume, position, offset, len, how } => {
                match how {
                    Zeroing::Zeroes => self.counters.zeroes += 1,
                    Zeroing::Discard => self.counters.discards += 1,
                }
                self.accept_change(volume, position, offset, len, Content::Zeros)
            }
            Op::Flush => Ok(Kind::Flush),
            Op::Mark { volume, position } => {
                self.check_position(volume, position)?;
                Ok(Kind::Mark { volume, position })
            }
            Op::SetState { volume, position, state } => {
                self.check_position(volume, position)?;
                match state.len() {
                    len if len > STATE_MAX => Err(OpError::StateTooLong { len }),
                    _ => Ok(Kind::SetState { volume, position, state }),
                }
            }
            Op::Grow { volume, position, size } => self.accept_grow(volume, position, size),
            Op::Create { spec } => self.accept_create(spec),
            Op::Delete { volume } => {
                self.live(volume)?;
                Ok(Kind::Delete { volume })
            }
            Op::Read { .. } => unreachable!("reads do not queue"),
        }
    }

    fn accept_change(
        &mut self,
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        len: ByteLen,
        content: Content,
    ) -> Result<Kind, OpError> {
        let granule = self.check_range(volume, offset, len)?;
        self.check_position(volume, position)?;
        let end = offset.0 + len.0;
        let (first, last) = (offset.0 / granule, (end - 1) / granule);
        let mut edges = Vec::new();
        if !offset.0.is_multiple_of(granule) || end < (first + 1) * granule {
            edges.push(Edge::Wanted(Granule(first)));
        }
        if !end.is_multiple_of(granule) && (last != first || edges.is_empty()) {
            edges.push(Edge::Wanted(Granule(last)));
        }
        let stored = stored_granules(&content, offset, granule, (first, last), edges.len() as u64);
        let (first, end) = (Granule(first), Granule(last + 1));
        let space = Vec::new();
        let change =
            Change { volume, position, offset, len, content, first, end, edges, space, stored };
        Ok(Kind::Change(Box::new(change)))
    }

    fn accept_grow(
        &mut self,
        id: VolumeId,
        position: Position,
        size: ByteLen,
    ) -> Result<Kind, OpError> {
        let volume = self.live(id)?;
        let has = ByteLen(volume.front.size);
        check_size(size, volume.kept.header.block_size)?;
        if size < has {
            return Err(OpError::Shrink { has, asked: size });
        }
        self.check_position(id, position)?;
        Ok(Kind::Grow { volume: id, position, size })
    }

    fn accept_create(&mut self, spec: VolumeSpec) -> Result<Kind, OpError> {
        spec.validate()?;
        if self.names.contains_key(&spec.name) {
            return Err(OpError::DuplicateName { name: spec.name });
        }
        Ok(Kind::Create { volume: VolumeId(self.next_volume), spec })
    }

    /// Later operations are judged by what was accepted before them, done or not.
    fn note_accepted(&mut self, kind: &Kind) {
        match kind {
            Kind::Create { volume, spec } => {
                self.next_volume += 1;
                self.names.insert(spec.name.clone(), *volume);
                self.volumes.insert(*volume, Volume::new(*volume, Durable::born(spec)));
            }
            Kind::Delete { volume } => {
                self.volumes.get_mut(volume).expect("it was looked up").front.deleted = true;
            }
            Kind::Grow { volume, size, .. } => {
                self.volumes.get_mut(volume).expect("it was looked up").front.size = size.0;
            }
            _ => {}
        }
        if let Some((volume, position)) = kind.position() {
            self.volumes.get_mut(&volume).expect("it was looked up").front.position = position;
        }
    }

    /// A volume that exists and is not being deleted.
    pub(super) fn live(&self, id: VolumeId) -> Result<&Volume, OpError> {
        self.volumes
            .get(&id)
            .filter(|volume| !volume.front.deleted)
            .ok_or(OpError::UnknownVolume { volume: id })
    }

    fn check_position(&self, id: VolumeId, asked: Position) -> Result<(), OpError> {
        let at = self.live(id)?.front.position;
        if asked.seq.0 >= SEQ_MAX {
            return Err(OpError::SeqTooHigh { asked });
        }
        if asked.seq <= at.seq || asked.term < at.term {
            return Err(OpError::NotAscending { asked, at });
        }
        Ok(())
    }

    /// Whether a range is within a volume; returns the volume's granule.
    pub(super) fn check_range(
        &self,
        id: VolumeId,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<u64, OpError> {
        let volume = self.live(id)?;
        if !offset.0.is_multiple_of(LOGICAL_SECTOR) || !len.0.is_multiple_of(LOGICAL_SECTOR) {
            return Err(OpError::Unaligned { offset, len });
        }
        if len.0 == 0 {
            return Err(OpError::Empty);
        }
        let size = ByteLen(volume.front.size);
        if offset.end(len).is_none_or(|end| end.0 > size.0) {
            return Err(OpError::BeyondEnd { offset, len, size });
        }
        Ok(volume.granule())
    }
}

impl<D: Disk> Pool<D> {
    /// An operation was accepted in view of one before it, which was then refused: the operation
    /// in front is judged again by what really is.
    pub(super) fn became_illegal(&mut self) -> Option<OpError> {
        let front = self.queue.front()?;
        let volume = front.kind.volume()?;
        let Some(found) = self.volumes.get(&volume).filter(|found| !found.kept.deleting) else {
            return Some(OpError::UnknownVolume { volume });
        };
        let Kind::Change(change) = &front.kind else { return None };
        let (offset, len, size) = (change.offset, change.len, ByteLen(found.kept.header.size));
        (offset.0 + len.0 > size.0).then_some(OpError::BeyondEnd { offset, len, size })
    }

    /// An operation that was accepted is not done after all: later ones are judged without it.
    pub(super) fn undo_accepted(&mut self, kind: &Kind) {
        let Some(id) = kind.volume() else { return };
        if let Kind::Create { spec, .. } = kind {
            self.names.remove(&spec.name);
            self.volumes.remove(&id);
            return;
        }
        let (position, size) = (self.queue.last_position(id), self.queue.last_size(id));
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        match kind {
            Kind::Delete { .. } => volume.front.deleted = false,
            Kind::Grow { .. } => volume.front.size = size.unwrap_or(volume.kept.header.size),
            _ => {}
        }
        volume.front.position = position.unwrap_or(volume.kept.position);
    }
}

impl Kind {
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            Kind::Change(change) => Some(change.volume),
            Kind::Mark { volume, .. }
            | Kind::SetState { volume, .. }
            | Kind::Grow { volume, .. }
            | Kind::Create { volume, .. }
            | Kind::Delete { volume } => Some(*volume),
            Kind::Flush => None,
        }
    }

    pub fn position(&self) -> Option<(VolumeId, Position)> {
        match self {
            Kind::Change(change) => Some((change.volume, change.position)),
            Kind::Mark { volume, position }
            | Kind::SetState { volume, position, .. }
            | Kind::Grow { volume, position, .. } => Some((*volume, *position)),
            Kind::Flush | Kind::Create { .. } | Kind::Delete { .. } => None,
        }
    }

    pub fn reply(&self) -> Reply {
        match self {
            Kind::Create { volume, .. } => Reply::Created(*volume),
            Kind::Flush => Reply::Flushed,
            _ => Reply::Done,
        }
    }
}

/// Granules for which space has to be found: those of a write that are not all zeros, and those
/// that are covered in part, whatever they turn out to be.
fn stored_granules(
    content: &Content,
    offset: ByteOffset,
    granule: u64,
    (first, last): (u64, u64),
    edges: u64,
) -> u64 {
    let Content::Bytes(data) = content else { return edges };
    let whole = (first..=last).filter(|at| {
        let (start, end) = (at * granule, (at + 1) * granule);
        start >= offset.0
            && end <= offset.0 + data.len() as u64
            && !is_zero(&data[to_usize(start - offset.0)..to_usize(end - offset.0)])
    });
    edges + whole.count() as u64
}
