//! Reads: where the bytes are, fetching them, and not a byte without its checksum.
//!
//! A read that meets a write which is not held yet waits for it: what was read once does not
//! change back after a crash. A place may be given to somebody else while its read is under way;
//! then the checksum does not match, the map says something new, and the read begins anew. Only a
//! mismatch at a place that the map still names is damage.
mod edges;
mod extents;
mod find;
mod repair;
mod run;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use block::{Buf, ByteLen, ByteOffset, Data, Disk, DiskError};

use crate::error::OpError;
use crate::format::BlockRecord;
use crate::limits::WRITE_MAX;
use crate::map::{Cursor, PageKey};
use crate::pool::queue::Edge;
use crate::pool::{Pool, Purpose, ReadKey, Reply, RequestId, Subject};
use crate::units::{Granule, Slot, to_usize};
use run::Run;

pub use extents::Extent;

/// What is wanted, and by whom.
#[derive(Debug)]
enum Goal {
    /// A client wants the bytes.
    Bytes(RequestId),
    /// An operation that covers this granule in part wants its old bytes.
    Edge { number: u64, granule: Granule },
    /// Good bytes are to be written where the granule lies, instead of reading it.
    Mend(RequestId, Data),
    /// Where there is data, as far as it was found; none of it is fetched.
    Extents(RequestId, Vec<Extent>),
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
    goal: Goal,
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
    /// A place whose checksum failed, to tell damage from a place that moved on.
    suspect: Option<(u64, BlockRecord)>,
}

impl Read {
    /// Memory that its answer takes.
    fn bytes(&self) -> usize {
        match self.goal {
            Goal::Bytes(_) | Goal::Edge { .. } | Goal::Mend(..) => to_usize(self.len.0),
            Goal::Extents(..) => 0,
        }
    }

    /// A granule is here, or nowhere.
    fn found(&mut self, granule: u64, block: Option<BlockRecord>) {
        if let Goal::Extents(_, extents) = &mut self.goal {
            let (from, to) = (granule * self.granule, (granule + 1) * self.granule);
            let (start, end) = (self.offset.0, self.offset.0 + self.len.0);
            let len = ByteLen(to.min(end) - from.max(start));
            return extents::add(extents, len, block.is_some());
        }
        let Some(block) = block else { return };
        match self.runs.last_mut() {
            Some(run) if run.continues(granule, block) => run.blocks.push(block),
            _ => self.runs.push(Run::new(granule, block)),
        }
    }
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
        self.bytes += read.bytes();
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
            .filter_map(|read| match read.goal {
                Goal::Bytes(id) | Goal::Mend(id, _) | Goal::Extents(id, _) => Some(id),
                Goal::Edge { .. } => None,
            })
            .collect();
        self.reads.clear();
        self.spare.clear();
        self.bytes = 0;
        waiting.into_iter()
    }
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
        self.start_read(Goal::Bytes(id), of, offset, len, granule);
        Ok(())
    }

    fn room_for_reads(&self) -> Result<(), OpError> {
        let full = self.reads.under_way() + self.mending >= self.limits.queue_ops
            || self.reads.bytes >= self.limits.queue_bytes;
        if full { Err(OpError::Busy) } else { Ok(()) }
    }

    fn start_read(
        &mut self,
        goal: Goal,
        of: Subject,
        offset: ByteOffset,
        len: ByteLen,
        granule: u64,
    ) {
        self.reads.insert(Read {
            goal,
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
            suspect: None,
        });
    }

    pub(super) fn run_reads(&mut self) {
        while let Some(key) = self.reads.ready.pop_front() {
            let Some(mut read) = self.reads.reads[key.0].take() else {
                continue;
            };
            if let Phase::Resolving(from) = read.phase {
                match self.resolve(key, &mut read, from) {
                    Ok(true) => match read.goal {
                        Goal::Bytes(_) | Goal::Edge { .. } => self.fetch(key, &mut read),
                        Goal::Mend(..) => {
                            self.repair(key, read);
                            continue;
                        }
                        Goal::Extents(..) => {
                            self.end_extents(key, read);
                            continue;
                        }
                    },
                    Ok(false) => {
                        self.reads.reads[key.0] = Some(read);
                        continue;
                    }
                    Err(error) => {
                        self.end_read(key, read, Err(error));
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
                    return self.end_read(key, read, Err(error));
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
        self.end_read(key, read, data);
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

    fn end_read(&mut self, key: ReadKey, read: Read, result: Result<Data, OpError>) {
        self.forget_read(key, read.bytes());
        match read.goal {
            Goal::Bytes(id) | Goal::Mend(id, _) | Goal::Extents(id, _) => {
                self.answer(id, result.map(Reply::Read));
            }
            Goal::Edge { number, granule } => {
                let edge = match result {
                    Ok(data) => Edge::Ready(granule, data.into_buf().expect("nobody else has it")),
                    Err(error) => Edge::Failed(error),
                };
                self.set_edge(number, granule, edge);
                self.edges_arrived = true;
            }
        }
    }

    fn forget_read(&mut self, key: ReadKey, bytes: usize) {
        self.reads.bytes -= bytes;
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
