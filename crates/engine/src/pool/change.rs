//! Changes of a volume's bytes: which granules become what, at which fresh places.
use block::{Data, Disk, Seq};

use crate::format::{BlockRecord, Encoding, Record, Span};
use crate::overlay::{Displaced, Map, Stamp, is_large};
use crate::pool::Pool;
use crate::pool::queue::{Change, Content, Edge, Import};
use crate::pool::seal::{Batch, LARGE};
use crate::units::{Checksum, Extent, Granule, Sector, Slot, VolumeId, to_usize};

impl<D: Disk> Pool<D> {
    pub(super) fn apply_change(&mut self, mut change: Change, batch: &mut Batch) -> Record {
        self.touch(change.volume);
        let (volume, position, import) = (change.volume, change.position, change.import);
        let mut space = std::mem::take(&mut change.space);
        self.space.sealed();
        let spans = match change.content {
            _ if change.is_packed() => self.spans_of_blocks(&mut change, &mut space, batch),
            Content::Zeros => self.spans_of_zeros(&mut change, &mut space, batch),
            Content::Bytes(ref data) if self.leaves_early(&change, data) => {
                let data = data.clone();
                self.send_early(&change, &data, &mut space, batch)
            }
            Content::Bytes(_) => self.spans_of_bytes(&mut change, &mut space, batch),
        };
        // Zeros need no space; what was found for them goes back unused.
        space.retain(|extent| extent.sectors > 0);
        for extent in space {
            self.space.give_back(extent);
        }
        let Some(Import { changed, progress }) = import else {
            self.overlay_spans(volume, position.seq, &spans, batch.slot);
            return Record::Update { volume, position, spans };
        };
        self.overlay_spans(volume, changed, &spans, batch.slot);
        self.note_progress(volume, progress);
        Record::Staged { volume, changed, progress, spans }
    }

    /// How far an import has come, kept together with what it brought.
    pub(super) fn note_progress(&mut self, id: VolumeId, progress: u64) {
        if let Some(staging) = &mut self.touch(id).staging {
            staging.progress = progress;
        }
    }

    /// Enters what an operation changed into the overlay, and frees what that displaced.
    pub(super) fn overlay_spans(&mut self, id: VolumeId, changed: Seq, spans: &[Span], slot: Slot) {
        let map = Map { volume: id, height: self.volumes[&id].height() };
        let stamp = Stamp { changed, slot };
        let mut displaced = Displaced::new();
        for span in spans {
            match span {
                Span::Hole { first, count } => {
                    self.active.insert_hole(map, *first, *count, stamp, &mut displaced);
                }
                Span::Blocks { first, blocks } => {
                    self.active.insert_blocks(map, *first, blocks, stamp, &mut displaced);
                }
            }
        }
        self.free_displaced(displaced);
    }

    pub(super) fn free_displaced(&mut self, displaced: Displaced) {
        for block in displaced {
            let extent = Extent { start: block.place, sectors: u64::from(block.sectors) };
            #[cfg(feature = "faults")]
            if self.has_fault(crate::Fault::ReuseBeforeCheckpoint) {
                self.space.reuse_at_once(extent);
                continue;
            }
            self.space.give_back(extent);
        }
    }

    /// Whether a write goes to the device before its checksums are computed: it is large, whole
    /// granules, and none of them is a hole.
    fn leaves_early(&self, change: &Change, data: &Data) -> bool {
        data.len() >= LARGE
            && change.edges.is_empty()
            && change.stored == change.end.0 - change.first.0
            && data.is_aligned(to_usize(self.space.layout.sector.bytes()))
    }

    /// Starts the writes of a large operation, and computes its checksums while they are under
    /// way. The bytes cannot change meanwhile, and the record follows them as always.
    fn send_early(
        &mut self,
        change: &Change,
        data: &Data,
        space: &mut Vec<Extent>,
        batch: &mut Batch,
    ) -> Vec<Span> {
        let granule = to_usize(self.volumes[&change.volume].granule());
        let sectors = self.space.layout.per(granule as u64);
        let mut from = 0;
        for extent in space.iter() {
            let len = to_usize(self.space.layout.bytes(extent.sectors).0);
            self.send_run(batch, extent.start, vec![data.slice(from..from + len)]);
            from += len;
        }
        self.device.kick();
        batch.sealed.bytes += data.len();
        let places = space.drain(..).flat_map(|extent| {
            (0..extent.sectors / sectors).map(move |at| Sector(extent.start.0 + at * sectors))
        });
        let granules = (change.first.0..).map(Granule).zip(data.chunks_exact(granule));
        let blocks = places.zip(granules).map(|(place, (granule, bytes))| BlockRecord {
            place,
            sectors: u16::try_from(sectors).expect("a granule has at most 256 sectors"),
            encoding: Encoding::Raw,
            checksum: change.known_sum(granule).unwrap_or_else(|| Checksum::of(bytes)),
        });
        vec![Span::Blocks { first: change.first, blocks: blocks.collect() }]
    }

    fn spans_of_bytes(
        &mut self,
        change: &mut Change,
        space: &mut [Extent],
        batch: &mut Batch,
    ) -> Vec<Span> {
        let granule = to_usize(self.volumes[&change.volume].granule());
        let Content::Bytes(data) = &change.content else { unreachable!("called for bytes") };
        let data = data.clone();
        let mut spans = Vec::new();
        for at in change.first.0..change.end.0 {
            let (bytes, known) = match take_edge(change, Granule(at), granule) {
                Some(merged) => (merged, None),
                None => {
                    let from = to_usize(at * granule as u64 - change.offset.0);
                    (data.slice(from..from + granule), change.known_sum(Granule(at)))
                }
            };
            self.add_granule(&mut spans, Granule(at), (bytes, known), space, batch);
        }
        spans
    }

    fn spans_of_zeros(
        &mut self,
        change: &mut Change,
        space: &mut [Extent],
        batch: &mut Batch,
    ) -> Vec<Span> {
        let granule = to_usize(self.volumes[&change.volume].granule());
        let mut spans = Vec::new();
        let (mut first, mut end) = (change.first.0, change.end.0);
        if let Some(bytes) = take_edge(change, Granule(first), granule) {
            self.add_granule(&mut spans, Granule(first), (bytes, None), space, batch);
            first += 1;
        }
        let tail = (first < end).then(|| take_edge(change, Granule(end - 1), granule)).flatten();
        end -= u64::from(tail.is_some());
        if first < end {
            spans.push(Span::Hole { first: Granule(first), count: end - first });
        }
        if let Some(bytes) = tail {
            self.add_granule(&mut spans, Granule(end), (bytes, None), space, batch);
        }
        spans
    }

    /// One whole granule, with its checksum if it is known: a block at a fresh place, or a hole where
    /// it is all zeros.
    fn add_granule(
        &mut self,
        spans: &mut Vec<Span>,
        granule: Granule,
        (bytes, known): (Data, Option<Checksum>),
        space: &mut [Extent],
        batch: &mut Batch,
    ) {
        if is_zero(&bytes) {
            match spans.last_mut() {
                Some(Span::Hole { first, count }) if first.0 + *count == granule.0 => *count += 1,
                _ => spans.push(Span::Hole { first: granule, count: 1 }),
            }
            return;
        }
        let sectors = self.space.layout.per(bytes.len() as u64);
        let from = space.iter_mut().find(|extent| extent.sectors >= sectors);
        let from = from.expect("space was found for every granule");
        let place = from.start;
        *from = Extent { start: Sector(place.0 + sectors), sectors: from.sectors - sectors };
        let block = BlockRecord {
            place,
            sectors: u16::try_from(sectors).expect("a granule has at most 256 sectors"),
            encoding: Encoding::Raw,
            checksum: known.unwrap_or_else(|| Checksum::of(&bytes)),
        };
        push_block(spans, granule, block);
        batch.sealed.bytes += bytes.len();
        batch.pieces.push((place, bytes));
    }
}

pub(super) fn push_block(spans: &mut Vec<Span>, granule: Granule, block: BlockRecord) {
    match spans.last_mut() {
        Some(Span::Blocks { first, blocks }) if first.0 + blocks.len() as u64 == granule.0 => {
            blocks.push(block);
        }
        _ => spans.push(Span::Blocks { first: granule, blocks: vec![block] }),
    }
}

impl Change {
    /// The checksum that came with a granule's bytes. Only of one that is covered whole.
    fn known_sum(&self, granule: Granule) -> Option<Checksum> {
        let at = to_usize(granule.0 - self.first.0);
        self.sums.as_ref().and_then(|sums| sums.list().get(at)).map(|sum| Checksum(*sum))
    }

    /// Whether what it covers may have to be dropped by later checkpoints.
    pub fn is_large_hole(&self) -> bool {
        is_large(self.first.0, self.end.0 - self.first.0)
    }
}

/// The old bytes of an edge with the new ones laid over them.
pub(super) fn take_edge(change: &mut Change, granule: Granule, len: usize) -> Option<Data> {
    let at = change.edges.iter().position(|edge| edge.granule() == Some(granule))?;
    let Edge::Ready(_, mut buf) = change.edges.remove(at) else {
        panic!("edges are read before their operation is sealed");
    };
    let start = granule.0 * len as u64;
    let from = change.offset.0.max(start);
    let to = (change.offset.0 + change.len.0).min(start + len as u64);
    let within = to_usize(from - start)..to_usize(to - start);
    match &change.content {
        Content::Zeros => buf[within].fill(0),
        Content::Bytes(data) => {
            let skip = to_usize(from - change.offset.0);
            let count = within.len();
            buf[within].copy_from_slice(&data[skip..skip + count]);
        }
    }
    Some(buf.into_data())
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    // Nearly all data differs in its first bytes; only what does not is looked at whole.
    bytes[..16].iter().all(|byte| *byte == 0)
        && bytes.chunks_exact(64).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}
