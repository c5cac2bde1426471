//! What an operation will store, compressed where its volume asks for it.
//!
//! That is found out once, when the operation's turn has come: its old bytes are there and nothing
//! changes them any more, and just as much space is looked for as it takes.
use block::{Buf, Data, Disk};

use crate::compress::{self, Compression, PAGE};
use crate::format::{BlockRecord, Encoding, Span};
use crate::pool::change::{is_zero, push_block, take_edge};
use crate::pool::queue::{Change, Content, Edge, Kind, Queued};
use crate::pool::seal::Batch;
use crate::pool::{Counters, Pool};
use crate::units::{Checksum, Extent, Granule, to_usize};

/// How the granules of an operation will be stored.
#[derive(Debug, Default)]
pub enum Packing {
    #[default]
    Untried,
    /// As they are.
    Raw,
    /// As these blocks, in order. Every other granule of the operation becomes a hole.
    Blocks(Vec<Packed>),
}

/// A granule that is ready to be stored.
#[derive(Debug)]
pub struct Packed {
    granule: Granule,
    encoding: Encoding,
    sectors: u64,
    bytes: Data,
}

/// A granule, and what came of compressing it.
struct Tried {
    granule: Granule,
    plain: Data,
    shorter: Option<(Encoding, Vec<u8>)>,
}

impl Tried {
    fn encoding(&self) -> Encoding {
        self.shorter.as_ref().map_or(Encoding::Raw, |(encoding, _)| *encoding)
    }

    fn stored(&self) -> &[u8] {
        self.shorter.as_ref().map_or(&self.plain, |(_, stored)| stored)
    }
}

impl<D: Disk> Pool<D> {
    /// Compresses what the operation in front will store, when it is first asked to.
    pub(super) fn pack_front(&mut self) {
        let Some(Queued { kind: Kind::Change(change), .. }) = self.queue.front() else { return };
        if !matches!(change.packing, Packing::Untried) {
            return;
        }
        change.packing = Packing::Raw;
        let header = &self.volumes[&change.volume].kept.header;
        let (compression, len) = (header.compression, to_usize(header.block_size.granule()));
        // A granule of one page cannot save one.
        if compression == Compression::Off || len <= PAGE || change.stored == 0 {
            return;
        }
        let had_edges = !change.edges.is_empty();
        let mut tried = Vec::new();
        for (granule, plain) in change.plain_granules(len) {
            let shorter = shorten(compression, &plain, &mut self.counters);
            tried.push(Tried { granule, plain, shorter });
        }
        let shrunk = tried.iter().any(|one| one.shorter.is_some());
        if !shrunk && !had_edges {
            // Nothing was taken out of the operation, and the raw way is the shortest.
            return;
        }
        let bytes: Vec<Data> = if shrunk {
            let len = tried.iter().map(|one| one.stored().len()).sum();
            side_by_side(&tried, self.device.buffer(len))
        } else {
            tried.iter().map(|one| one.plain.clone()).collect()
        };
        let blocks = tried.iter().zip(bytes).map(|(one, bytes)| Packed {
            granule: one.granule,
            encoding: one.encoding(),
            sectors: self.space.layout.per(bytes.len() as u64),
            bytes,
        });
        change.packing = Packing::Blocks(blocks.collect());
    }

    /// Gives blocks their places, which were found in the same order.
    pub(super) fn spans_of_blocks(
        &mut self,
        change: &mut Change,
        space: &mut Vec<Extent>,
        batch: &mut Batch,
    ) -> Vec<Span> {
        let Packing::Blocks(blocks) = std::mem::take(&mut change.packing) else {
            unreachable!("called for blocks");
        };
        let granule_len = to_usize(self.volumes[&change.volume].granule());
        // Compressed blocks share a buffer; one handle is enough to use it again.
        let shared = blocks.iter().find(|block| block.encoding != Encoding::Raw);
        batch.sealed.memory.extend(shared.map(|block| block.bytes.clone()));
        let (mut spans, mut next) = (Vec::new(), change.first);
        for (Packed { granule, encoding, sectors, bytes }, extent) in
            blocks.into_iter().zip(space.drain(..))
        {
            push_hole(&mut spans, next, granule);
            next = Granule(granule.0 + 1);
            let record = BlockRecord {
                place: extent.start,
                sectors: u16::try_from(sectors).expect("a granule has at most 256 sectors"),
                encoding,
                checksum: Checksum::of(&bytes),
            };
            push_block(&mut spans, granule, record);
            // A slot ends by the work that is in it, and compressing is more work than writing.
            batch.sealed.bytes += granule_len;
            batch.pieces.push((extent.start, bytes));
        }
        push_hole(&mut spans, next, change.end);
        spans
    }
}

fn shorten(
    compression: Compression,
    plain: &[u8],
    counters: &mut Counters,
) -> Option<(Encoding, Vec<u8>)> {
    if !compress::worth_a_try(compression, plain) {
        counters.blocks_given_up += 1;
        return None;
    }
    let shorter = compress::encode(compression, plain);
    match shorter {
        Some(_) => counters.blocks_compressed += 1,
        None => counters.blocks_not_shorter += 1,
    }
    shorter
}

/// All blocks in one buffer, in the order that they will have on the device: then one IO takes
/// them all.
fn side_by_side(tried: &[Tried], mut buf: Buf) -> Vec<Data> {
    let mut ends = Vec::new();
    let mut at = 0;
    for one in tried {
        let end = at + one.stored().len();
        buf[at..end].copy_from_slice(one.stored());
        ends.push(end);
        at = end;
    }
    let data = buf.into_data();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(start, end)| data.slice(start..*end)).collect()
}

fn push_hole(spans: &mut Vec<Span>, first: Granule, end: Granule) {
    if first < end {
        spans.push(Span::Hole { first, count: end.0 - first.0 });
    }
}

impl Change {
    pub fn is_packed(&self) -> bool {
        matches!(self.packing, Packing::Blocks(_))
    }

    /// The granules that have to be stored, in order and whole. The edges are used up.
    fn plain_granules(&mut self, len: usize) -> Vec<(Granule, Data)> {
        let wanted: Vec<Granule> = match &self.content {
            Content::Bytes(_) => (self.first.0..self.end.0).map(Granule).collect(),
            Content::Zeros => self.edges.iter().filter_map(Edge::granule).collect(),
        };
        let whole = |granule: Granule| {
            let bytes = match (take_edge(self, granule, len), &self.content) {
                (Some(merged), _) => merged,
                (None, Content::Bytes(data)) => {
                    let from = to_usize(granule.0 * len as u64 - self.offset.0);
                    data.slice(from..from + len)
                }
                (None, Content::Zeros) => unreachable!("zeros are stored at edges alone"),
            };
            (!is_zero(&bytes)).then_some((granule, bytes))
        };
        wanted.into_iter().filter_map(whole).collect()
    }

    /// Sectors for which space is still to be found. A granule that is stored raw has `unit`.
    pub fn missing(&self, unit: u64) -> u64 {
        let found: u64 = self.space.iter().map(|extent| extent.sectors).sum();
        match &self.packing {
            Packing::Blocks(blocks) => {
                blocks.iter().map(|block| block.sectors).sum::<u64>() - found
            }
            Packing::Untried | Packing::Raw => self.stored * unit - found,
        }
    }

    /// The run that is to be found next: sectors that must not be parted, and how many times as
    /// many can be used.
    pub fn next_run(&self, unit: u64) -> Option<(u64, u64)> {
        match &self.packing {
            Packing::Blocks(blocks) => blocks.get(self.space.len()).map(|block| (block.sectors, 1)),
            Packing::Untried | Packing::Raw => {
                let max = self.missing(unit) / unit;
                (max > 0).then_some((unit, max))
            }
        }
    }
}
