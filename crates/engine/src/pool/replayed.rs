//! Records of the journal, done again when a pool is opened.
//!
//! Every record was legal when it was sealed, and what it relies on is on the device. One that is
//! not is damage that no checksum showed: it is refused, never guessed at.
use block::{Position, Wait};

use crate::compress;
use crate::error::OpenError;
use crate::format::{Record, Span};
use crate::limits::{SEQ_MAX, VOLUME_MAX};
use crate::pool::Pool;
use crate::pool::open::{check_object, malformed};
use crate::snapshot::Object;
use crate::units::{Extent, Granule, Slot, SnapshotId, VolumeId};
use crate::volume::{Durable, Header, Volume};

impl<D: Wait> Pool<D> {
    pub(super) fn replay_record(&mut self, slot: Slot, record: Record) -> Result<(), OpenError> {
        match record {
            Record::Create { volume, header } => self.replay_create(volume, *header),
            Record::Clone { volume, snapshot, header } => {
                self.replay_settled(snapshot)?;
                self.replay_birth(volume.0, &header)?;
                self.names.insert(header.name.clone(), volume);
                self.insert_clone(volume, snapshot, *header);
                Ok(())
            }
            Record::DeleteSnapshot { snapshot } => {
                self.replay_known(snapshot)?;
                self.mark_deleted(snapshot);
                Ok(())
            }
            Record::Stage { volume, of, base } => {
                self.replay_settled(base)?;
                self.replay_volume(of)?;
                let header = self.volumes[&of].kept.header.clone();
                self.replay_birth(volume.0, &header)?;
                self.insert_staging(volume, of, base);
                Ok(())
            }
            Record::Update { volume, position, spans } => {
                let (granules, sectors) = self.replay_volume(volume)?;
                self.replay_position(volume, position)?;
                self.claim_spans(&spans, granules, sectors)?;
                self.overlay_spans(volume, position.seq, &spans, slot);
                Ok(())
            }
            Record::Staged { volume, changed, progress, spans } => {
                let (granules, sectors) = self.replay_volume(volume)?;
                if changed.0 >= SEQ_MAX || self.volumes[&volume].kept.staging.is_none() {
                    return Err(malformed("part of an import"));
                }
                self.claim_spans(&spans, granules, sectors)?;
                self.overlay_spans(volume, changed, &spans, slot);
                self.note_progress(volume, progress);
                Ok(())
            }
            record => self.replay_on_volume(record),
        }
    }

    fn replay_on_volume(&mut self, record: Record) -> Result<(), OpenError> {
        match record {
            Record::Resize { volume, position, size } => {
                self.replay_volume(volume)?;
                self.replay_position(volume, position)?;
                let kept = self.touch(volume);
                if size < kept.header.size || size > VOLUME_MAX {
                    return Err(malformed("size in a journal record"));
                }
                kept.header.size = size;
                self.volumes.get_mut(&volume).expect("looked up").front.size = size;
            }
            Record::State { volume, position, state } => {
                self.replay_volume(volume)?;
                self.replay_position(volume, position)?;
                self.touch(volume).state = state;
            }
            Record::Mark { volume, position } => {
                self.replay_volume(volume)?;
                self.replay_position(volume, position)?;
            }
            Record::Attach { volume, attached } => {
                self.replay_volume(volume)?;
                self.touch(volume).attached = attached;
                self.volumes.get_mut(&volume).expect("looked up").front.attached = attached;
            }
            Record::Credit { volume, sectors } => {
                self.replay_volume(volume)?;
                self.touch(volume).credit = sectors;
            }
            Record::Delete { volume, snapshots } => {
                self.replay_volume(volume)?;
                self.mark_deleting(volume, snapshots);
            }
            Record::Snapshot { volume, position, snapshot, internal, created, header } => {
                self.replay_volume(volume)?;
                self.replay_position(volume, position)?;
                self.replay_birth(snapshot.0, &header)?;
                self.insert_snapshot(snapshot, volume, position, *header, internal, created);
            }
            Record::Rollback { volume, position, to } => {
                self.replay_settled(to)?;
                self.replay_jump(volume, position)?;
                self.roll_back(volume, position, to);
            }
            Record::Adopt { volume, position, staging, renew, state } => {
                self.replay_volume(staging)?;
                self.replay_jump(volume, position)?;
                if self.active.has(staging) {
                    return Err(malformed("import in a journal record"));
                }
                self.adopt(volume, staging, position, renew, state);
            }
            Record::Create { .. }
            | Record::Clone { .. }
            | Record::DeleteSnapshot { .. }
            | Record::Stage { .. }
            | Record::Update { .. }
            | Record::Staged { .. } => unreachable!("done by the caller"),
        }
        Ok(())
    }

    fn replay_create(&mut self, id: VolumeId, header: Header) -> Result<(), OpenError> {
        self.replay_birth(id.0, &header)?;
        self.names.insert(header.name.clone(), id);
        self.volumes.insert(id, Volume::new(id, Durable::with_header(header)));
        self.dirty.insert(id.into());
        Ok(())
    }

    /// A new object: its number is nobody's yet.
    fn replay_birth(&mut self, id: u64, header: &Header) -> Result<(), OpenError> {
        let known = self.volumes.contains_key(&VolumeId(id))
            || self.snapshots.contains_key(&SnapshotId(id))
            || self.orphans.contains_key(&crate::units::ObjectId(id));
        if id == 0 || id >> 47 != 0 || known {
            return Err(malformed("number of an object"));
        }
        let object = Object::Volume(Durable::with_header(header.clone()));
        check_object(&self.space.layout, &object)?;
        self.next_object = self.next_object.max(id + 1);
        Ok(())
    }

    /// A volume that is there: its granules, and the sectors of one.
    fn replay_volume(&mut self, id: VolumeId) -> Result<(u64, u64), OpenError> {
        let volume = self.volumes.get(&id).filter(|volume| !volume.deleting);
        let volume = volume.ok_or_else(|| malformed("volume of a journal record"))?;
        let granule = volume.granule();
        let found = (volume.kept.header.size.div_ceil(granule), self.space.layout.per(granule));
        self.dirty.insert(id.into());
        Ok(found)
    }

    fn replay_position(&mut self, id: VolumeId, position: Position) -> Result<(), OpenError> {
        let volume = self.volumes.get_mut(&id).ok_or_else(|| malformed("volume"))?;
        if position.seq.0 >= SEQ_MAX {
            return Err(malformed("position in a journal record"));
        }
        volume.kept.position = position;
        volume.front.position = position;
        Ok(())
    }

    fn replay_known(&self, id: SnapshotId) -> Result<(), OpenError> {
        let known = self.snapshots.get(&id).is_some_and(|snapshot| !snapshot.cut.deleted);
        if known { Ok(()) } else { Err(malformed("snapshot of a journal record")) }
    }

    fn replay_settled(&self, id: SnapshotId) -> Result<(), OpenError> {
        self.replay_known(id)?;
        let settled = self.snapshots[&id].settled;
        if settled { Ok(()) } else { Err(malformed("order of journal records")) }
    }

    /// A volume becomes something else as a whole: everything before was merged.
    fn replay_jump(&mut self, id: VolumeId, position: Position) -> Result<(), OpenError> {
        self.replay_volume(id)?;
        self.replay_position(id, position)?;
        if self.active.has(id) || self.volumes[&id].jump.is_some() {
            return Err(malformed("order of journal records"));
        }
        Ok(())
    }

    fn claim_spans(
        &mut self,
        spans: &[Span],
        granules: u64,
        sectors: u64,
    ) -> Result<(), OpenError> {
        for span in spans {
            let (first, count) = match span {
                Span::Hole { first, count } => (*first, *count),
                Span::Blocks { first, blocks } => (*first, blocks.len() as u64),
            };
            check_run(first, count, granules)?;
            let Span::Blocks { blocks, .. } = span else { continue };
            for block in blocks {
                let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
                let page = self.space.layout.page();
                let known = compress::can_be(block.encoding, extent.sectors, sectors, page);
                if !self.space.layout.holds(extent) || !known {
                    return Err(malformed("place of a block"));
                }
                self.space.claim(extent)?;
            }
        }
        Ok(())
    }
}

/// A run of granules that lies within its volume.
fn check_run(first: Granule, count: u64, granules: u64) -> Result<(), OpenError> {
    match first.0.checked_add(count) {
        Some(end) if count > 0 && end <= granules => Ok(()),
        _ => Err(malformed("range of a journal record")),
    }
}
