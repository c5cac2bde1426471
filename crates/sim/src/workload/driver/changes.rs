//! What can be done to a volume without any snapshot.
use block::{ByteLen, ByteOffset, Data, Position};
use engine::{
    BlockSize, Checksum, Compression, GranuleSums, Op, SnapshotsOfDeleted, VolumeId, VolumeSpec,
    Zeroing,
};

use super::super::change::Change;
use super::super::history::{SECTOR, content};
use super::answers::Asked;
use super::{Driver, Front, Outcome};

impl Driver {
    pub(super) fn create(&mut self) {
        let _ = self.settle();
        let block_size = *self.rng.pick(&[512, 512, 4096, 4096, 4096, 8192, 65536, 131072]);
        let blocks = match self.mix.huge {
            true if self.rng.chance(1, 2) => (1 << 40) / block_size + self.rng.below(1000),
            _ => 1 + self.rng.below((2 << 20) / block_size),
        };
        let size = blocks * block_size;
        if let Some((id, front)) = self.create_of(size, block_size) {
            self.volumes.insert(id, front);
            self.paths.add("create", 1);
        }
    }

    /// A new volume of a size in bytes, if there is space for it.
    pub(super) fn create_of(&mut self, size: u64, block_size: u64) -> Option<(VolumeId, Front)> {
        let (name, uid) = self.fresh_name("volume");
        let compression = compression_for(size / block_size + self.next_name);
        let raw = compression == Compression::Off || block_size <= 4096;
        let spec = VolumeSpec {
            name: name.clone(),
            size: ByteLen(size),
            block_size: BlockSize::new(block_size).expect("a legal block size"),
            compression,
            uid,
        };
        let volume = VolumeId(self.history.unanswered());
        let change = Change::Create { volume, name, uid, size, block_size, raw };
        let index = self.change_alone(Op::Create { spec }, change, None)?;
        let id = self.history.entries[index].change.volume();
        Some((id, Front { size: size / SECTOR, block: block_size, attached: false }))
    }

    /// A volume goes, in one of the ways that its snapshots and its user allow.
    pub(super) fn delete(&mut self) {
        let (volume, _) = self.volume();
        let snapshots = match self.mix.snapshots {
            true => match self.way_to_delete(volume) {
                Some(way) => way,
                None => return,
            },
            false => SnapshotsOfDeleted::Refuse,
        };
        self.volumes.remove(&volume);
        self.paths.add("delete", 1);
        let change = Change::Delete { volume, snapshots };
        self.ask_change(Op::Delete { volume, snapshots }, change, None);
    }

    fn way_to_delete(&mut self, volume: VolumeId) -> Option<SnapshotsOfDeleted> {
        use SnapshotsOfDeleted::{Delete, Keep, Refuse};
        if self.settle() == Outcome::Stopped {
            return None;
        }
        if self.volumes[&volume].attached {
            self.expect_attached(Op::Delete { volume, snapshots: Delete });
            return None;
        }
        let has_some = !self.history.settled().visible_of(volume).is_empty();
        let way = *self.rng.pick(&[Refuse, Keep, Delete]);
        match (way, has_some) {
            (Refuse, true) => {
                self.expect_has_snapshots(Op::Delete { volume, snapshots: Refuse });
                None
            }
            (Keep, true) => {
                self.paths.add("volume deleted with snapshots kept", 1);
                Some(Keep)
            }
            (Delete, true) => {
                self.paths.add("volume deleted with snapshots", 1);
                Some(Delete)
            }
            (way, false) => Some(way),
        }
    }

    pub(super) fn grow(&mut self) {
        let (volume, size) = self.volume();
        let block = self.volumes[&volume].block;
        let blocks = match self.rng.below(3) {
            0 => 0,
            1 => 1 + self.rng.below(200),
            _ => self.rng.below(1 << 22),
        };
        let new = size * SECTOR + blocks * block;
        let position = self.some_position(volume);
        self.volumes.entry(volume).and_modify(|front| front.size = new / SECTOR);
        self.paths.add("grow", 1);
        let op = Op::Grow { volume, position, size: ByteLen(new) };
        self.ask_change(op, Change::Grow { volume, size: new }, position);
    }

    pub(super) fn set_state(&mut self) {
        let (volume, _) = self.volume();
        self.set_state_of(volume);
    }

    pub(super) fn set_state_of(&mut self, volume: VolumeId) {
        let mut state = vec![0; self.rng.index(300)];
        self.rng.fill(&mut state);
        let position = self.some_position(volume);
        self.paths.add("set state", 1);
        let op = Op::SetState { volume, position, state: state.clone() };
        self.ask_change(op, Change::SetState { volume, state }, position);
        self.credit_of(volume);
    }

    /// Promises a volume something, or takes it back. Not drawn from the seed, so that its story
    /// stays the same.
    fn credit_of(&mut self, volume: VolumeId) {
        let number = self.history.entries.len() as u64;
        if self.mix.fill || number.is_multiple_of(2) {
            return;
        }
        let bytes = ByteLen(number % 5 * (100 << 10));
        self.paths.add("credit", 1);
        self.ask_change(Op::Credit { volume, bytes }, Change::Credit { volume }, None);
    }

    pub(super) fn mark(&mut self) {
        let (volume, _) = self.volume();
        self.mark_of(volume);
    }

    pub(super) fn mark_of(&mut self, volume: VolumeId) {
        let position = self.position(volume);
        self.paths.add("mark", 1);
        self.ask_change(Op::Mark { volume, position }, Change::Mark { volume }, Some(position));
    }

    pub(super) fn flush(&mut self) {
        self.paths.add("flush", 1);
        let before = self.history.entries.len();
        self.ask(Op::Flush, Asked::Flush(before));
    }

    pub(super) fn write(&mut self) {
        let (volume, size) = self.volume();
        let (first, count) = self.range(size, self.mix.write_max);
        let position = self.position(volume);
        let number = self.history.number(self.history.entries.len());
        let mut bytes = vec![0; usize::try_from(count * SECTOR).expect("a write is small")];
        for (sector, part) in (first..).zip(bytes.chunks_exact_mut(512)) {
            content(sector, number, part);
        }
        self.note_refill(volume, first, count);
        let offset = ByteOffset(first * SECTOR);
        let op = self.write_op(volume, position, offset, Data::copy_of(&bytes));
        self.ask_change(op, Change::Write { volume, first, count }, Some(position));
    }

    /// Every other one brings its checksums along. Not drawn from the seed, so that its story stays
    /// the same.
    fn write_op(
        &mut self,
        volume: VolumeId,
        position: Position,
        offset: ByteOffset,
        data: Data,
    ) -> Op {
        if position.seq.0.is_multiple_of(2) {
            return Op::Write { volume, position, offset, data };
        }
        self.paths.add("write with checksums", 1);
        let granule = self.volumes[&volume].per() * SECTOR;
        let (mut sums, mut from) = (Vec::new(), 0);
        while from < data.len() {
            let at = offset.0 + from as u64;
            let len = usize::try_from(granule - at % granule).expect("a granule is small");
            let to = (from + len).min(data.len());
            sums.push(Checksum::of(&data[from..to]).0);
            from = to;
        }
        let sums = match sums.as_slice() {
            [only] => GranuleSums::One(*only),
            _ => GranuleSums::Many(sums.into()),
        };
        let granule = ByteLen(granule);
        Op::WriteChecked { volume, position, offset, data, granule, sums }
    }

    /// A large write at a random place: a pool that is small fills up soon.
    pub(super) fn fill(&mut self) {
        let max = std::mem::replace(&mut self.mix.write_max, 2048);
        self.write();
        self.mix.write_max = max;
    }

    pub(super) fn zero(&mut self, how: Zeroing) {
        let (volume, size) = self.volume();
        let max = match self.rng.below(4) {
            0 => size,
            1 => 4096,
            _ => 64,
        };
        let (first, count) = self.range(size, max);
        let position = self.position(volume);
        self.paths.add("zero", 1);
        let (offset, len) = (ByteOffset(first * SECTOR), ByteLen(count * SECTOR));
        let op = Op::Zero { volume, position, offset, len, how };
        self.ask_change(op, Change::Zero { volume, first, count }, Some(position));
    }

    pub(super) fn read(&mut self) {
        let (volume, size) = self.volume();
        let (first, count) = self.range(size, self.mix.write_max.min(512));
        self.read_range(volume, first, count);
    }

    pub(super) fn read_range(&mut self, volume: VolumeId, first: u64, count: u64) {
        let view = self.history.view(volume, first, count);
        let (offset, len) = (ByteOffset(first * SECTOR), ByteLen(count * SECTOR));
        self.ask(Op::Read { volume, offset, len }, Asked::Read(view));
        self.extents_beside(volume, first, count);
    }
}

/// How a volume compresses. Not drawn from the seed, so that its story stays the same.
fn compression_for(number: u64) -> Compression {
    let names = ["off", "lz4", "off", "gzip-1", "zle", "lzjb"];
    let at = usize::try_from(number % names.len() as u64).expect("small");
    names[at].parse().expect("a known name")
}
