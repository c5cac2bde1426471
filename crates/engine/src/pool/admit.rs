//! Is an operation legal? What is refused here has changed nothing.
use block::{ByteLen, ByteOffset, Data, Disk, LOGICAL_SECTOR, Position};

use crate::error::OpError;
use crate::limits::{SEQ_MAX, STATE_MAX, WRITE_MAX};
use crate::pool::change::is_zero;
use crate::pool::pack::Packing;
use crate::pool::queue::{Change, Content, Edge, Kind, Queued};
use crate::pool::{GranuleSums, Op, Pool, RequestId, Subject, Zeroing};
use crate::units::{Granule, SnapshotId, VolumeId, to_usize};
use crate::volume::{Durable, Front, Volume, VolumeSpec, check_size};

impl<D: Disk> Pool<D> {
    /// Accepts an operation, or answers at once why not. Never blocks.
    pub fn submit(&mut self, id: RequestId, op: Op) {
        if !self.is_serving() {
            let error = self.failed_error();
            return self.answer(id, Err(error));
        }
        let accepted = match op {
            Op::Read { volume, offset, len } => {
                self.accept_read(id, Subject::Volume(volume), offset, len)
            }
            Op::ReadSnapshot { snapshot, offset, len } => {
                self.accept_read(id, Subject::Snapshot(snapshot), offset, len)
            }
            Op::Changed { snapshot, since, from, to, max, runs } => {
                self.accept_changed(id, snapshot, since, (from, to), max, runs)
            }
            Op::Usage { of } => self.accept_usage(id, of),
            Op::Extents { of, offset, len } => self.accept_extents(id, of, offset, len),
            Op::Repair { of, offset, data } => self.accept_repair(id, of, offset, data),
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
                self.accept_write(volume, position, offset, data, None)
            }
            Op::WriteChecked { volume, position, offset, data, granule, sums } => {
                self.accept_write(volume, position, offset, data, Some((granule, sums)))
            }
            Op::Zero { volume, position, offset, len, how } => {
                match how {
                    Zeroing::Zeroes => self.counters.zeroes += 1,
                    Zeroing::Discard | Zeroing::Release => self.counters.discards += 1,
                }
                let mut zeros =
                    self.accept_change(volume, position, offset, len, Content::Zeros)?;
                zeros.unpaid = how == Zeroing::Release;
                self.zeroed = self.zeroed.saturating_add(len.0);
                Ok(Kind::Change(Box::new(zeros)))
            }
            Op::Flush => Ok(Kind::Flush),
            Op::Mark { volume, position } => {
                self.check_position(volume, position)?;
                Ok(Kind::Mark { volume, position })
            }
            Op::SetState { volume, position, state } => {
                self.check_place(volume, position)?;
                check_state(&state)?;
                Ok(Kind::SetState { volume, position, state })
            }
            Op::Grow { volume, position, size } => self.accept_grow(volume, position, size),
            Op::Create { spec } => self.accept_create(spec),
            Op::Delete { volume, snapshots } => self.accept_delete(volume, snapshots),
            Op::Attach { volume, attached } => {
                self.live(volume)?;
                Ok(Kind::Attach { volume, attached })
            }
            Op::Credit { volume, bytes } => self.accept_credit(volume, bytes),
            Op::Snapshot { volume, position, spec } => self.accept_snapshot(volume, position, spec),
            Op::DeleteSnapshot { snapshot } => {
                self.shown(snapshot)?;
                Ok(Kind::DeleteSnapshot { snapshot })
            }
            Op::Clone { snapshot, spec } => self.accept_clone(snapshot, spec),
            Op::Rollback { volume, position, to, force } => {
                self.accept_rollback(volume, position, to, force)
            }
            Op::Stage { volume, base } => self.accept_stage(volume, base),
            Op::StageData { staging, changed, offset, content, progress } => {
                self.accept_staged(staging, changed, offset, content, progress)
            }
            Op::Adopt { volume, staging, position, stamps, state } => {
                self.accept_adopt(volume, staging, position, stamps, state)
            }
            Op::Read { .. }
            | Op::ReadSnapshot { .. }
            | Op::Changed { .. }
            | Op::Usage { .. }
            | Op::Extents { .. }
            | Op::Repair { .. } => unreachable!("what changes no volume does not queue"),
        }
    }

    fn accept_write(
        &mut self,
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        data: Data,
        sums: Option<(ByteLen, GranuleSums)>,
    ) -> Result<Kind, OpError> {
        let len = ByteLen(data.len() as u64);
        if len.0 > WRITE_MAX {
            return Err(OpError::TooLong { len });
        }
        self.counters.writes += 1;
        let mut change = self.accept_change(volume, position, offset, len, Content::Bytes(data))?;
        // Of another division they say nothing about what is stored here.
        let granule = self.volumes[&volume].granule();
        let touched = change.end.0 - change.first.0;
        let fit = |sums: &GranuleSums| sums.list().len() as u64 == touched;
        change.sums = sums.filter(|(len, _)| len.0 == granule).map(|(_, sums)| sums).filter(fit);
        Ok(Kind::Change(Box::new(change)))
    }

    fn accept_change(
        &mut self,
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        len: ByteLen,
        content: Content,
    ) -> Result<Change, OpError> {
        self.unstaged(volume)?;
        let change = self.plan_change(volume, position, offset, len, content)?;
        self.check_position(volume, position)?;
        Ok(change)
    }

    pub(super) fn plan_change(
        &self,
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        len: ByteLen,
        content: Content,
    ) -> Result<Change, OpError> {
        let granule = self.check_range(Subject::Volume(volume), offset, len)?;
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
        let (space, packing) = (Vec::new(), Packing::Untried);
        Ok(Change {
            volume,
            position,
            offset,
            len,
            content,
            sums: None,
            first,
            end,
            edges,
            stored,
            packing,
            space,
            import: None,
            unpaid: false,
        })
    }

    fn accept_grow(
        &mut self,
        id: VolumeId,
        position: Option<Position>,
        size: ByteLen,
    ) -> Result<Kind, OpError> {
        let volume = self.unstaged(id)?;
        let has = ByteLen(volume.front.size);
        check_size(size, volume.kept.header.block_size)?;
        if size < has {
            return Err(OpError::Shrink { has, asked: size });
        }
        self.check_place(id, position)?;
        Ok(Kind::Grow { volume: id, position, size })
    }

    fn accept_create(&mut self, spec: VolumeSpec) -> Result<Kind, OpError> {
        spec.validate()?;
        if self.names.contains_key(&spec.name) {
            return Err(OpError::DuplicateName { name: spec.name });
        }
        Ok(Kind::Create { volume: VolumeId(self.next_object), spec })
    }

    /// Later operations are judged by what was accepted before them, done or not.
    fn note_accepted(&mut self, kind: &Kind) {
        self.next_object += u64::from(kind.is_birth());
        match kind {
            Kind::Create { volume, spec } => {
                self.names.insert(spec.name.clone(), *volume);
                self.volumes.insert(*volume, Volume::new(*volume, Durable::born(spec)));
            }
            Kind::Delete { volume, .. } => {
                self.front(*volume).deleted = true;
                if let Some(staging) = self.volumes[volume].kept.staging
                    && let Some(of) = self.volumes.get_mut(&staging.of)
                {
                    of.front.staged = None;
                }
            }
            Kind::Grow { volume, size, .. } => self.front(*volume).size = size.0,
            Kind::Attach { volume, attached } => self.front(*volume).attached = *attached,
            Kind::DeleteSnapshot { snapshot } => {
                let found = self.snapshots.get_mut(snapshot).expect("it was looked up");
                found.front_deleted = true;
            }
            Kind::Clone { volume, header, .. } => {
                self.names.insert(header.name.clone(), *volume);
            }
            Kind::Stage { volume, of, .. } => self.front(*of).staged = Some(*volume),
            Kind::Adopt { staging, .. } => self.front(*staging).deleted = true,
            _ => {}
        }
        if let Some((volume, position)) = kind.position() {
            self.front(volume).position = position;
        }
    }

    fn front(&mut self, id: VolumeId) -> &mut Front {
        &mut self.volumes.get_mut(&id).expect("it was looked up").front
    }

    /// A volume that exists and is not being deleted.
    pub(super) fn live(&self, id: VolumeId) -> Result<&Volume, OpError> {
        self.volumes
            .get(&id)
            .filter(|volume| !volume.front.deleted)
            .ok_or(OpError::UnknownVolume { volume: id })
    }

    pub(super) fn check_position(&self, id: VolumeId, asked: Position) -> Result<(), OpError> {
        let at = self.live(id)?.front.position;
        if asked.seq.0 >= SEQ_MAX {
            return Err(OpError::SeqTooHigh { asked });
        }
        // Whether it follows without a gap is known when its turn has come.
        if self.volumes[&id].in_order {
            return Ok(());
        }
        if asked.seq <= at.seq || asked.term < at.term {
            return Err(OpError::NotAscending { asked, at });
        }
        Ok(())
    }

    /// The place that an operation takes in the sequence, if it takes one.
    pub(super) fn check_place(&self, id: VolumeId, asked: Option<Position>) -> Result<(), OpError> {
        match asked {
            Some(asked) => self.check_position(id, asked),
            None => self.live(id).map(|_| ()),
        }
    }

    /// Whether a range is within a volume or snapshot; returns its granule.
    pub(super) fn check_range(
        &self,
        of: Subject,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<u64, OpError> {
        let (size, granule) = match of {
            Subject::Volume(id) => {
                let volume = self.live(id)?;
                (ByteLen(volume.front.size), volume.granule())
            }
            Subject::Snapshot(id) => {
                let header = &self.shown(id)?.cut.header;
                (ByteLen(header.size), header.block_size.granule())
            }
        };
        if !offset.0.is_multiple_of(LOGICAL_SECTOR) || !len.0.is_multiple_of(LOGICAL_SECTOR) {
            return Err(OpError::Unaligned { offset, len });
        }
        if len.0 == 0 {
            return Err(OpError::Empty);
        }
        if offset.end(len).is_none_or(|end| end.0 > size.0) {
            return Err(OpError::BeyondEnd { offset, len, size });
        }
        Ok(granule)
    }
}

impl<D: Disk> Pool<D> {
    /// From now on, operations of a volume that have a position are done only if it follows the
    /// volume's own without a gap; others get [`OpError::Gap`] when their turn comes. So when one
    /// is refused, everything behind it is, and all of it can be submitted again. Adoptions, which
    /// take a volume anywhere, and operations without a position are not held to it.
    ///
    /// Off when a pool is opened.
    pub fn keep_order(&mut self, volume: VolumeId, on: bool) -> Result<(), OpError> {
        self.live(volume)?;
        self.volumes.get_mut(&volume).expect("looked up above").in_order = on;
        Ok(())
    }

    /// Why the operation in front does not follow what its volume has.
    fn leaves_gap(&mut self) -> Option<OpError> {
        let kind = &self.queue.front()?.kind;
        if matches!(kind, Kind::Adopt { .. }) {
            return None;
        }
        let (id, asked) = kind.position()?;
        let at = self.volumes.get(&id).filter(|volume| volume.in_order)?.kept.position;
        let follows = asked.seq.0 == at.seq.0 + 1 && asked.term >= at.term;
        (!follows).then_some(OpError::Gap { asked, at })
    }

    /// An operation was accepted in view of one before it, which was then refused: the operation
    /// in front is judged again by what really is.
    pub(super) fn became_illegal(&mut self) -> Option<OpError> {
        if let Some(gap) = self.leaves_gap() {
            return Some(gap);
        }
        let front = self.queue.front()?;
        let gone = |snapshot: SnapshotId, pool: &Self| {
            let found = pool.snapshots.get(&snapshot).filter(|found| !found.cut.deleted);
            found.is_none().then_some(OpError::UnknownSnapshot { snapshot })
        };
        let (volume, snapshot) = match &front.kind {
            Kind::Flush | Kind::Create { .. } => return None,
            Kind::DeleteSnapshot { snapshot } | Kind::Clone { snapshot, .. } => {
                let snapshot = *snapshot;
                return gone(snapshot, self);
            }
            Kind::Stage { of, base, .. } => (*of, Some(*base)),
            Kind::Rollback { volume, to, .. } => (*volume, Some(*to)),
            kind => (kind.volume()?, None),
        };
        let Some(found) = self.volumes.get(&volume).filter(|found| !found.deleting) else {
            return Some(OpError::UnknownVolume { volume });
        };
        let size = ByteLen(found.kept.header.size);
        if let Some(error) = snapshot.and_then(|snapshot| gone(snapshot, self)) {
            return Some(error);
        }
        match &self.queue.front()?.kind {
            Kind::Change(change) => {
                let (offset, len) = (change.offset, change.len);
                (offset.0 + len.0 > size.0).then_some(OpError::BeyondEnd { offset, len, size })
            }
            Kind::Adopt { staging, .. } => {
                let (staging, known) = (*staging, self.volumes.get(staging));
                let gone = known.is_none_or(|staging| staging.deleting);
                gone.then_some(OpError::NotStaging { volume: staging })
            }
            _ => None,
        }
    }

    /// An operation that was accepted is not done after all: later ones are judged without it.
    pub(super) fn undo_accepted(&mut self, kind: &Kind) {
        match kind {
            Kind::Create { volume, spec } => {
                self.names.remove(&spec.name);
                self.volumes.remove(volume);
                return;
            }
            Kind::Clone { header, .. } => {
                self.names.remove(&header.name);
                return;
            }
            Kind::Stage { of, .. } => {
                if let Some(of) = self.volumes.get_mut(of) {
                    of.front.staged = None;
                }
                return;
            }
            Kind::DeleteSnapshot { snapshot } => {
                if let Some(found) = self.snapshots.get_mut(snapshot) {
                    found.front_deleted = found.cut.deleted;
                }
                return;
            }
            Kind::Adopt { staging, .. } => {
                if let Some(found) = self.volumes.get_mut(staging) {
                    found.front.deleted = found.deleting;
                }
            }
            _ => {}
        }
        let Some(id) = kind.volume() else { return };
        let (position, size) = (self.queue.last_position(id), self.queue.last_size(id));
        let Some(volume) = self.volumes.get_mut(&id) else { return };
        match kind {
            Kind::Delete { .. } => {
                volume.front.deleted = volume.deleting;
                if let Some(staging) = volume.kept.staging
                    && let Some(of) = self.volumes.get_mut(&staging.of)
                {
                    of.front.staged = Some(id);
                }
                return;
            }
            Kind::Grow { .. } => volume.front.size = size.unwrap_or(volume.kept.header.size),
            Kind::Attach { .. } => volume.front.attached = volume.kept.attached,
            _ => {}
        }
        volume.front.position = position.unwrap_or(volume.kept.position);
    }
}

pub(super) fn check_state(state: &[u8]) -> Result<(), OpError> {
    match state.len() {
        len if len > STATE_MAX => Err(OpError::StateTooLong { len }),
        _ => Ok(()),
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
