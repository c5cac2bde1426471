//! Reads: where the bytes are, fetching them, and not a byte without its checksum.
//!
//! A read that meets a write which is not held yet waits for it: what was read once does not
//! change back after a crash. A place may be given to somebody else while its read is under way;
//! then the checksum does not match, the map says something new, and the read begins anew. Only a
//! mismatch at a place that the map still names is damage.
mod run;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use block::{Buf, ByteLen, ByteOffset, Data, Disk, DiskError};

use crate::compress::{self, Compression};
use crate::error::OpError;
use crate::format::{BlockRecord, Encoding, Entry};
use crate::limits::WRITE_MAX;
use crate::map::{Cursor, Found, PageKey, Tree, lookup};
use crate::overlay::{NoSuchLayer, Update};
use crate::pool::queue::{Edge, Kind, Turn};
use crate::pool::{Pool, Purpose, ReadKey, Reply, RequestId, Subject};
use crate::units::{Checksum, Granule, Slot, SnapshotId, VolumeId, to_usize};
use crate::volume::MapRoot;
use run::Run;

/// Who wants the bytes.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Client(RequestId),
    /// An operation that covers this granule in part.
    Edge {
        number: u64,
        granule: Granule,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Granules before this one were found.
    Resolving(u64),
    /// All were found; their bytes are on the way.
    Fetching,
}

#[derive(Debug)]
struct Read {
    reader: Reader,
    of: Subject,
    offset: ByteOffset,
    len: ByteLen,
    granule: u64,
    first: u64,
    end: u64,
    runs: Vec<Run>,
    phase: Phase,
    cursor: Cursor,
    outstanding: usize,
    attempt: u32,
    /// Good bytes to be written where the granule lies, instead of reading it.
    good: Option<Data>,
    /// A place whose checksum failed, to tell damage from a place that moved on.
    suspect: Option<(u64, BlockRecord)>,
}

#[derive(Debug, Default)]
pub struct Reads {
    reads: Vec<Option<Read>>,
    spare: Vec<usize>,
    ready: VecDeque<ReadKey>,
    /// Bytes that all reads together will return.
    pub bytes: usize,
    /// Reads that wait until a slot is held.
    parked: BTreeMap<Slot, Vec<ReadKey>>,
}

impl Reads {
    fn insert(&mut self, read: Read) {
        let at = self.spare.pop().unwrap_or_else(|| {
            self.reads.push(None);
            self.reads.len() - 1
        });
        self.bytes += to_usize(read.len.0);
        self.reads[at] = Some(read);
        self.ready.push_back(ReadKey(at));
    }

    /// The read that was inserted last.
    fn newest(&mut self) -> &mut Read {
        let ReadKey(at) = *self.ready.back().expect("one was inserted");
        self.reads[at].as_mut().expect("it waits for its turn")
    }

    /// A page came, or turned out to be bad: those that waited for it go on.
    pub fn deliver(&mut self, keys: Vec<ReadKey>, page: PageKey, bytes: Option<Arc<[u8]>>) {
        for key in keys {
            // A pool that failed has answered its reads already.
            let Some(read) = self.reads.get_mut(key.0).and_then(Option::as_mut) else {
                continue;
            };
            if let Some(bytes) = &bytes {
                read.cursor.deliver(page, Arc::clone(bytes));
            }
            self.ready.push_back(key);
        }
    }

    pub fn wake_held(&mut self, held: Slot) {
        while let Some(entry) = self.parked.first_entry().filter(|entry| *entry.key() <= held) {
            self.ready.extend(entry.remove());
        }
    }

    pub fn under_way(&self) -> usize {
        self.reads.len() - self.spare.len()
    }

    pub fn drain(&mut self) -> impl Iterator<Item = RequestId> + use<> {
        self.ready.clear();
        self.parked.clear();
        let waiting: Vec<RequestId> = self
            .reads
            .iter()
            .flatten()
            .filter_map(|read| match read.reader {
                Reader::Client(id) => Some(id),
                Reader::Edge { .. } => None,
            })
            .collect();
        self.reads.clear();
        self.spare.clear();
        self.bytes = 0;
        waiting.into_iter()
    }
}

enum Where {
    Hole,
    Block(BlockRecord),
    /// Not to be seen before this slot is held.
    Held(Slot),
    Page,
    Bad(OpError),
}

impl<D: Disk> Pool<D> {
    pub(super) fn accept_read(
        &mut self,
        id: RequestId,
        of: Subject,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<(), OpError> {
        let granule = self.check_range(of, offset, len)?;
        if len.0 > WRITE_MAX {
            return Err(OpError::TooLong { len });
        }
        self.room_for_reads()?;
        self.counters.reads += 1;
        self.start_read(Reader::Client(id), of, offset, len, granule);
        Ok(())
    }

    fn room_for_reads(&self) -> Result<(), OpError> {
        let full = self.reads.under_way() + self.mending >= self.limits.queue_ops
            || self.reads.bytes >= self.limits.queue_bytes;
        if full { Err(OpError::Busy) } else { Ok(()) }
    }

    /// Finds where a granule lies, to write good bytes over a bad copy.
    pub(super) fn accept_repair(
        &mut self,
        id: RequestId,
        of: Subject,
        offset: ByteOffset,
        data: Data,
    ) -> Result<(), OpError> {
        let len = ByteLen(data.len() as u64);
        let granule = self.check_range(of, offset, len)?;
        let size = match of {
            Subject::Volume(id) => self.volumes[&id].front.size,
            Subject::Snapshot(id) => self.snapshots[&id].cut.header.size,
        };
        let whole = len.0 == granule || len.0 < granule && offset.0 + len.0 == size;
        if !offset.0.is_multiple_of(granule) || !whole {
            return Err(OpError::NotAGranule { granule });
        }
        self.room_for_reads()?;
        let mut good = self.device.buffer(to_usize(granule));
        good.fill(0);
        good[..data.len()].copy_from_slice(&data);
        self.start_read(Reader::Client(id), of, offset, len, granule);
        self.reads.newest().good = Some(good.into_data());
        Ok(())
    }

    /// The place was found: the bytes go there if they are what was stored.
    fn repair(&mut self, key: ReadKey, read: &mut Read, good: Data) {
        let Reader::Client(id) = read.reader else { unreachable!("only clients repair") };
        let block = read.runs.first().map(|run| run.blocks[0]);
        let stored = block.and_then(|block| Some((block, as_stored(block.encoding, good)?)));
        let right = stored.filter(|(block, bytes)| Checksum::of(bytes) == block.checksum);
        let (len, reader) = (read.len, read.reader);
        let Some((block, good)) = right else {
            let (of, offset) = (read.of, read.offset);
            return self.end_read(key, len, reader, Err(OpError::OtherBytes { of, offset }));
        };
        self.forget_read(key, len);
        self.mending += 1;
        let at = self.space.layout.offset(block.place);
        self.device.write(at, good, Purpose::Repair(id));
    }

    fn start_read(
        &mut self,
        reader: Reader,
        of: Subject,
        offset: ByteOffset,
        len: ByteLen,
        granule: u64,
    ) {
        self.reads.insert(Read {
            reader,
            of,
            offset,
            len,
            granule,
            first: offset.0 / granule,
            end: (offset.0 + len.0).div_ceil(granule),
            runs: Vec::new(),
            phase: Phase::Resolving(offset.0 / granule),
            cursor: Cursor::default(),
            outstanding: 0,
            attempt: 0,
            good: None,
            suspect: None,
        });
    }

    /// Starts reading the old bytes that an operation needs, unless one before it changes them.
    pub(super) fn read_edges(&mut self, number: u64) {
        let Some(op) = self.queue.get(number) else {
            return;
        };
        let Kind::Change(change) = &op.kind else {
            return;
        };
        let volume = change.volume;
        let wanted: Vec<Granule> = change
            .edges
            .iter()
            .filter_map(|edge| match edge {
                Edge::Wanted(granule) => Some(*granule),
                _ => None,
            })
            .collect();
        for granule in wanted {
            if self.queue.changes_before(number, volume, granule) {
                continue;
            }
            self.set_edge(number, granule, Edge::Reading(granule));
            let len = self.volumes[&volume].granule();
            let reader = Reader::Edge { number, granule };
            let (of, at) = (Subject::Volume(volume), ByteOffset(granule.0 * len));
            self.start_read(reader, of, at, ByteLen(len), len);
            self.counters.merged_writes += 1;
        }
    }

    fn set_edge(&mut self, number: u64, granule: Granule, to: Edge) {
        if let Some(op) = self.queue.get(number)
            && let Kind::Change(change) = &mut op.kind
            && let Some(edge) = change.edges.iter_mut().find(|e| e.granule() == Some(granule))
        {
            *edge = to;
        }
    }

    /// Whether the operation in front has its old bytes. One whose old bytes are damaged is
    /// answered here, and changes nothing.
    pub(super) fn edges_ready(&mut self, number: u64) -> Turn {
        self.read_edges(number);
        let Some(op) = self.queue.front() else { return Turn::Wait };
        let Kind::Change(change) = &mut op.kind else { return Turn::Ready };
        let failed = change.edges.iter().find_map(|edge| match edge {
            Edge::Failed(error) => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = failed {
            self.refuse_front(error);
            return Turn::Answered;
        }
        let ready = change.edges.iter().all(|edge| matches!(edge, Edge::Ready(..)));
        if ready { Turn::Ready } else { Turn::Wait }
    }

    pub(super) fn run_reads(&mut self) {
        while let Some(key) = self.reads.ready.pop_front() {
            let Some(mut read) = self.reads.reads[key.0].take() else {
                continue;
            };
            if let Phase::Resolving(from) = read.phase {
                match self.resolve(key, &mut read, from) {
                    Ok(true) => match read.good.take() {
                        Some(good) => {
                            self.repair(key, &mut read, good);
                            continue;
                        }
                        None => self.fetch(key, &mut read),
                    },
                    Ok(false) => {
                        self.reads.reads[key.0] = Some(read);
                        continue;
                    }
                    Err(error) => {
                        self.end_read(key, read.len, read.reader, Err(error));
                        continue;
                    }
                }
            }
            if read.outstanding > 0 {
                self.reads.reads[key.0] = Some(read);
            } else {
                self.verify(key, read);
            }
        }
    }

    /// Finds every granule from `from` on. `false` when something has to be waited for.
    ///
    /// What was found before the wait stays: it was the newest at some moment of this read, and
    /// if its place was given away since, the checksum will tell.
    fn resolve(&mut self, key: ReadKey, read: &mut Read, from: u64) -> Result<bool, OpError> {
        for granule in from..read.end {
            match self.find(key, read, Granule(granule)) {
                Where::Hole => {}
                Where::Block(block) => match read.runs.last_mut() {
                    Some(run) if run.continues(granule, block) => run.blocks.push(block),
                    _ => read.runs.push(Run::new(granule, block)),
                },
                Where::Held(slot) => {
                    self.reads.parked.entry(slot).or_default().push(key);
                    read.phase = Phase::Resolving(granule);
                    return Ok(false);
                }
                Where::Page => {
                    read.phase = Phase::Resolving(granule);
                    return Ok(false);
                }
                Where::Bad(error) => return Err(error),
            }
        }
        if let Some((granule, block)) = read.suspect.take()
            && read.runs.iter().any(|run| run.block(granule) == Some(block))
        {
            let offset = ByteOffset(granule * read.granule);
            self.counters.damaged_blocks += 1;
            return Err(OpError::Damaged { of: read.of, offset });
        }
        read.phase = Phase::Fetching;
        Ok(true)
    }

    fn find(&mut self, key: ReadKey, read: &mut Read, granule: Granule) -> Where {
        let (of, len) = (read.of, read.granule);
        let (map, recent) = match of {
            Subject::Volume(id) => match self.newest_of_volume(id, granule) {
                Some((_, _, jumped)) if jumped > self.held => return Where::Held(jumped),
                Some((map, recent, _)) => (map, recent),
                None => return Where::Bad(OpError::UnknownVolume { volume: id }),
            },
            Subject::Snapshot(id) => match self.newest_of_snapshot(id, granule) {
                Some(found) => found,
                None => return Where::Bad(OpError::UnknownSnapshot { snapshot: id }),
            },
        };
        match recent {
            Some(Update::Block { slot, .. } | Update::Hole { slot, .. }) if slot > self.held => {
                return Where::Held(slot);
            }
            Some(Update::Block { block, .. }) => return Where::Block(block),
            Some(Update::Hole { .. }) => return Where::Hole,
            None => {}
        }
        let tree = Tree { root: map.root, height: map.height, epoch: self.superblock.epoch };
        match lookup(tree, granule, &mut read.cursor, key, &mut self.pages, &mut self.device) {
            Found::Entry(Entry::Hole { .. }) => Where::Hole,
            Found::Entry(Entry::Block(block)) => {
                let (whole, page) = (self.space.layout.per(len), self.space.layout.page());
                if !compress::can_be(block.encoding, u64::from(block.sectors), whole, page) {
                    let offset = ByteOffset(granule.0 * len);
                    return Where::Bad(OpError::Damaged { of, offset });
                }
                Where::Block(BlockRecord {
                    place: block.place,
                    sectors: block.sectors,
                    encoding: block.encoding,
                    checksum: block.checksum,
                })
            }
            Found::Wait => Where::Page,
            Found::Bad(problem) => Where::Bad(OpError::MapDamaged { of, problem }),
        }
    }

    /// The map of a volume, what came for a granule since, and the slot by which the volume became
    /// something else as a whole, if no checkpoint has finished that.
    fn newest_of_volume(
        &self,
        id: VolumeId,
        granule: Granule,
    ) -> Option<(MapRoot, Option<Update>, Slot)> {
        // A volume that was deleted meanwhile has lost its newest updates already.
        let volume = self.volumes.get(&id).filter(|volume| !volume.deleting)?;
        let overlays = [Some(&self.active), self.frozen.as_ref()];
        let recent = overlays.into_iter().flatten().find_map(|overlay| overlay.get(id, granule));
        Some((volume.kept.map, recent, volume.jump.map_or(Slot(0), |jump| jump.slot)))
    }

    /// The map of a snapshot; as long as it has none, that of its volume, and what came between.
    fn newest_of_snapshot(
        &self,
        id: SnapshotId,
        granule: Granule,
    ) -> Option<(MapRoot, Option<Update>)> {
        let snapshot = self.snapshots.get(&id).filter(|snapshot| !snapshot.cut.deleted)?;
        if snapshot.settled {
            return Some((snapshot.cut.map, None));
        }
        let volume = snapshot.cut.volume;
        let frozen = self.frozen.as_ref();
        let recent = match self.active.get_in(volume, id, granule) {
            // Sealed since the freeze: all of what was frozen lies below it.
            Ok(found) => found.or_else(|| frozen?.get(volume, granule)),
            Err(NoSuchLayer) => frozen?.get_in(volume, id, granule).ok()?,
        };
        Some((self.volumes.get(&volume)?.kept.map, recent))
    }

    fn fetch(&mut self, key: ReadKey, read: &mut Read) {
        for (at, run) in read.runs.iter().enumerate() {
            let len = run.stored(&self.space.layout);
            let purpose = Purpose::Read { key, attempt: read.attempt, run: at };
            self.device.read_sectors(run.blocks[0].place, len, purpose);
            read.outstanding += 1;
        }
    }

    pub(super) fn fetched(
        &mut self,
        key: ReadKey,
        attempt: u32,
        run: usize,
        result: Result<Option<Buf>, DiskError>,
    ) {
        // A pool that failed has answered its reads already.
        let Some(read) = self.reads.reads.get_mut(key.0).and_then(Option::as_mut) else {
            return;
        };
        assert_eq!(attempt, read.attempt, "a read begins anew only when all of it came back");
        read.runs[run].bytes = Some(result.map(|buf| buf.expect("a read returns its buffer")));
        read.outstanding -= 1;
        if read.outstanding == 0 {
            self.reads.ready.push_back(key);
        }
    }

    /// Everything came back: is it what the map says?
    fn verify(&mut self, key: ReadKey, mut read: Read) {
        let mut bad = None;
        for run in &read.runs {
            let bytes = match run.bytes.as_ref().expect("every run came back") {
                Ok(bytes) => bytes,
                Err(error) => {
                    let error = OpError::Device(error.clone());
                    return self.end_read(key, read.len, read.reader, Err(error));
                }
            };
            bad = bad.or_else(|| run.mismatch(&self.space.layout, bytes));
        }
        if bad.is_some() {
            self.counters.reads_begun_anew += 1;
            read.suspect = bad;
            read.runs.clear();
            read.phase = Phase::Resolving(read.first);
            read.attempt += 1;
            self.reads.reads[key.0] = Some(read);
            self.reads.ready.push_back(key);
            return;
        }
        let data = self.assemble(&mut read);
        self.end_read(key, read.len, read.reader, data);
    }

    /// The bytes that were asked for: the run itself where it is one, else put together.
    fn assemble(&mut self, read: &mut Read) -> Result<Data, OpError> {
        let granule = read.granule;
        let from = to_usize(read.offset.0 - read.first * granule);
        let wanted = from..from + to_usize(read.len.0);
        let whole = to_usize(read.end - read.first);
        if let [run] = read.runs.as_mut_slice()
            && run.blocks.len() == whole
            && run.is_raw()
        {
            let buf = run.bytes.take().and_then(Result::ok).expect("it was verified");
            return Ok(buf.into_data().slice(wanted));
        }
        let mut buf = self.device.buffer(whole * to_usize(granule));
        buf.fill(0);
        for run in &mut read.runs {
            let bytes = run.bytes.take().and_then(Result::ok).expect("it was verified");
            let at = to_usize(run.first - read.first) * to_usize(granule);
            let len = run.blocks.len() * to_usize(granule);
            let unpacked = run.unpack(&self.space.layout, &bytes, &mut buf[at..at + len]);
            self.device.bufs.give(bytes);
            if let Err(at) = unpacked {
                // Its checksum is good, so nobody else was given its place: it was never right.
                self.counters.damaged_blocks += 1;
                let offset = ByteOffset(at * granule);
                return Err(OpError::Damaged { of: read.of, offset });
            }
        }
        Ok(buf.into_data().slice(wanted))
    }

    fn end_read(
        &mut self,
        key: ReadKey,
        len: ByteLen,
        reader: Reader,
        result: Result<Data, OpError>,
    ) {
        self.forget_read(key, len);
        match reader {
            Reader::Client(id) => self.answer(id, result.map(Reply::Read)),
            Reader::Edge { number, granule } => {
                let edge = match result {
                    Ok(data) => Edge::Ready(granule, data.into_buf().expect("nobody else has it")),
                    Err(error) => Edge::Failed(error),
                };
                self.set_edge(number, granule, edge);
                self.edges_arrived = true;
            }
        }
    }

    fn forget_read(&mut self, key: ReadKey, len: ByteLen) {
        self.reads.bytes -= to_usize(len.0);
        self.reads.reads[key.0] = None;
        self.reads.spare.push(key.0);
    }

    /// Memory for the data of a write: the device may know it already, which makes IO cheaper.
    pub fn buffer(&mut self, len: usize) -> Buf {
        self.device.buffer(len)
    }

    /// Memory of an answered read, for the next one.
    pub fn recycle(&mut self, data: Data) {
        self.device.recycle(data);
    }
}

/// The bytes that a granule is stored as. Encoders always give the same.
fn as_stored(encoding: Encoding, granule: Data) -> Option<Data> {
    if encoding == Encoding::Raw {
        return Some(granule);
    }
    let (_, stored) = compress::encode(Compression::from_byte(encoding.byte())?, &granule)?;
    Some(Buf::copy_of(&stored).into_data())
}
