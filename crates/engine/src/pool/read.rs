//! Reads: where the bytes are, fetching them, and not a byte without its checksum.
//!
//! A read that meets a write which is not held yet waits for it: what was read once does not
//! change back after a crash. A place may be given to somebody else while its read is under way;
//! then the checksum does not match, the map says something new, and the read begins anew. Only a
//! mismatch at a place that the map still names is damage.
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use block::{Buf, ByteLen, ByteOffset, Data, Disk, DiskError};

use crate::error::OpError;
use crate::format::{BlockRecord, Encoding, Entry};
use crate::limits::WRITE_MAX;
use crate::map::{Cursor, Found, PageKey, Tree, lookup};
use crate::overlay::Update;
use crate::pool::queue::{Edge, Kind, Turn};
use crate::pool::{Pool, Purpose, ReadKey, Reply, RequestId};
use crate::units::{Checksum, Granule, Slot, VolumeId, to_usize};

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

/// Granules that lie next to one another on the device, read with one IO.
#[derive(Debug)]
struct Run {
    first: u64,
    blocks: Vec<BlockRecord>,
    bytes: Option<Result<Buf, DiskError>>,
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
    volume: VolumeId,
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
        volume: VolumeId,
        offset: ByteOffset,
        len: ByteLen,
    ) -> Result<(), OpError> {
        let granule = self.check_range(volume, offset, len)?;
        if len.0 > WRITE_MAX {
            return Err(OpError::TooLong { len });
        }
        if self.reads.under_way() >= self.limits.queue_ops
            || self.reads.bytes >= self.limits.queue_bytes
        {
            return Err(OpError::Busy);
        }
        self.counters.reads += 1;
        self.start_read(Reader::Client(id), volume, offset, len, granule);
        Ok(())
    }

    fn start_read(
        &mut self,
        reader: Reader,
        volume: VolumeId,
        offset: ByteOffset,
        len: ByteLen,
        granule: u64,
    ) {
        self.reads.insert(Read {
            reader,
            volume,
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
            self.start_read(reader, volume, ByteOffset(granule.0 * len), ByteLen(len), len);
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
                    Ok(true) => self.fetch(key, &mut read),
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
                    _ => read.runs.push(Run { first: granule, blocks: vec![block], bytes: None }),
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
            return Err(OpError::Damaged { volume: read.volume, offset });
        }
        read.phase = Phase::Fetching;
        Ok(true)
    }

    fn find(&mut self, key: ReadKey, read: &mut Read, granule: Granule) -> Where {
        let (id, len) = (read.volume, read.granule);
        // A volume that was deleted meanwhile has lost its newest updates already.
        let Some(volume) = self.volumes.get(&id).filter(|volume| !volume.kept.deleting) else {
            return Where::Bad(OpError::UnknownVolume { volume: id });
        };
        let tree = Tree {
            root: volume.kept.root,
            height: volume.kept.height,
            epoch: self.superblock.epoch,
        };
        let overlays = [Some(&self.active), self.frozen.as_ref()];
        let recent = overlays.into_iter().flatten().find_map(|overlay| overlay.get(id, granule));
        match recent {
            Some(Update::Block { slot, .. } | Update::Hole { slot, .. }) if slot > self.held => {
                return Where::Held(slot);
            }
            Some(Update::Block { block, .. }) => return Where::Block(block),
            Some(Update::Hole { .. }) => return Where::Hole,
            None => {}
        }
        match lookup(tree, granule, &mut read.cursor, key, &mut self.pages, &mut self.device) {
            Found::Entry(Entry::Hole { .. }) => Where::Hole,
            Found::Entry(Entry::Block(block)) if self.carried.hides(id, granule, block.changed) => {
                Where::Hole
            }
            Found::Entry(Entry::Block(block)) => {
                let expected = self.space.layout.per(len);
                if block.encoding != Encoding::Raw || u64::from(block.sectors) != expected {
                    let offset = ByteOffset(granule.0 * len);
                    return Where::Bad(OpError::Damaged { volume: id, offset });
                }
                Where::Block(BlockRecord {
                    place: block.place,
                    sectors: block.sectors,
                    encoding: block.encoding,
                    checksum: block.checksum,
                })
            }
            Found::Wait => Where::Page,
            Found::Bad(problem) => Where::Bad(OpError::MapDamaged { volume: id, problem }),
        }
    }

    fn fetch(&mut self, key: ReadKey, read: &mut Read) {
        for (at, run) in read.runs.iter().enumerate() {
            let len = run.blocks.len() * to_usize(read.granule);
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
        let granule = to_usize(read.granule);
        let mut bad = None;
        for run in &read.runs {
            let bytes = match run.bytes.as_ref().expect("every run came back") {
                Ok(bytes) => bytes,
                Err(error) => {
                    let error = OpError::Device(error.clone());
                    return self.end_read(key, read.len, read.reader, Err(error));
                }
            };
            for (at, block) in run.blocks.iter().enumerate() {
                let part = &bytes[at * granule..(at + 1) * granule];
                if Checksum::of(part) != block.checksum {
                    bad = Some((run.first + at as u64, *block));
                }
            }
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
        self.end_read(key, read.len, read.reader, Ok(data));
    }

    /// The bytes that were asked for: the run itself where it is one, else put together.
    fn assemble(&mut self, read: &mut Read) -> Data {
        let granule = read.granule;
        let from = to_usize(read.offset.0 - read.first * granule);
        let wanted = from..from + to_usize(read.len.0);
        let whole = to_usize(read.end - read.first);
        if let [run] = read.runs.as_mut_slice()
            && run.blocks.len() == whole
        {
            let buf = run.bytes.take().and_then(Result::ok).expect("it was verified");
            return buf.into_data().slice(wanted);
        }
        let mut buf = self.device.buffer(whole * to_usize(granule));
        buf.fill(0);
        for run in &mut read.runs {
            let bytes = run.bytes.take().and_then(Result::ok).expect("it was verified");
            let at = to_usize(run.first - read.first) * to_usize(granule);
            buf[at..at + bytes.len()].copy_from_slice(&bytes);
            self.device.bufs.give(bytes);
        }
        buf.into_data().slice(wanted)
    }

    fn end_read(
        &mut self,
        key: ReadKey,
        len: ByteLen,
        reader: Reader,
        result: Result<Data, OpError>,
    ) {
        self.reads.bytes -= to_usize(len.0);
        self.reads.reads[key.0] = None;
        self.reads.spare.push(key.0);
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

    /// Memory for the data of a write: the device may know it already, which makes IO cheaper.
    pub fn buffer(&mut self, len: usize) -> Buf {
        self.device.buffer(len)
    }

    /// Memory of an answered read, for the next one.
    pub fn recycle(&mut self, data: Data) {
        self.device.recycle(data);
    }
}

impl Run {
    fn continues(&self, granule: u64, block: BlockRecord) -> bool {
        let last = self.blocks.last().expect("a run is not empty");
        self.first + self.blocks.len() as u64 == granule
            && last.place.0 + u64::from(last.sectors) == block.place.0
    }

    fn block(&self, granule: u64) -> Option<BlockRecord> {
        let at = usize::try_from(granule.checked_sub(self.first)?).ok()?;
        self.blocks.get(at).copied()
    }
}
