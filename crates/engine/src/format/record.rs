//! What a slot carries: one record per operation, whole or not at all.
use block::{Position, Seq, Term};

use super::codec::{Malformed, Reader, Writer};
use super::object;
use super::page::Encoding;
use crate::limits::STATE_MAX;
use crate::units::{Checksum, Granule, Sector, SnapshotId, VolumeId};
use crate::volume::Header;

/// One stored granule: where, how long, and what its bytes must sum to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    pub place: Sector,
    pub sectors: u16,
    pub encoding: Encoding,
    pub checksum: Checksum,
}

pub const BLOCK_RECORD_LEN: usize = 16;
const SPAN_HEADER: usize = 1 + 8 + 8;
/// Kind, length and object.
const RECORD_HEADER: usize = 1 + 2 + 8;

/// A run of granules that an operation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    Hole { first: Granule, count: u64 },
    Blocks { first: Granule, blocks: Vec<BlockRecord> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Data of a volume changed.
    Update {
        volume: VolumeId,
        position: Position,
        spans: Vec<Span>,
    },
    /// A volume was born.
    Create {
        volume: VolumeId,
        header: Box<Header>,
    },
    /// A volume goes, and its snapshots with it or not; space comes back step by step.
    Delete {
        volume: VolumeId,
        snapshots: bool,
    },
    /// A volume has a new size.
    Resize {
        volume: VolumeId,
        position: Position,
        size: u64,
    },
    /// The small state of replication, committed together with a position.
    State {
        volume: VolumeId,
        position: Position,
        state: Vec<u8>,
    },
    /// A position without content: flushes and barriers.
    Mark {
        volume: VolumeId,
        position: Position,
    },
    /// A volume is served to somebody, or no longer.
    Attach {
        volume: VolumeId,
        attached: bool,
    },
    /// What is left of the space that a volume was promised.
    Credit {
        volume: VolumeId,
        sectors: u64,
    },
    /// Everything of the volume up to here is frozen. The header has the snapshot's name and uid.
    Snapshot {
        volume: VolumeId,
        position: Position,
        snapshot: SnapshotId,
        internal: bool,
        created: u64,
        header: Box<Header>,
    },
    DeleteSnapshot {
        snapshot: SnapshotId,
    },
    /// A volume was born with the content of a snapshot.
    Clone {
        volume: VolumeId,
        snapshot: SnapshotId,
        header: Box<Header>,
    },
    /// A volume has the content of a snapshot again.
    Rollback {
        volume: VolumeId,
        position: Position,
        to: SnapshotId,
    },
    /// A hidden volume was born that takes an import into another.
    Stage {
        volume: VolumeId,
        of: VolumeId,
        base: SnapshotId,
    },
    /// A part of an import. Its stamp is not of the staging volume's sequence.
    Staged {
        volume: VolumeId,
        changed: Seq,
        progress: u64,
        spans: Vec<Span>,
    },
    /// An import ended: the volume has the content of the staging volume.
    Adopt {
        volume: VolumeId,
        position: Position,
        staging: VolumeId,
        renew: bool,
        /// The small state of replication, if it comes with it.
        state: Option<Vec<u8>>,
    },
}

/// Flags of an adoption.
const ADOPT_RENEW: u8 = 1;
const ADOPT_STATE: u8 = 2;

fn position(w: &mut Writer<'_>, position: Position) {
    w.number(8, position.term.0);
    w.number(8, position.seq.0);
}

fn read_position(r: &mut Reader<'_>) -> Result<Position, Malformed> {
    Ok(Position { term: Term(r.number(8, "term")?), seq: Seq(r.number(8, "seq")?) })
}

fn read_flag(r: &mut Reader<'_>) -> Result<bool, Malformed> {
    match r.byte("flag")? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(r.malformed("flag")),
    }
}

/// All that is left, which an object page must have room for.
fn read_state(r: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    match r.left() {
        len if len > STATE_MAX => Err(r.malformed("state")),
        len => Ok(r.bytes(len, "state")?.to_vec()),
    }
}

fn encode_spans(w: &mut Writer<'_>, spans: &[Span]) {
    w.number(2, spans.len() as u64);
    spans.iter().for_each(|span| span.encode(w));
}

fn decode_spans(r: &mut Reader<'_>) -> Result<Vec<Span>, Malformed> {
    let count = r.length(2, "spans")?;
    (0..count).map(|_| Span::decode(r)).collect()
}

impl Record {
    /// Bytes that `encode` will write.
    pub fn len(&self) -> usize {
        let spans = |spans: &[Span]| 2 + spans.iter().map(Span::len).sum::<usize>();
        RECORD_HEADER
            + match self {
                Record::Update { spans: list, .. } => 16 + spans(list),
                Record::Create { header, .. } => object::header_len(header),
                Record::Delete { .. } | Record::Attach { .. } => 1,
                Record::Resize { .. } => 16 + 8,
                Record::Credit { .. } => 8,
                Record::State { state, .. } => 16 + state.len(),
                Record::Mark { .. } => 16,
                Record::Snapshot { header, .. } => 16 + 8 + 1 + 8 + object::header_len(header),
                Record::DeleteSnapshot { .. } => 0,
                Record::Clone { header, .. } => 8 + object::header_len(header),
                Record::Rollback { .. } => 16 + 8,
                Record::Stage { .. } => 16,
                Record::Staged { spans: list, .. } => 16 + spans(list),
                Record::Adopt { state, .. } => 16 + 8 + 1 + state.as_ref().map_or(0, Vec::len),
            }
    }

    fn kind(&self) -> u8 {
        match self {
            Record::Update { .. } => 1,
            Record::Create { .. } => 2,
            Record::Delete { .. } => 3,
            Record::Resize { .. } => 4,
            Record::State { .. } => 5,
            Record::Mark { .. } => 6,
            Record::Attach { .. } => 7,
            Record::Snapshot { .. } => 8,
            Record::DeleteSnapshot { .. } => 9,
            Record::Clone { .. } => 10,
            Record::Rollback { .. } => 11,
            Record::Stage { .. } => 12,
            Record::Staged { .. } => 13,
            Record::Adopt { .. } => 14,
            Record::Credit { .. } => 15,
        }
    }

    pub fn encode(&self, bytes: &mut [u8]) {
        let len = self.len();
        let mut w = Writer::new(&mut bytes[..len]);
        w.byte(self.kind());
        w.number(2, len as u64 - 3);
        w.number(8, self.object());
        match self {
            Record::Update { position: p, spans, .. } => {
                position(&mut w, *p);
                encode_spans(&mut w, spans);
            }
            Record::Create { header, .. } => object::encode_header(&mut w, header),
            Record::Delete { snapshots: flag, .. } | Record::Attach { attached: flag, .. } => {
                w.byte(u8::from(*flag));
            }
            Record::Resize { position: p, size, .. } => {
                position(&mut w, *p);
                w.number(8, *size);
            }
            Record::State { position: p, state, .. } => {
                position(&mut w, *p);
                w.bytes(state);
            }
            Record::Mark { position: p, .. } => position(&mut w, *p),
            Record::Snapshot { position: p, snapshot, internal, created, header, .. } => {
                position(&mut w, *p);
                w.number(8, snapshot.0);
                w.byte(u8::from(*internal));
                w.number(8, *created);
                object::encode_header(&mut w, header);
            }
            Record::DeleteSnapshot { .. } => {}
            Record::Credit { sectors, .. } => w.number(8, *sectors),
            Record::Clone { snapshot, header, .. } => {
                w.number(8, snapshot.0);
                object::encode_header(&mut w, header);
            }
            Record::Rollback { position: p, to, .. } => {
                position(&mut w, *p);
                w.number(8, to.0);
            }
            Record::Stage { of, base, .. } => {
                w.number(8, of.0);
                w.number(8, base.0);
            }
            Record::Staged { changed, progress, spans, .. } => {
                w.number(8, changed.0);
                w.number(8, *progress);
                encode_spans(&mut w, spans);
            }
            Record::Adopt { position: p, staging, renew, state, .. } => {
                position(&mut w, *p);
                w.number(8, staging.0);
                let has_state = if state.is_some() { ADOPT_STATE } else { 0 };
                w.byte(if *renew { ADOPT_RENEW } else { 0 } | has_state);
                w.bytes(state.as_deref().unwrap_or_default());
            }
        }
        assert_eq!(w.at(), len, "a record is as long as it said");
    }

    /// The number of the object that it is about: a volume, or for a deletion a snapshot.
    fn object(&self) -> u64 {
        match self {
            Record::DeleteSnapshot { snapshot } => snapshot.0,
            Record::Update { volume, .. }
            | Record::Create { volume, .. }
            | Record::Delete { volume, .. }
            | Record::Resize { volume, .. }
            | Record::State { volume, .. }
            | Record::Mark { volume, .. }
            | Record::Attach { volume, .. }
            | Record::Credit { volume, .. }
            | Record::Snapshot { volume, .. }
            | Record::Clone { volume, .. }
            | Record::Rollback { volume, .. }
            | Record::Stage { volume, .. }
            | Record::Staged { volume, .. }
            | Record::Adopt { volume, .. } => volume.0,
        }
    }

    /// The spans of blocks and holes that it brings.
    pub fn spans(&self) -> &[Span] {
        match self {
            Record::Update { spans, .. } | Record::Staged { spans, .. } => spans,
            _ => &[],
        }
    }

    /// The next record, or `None` at the end of the payload.
    pub fn decode(outer: &mut Reader<'_>) -> Result<Option<Record>, Malformed> {
        if outer.left() == 0 {
            return Ok(None);
        }
        let kind = outer.byte("record")?;
        let len = outer.length(2, "record length")?;
        let mut r = Reader::new(outer.bytes(len, "record")?);
        let volume = VolumeId(r.number(8, "object")?);
        let record = Record::decode_body(kind, volume, &mut r)?;
        if r.left() != 0 {
            return Err(r.malformed("record end"));
        }
        Ok(Some(record))
    }

    fn decode_body(kind: u8, volume: VolumeId, r: &mut Reader<'_>) -> Result<Record, Malformed> {
        Ok(match kind {
            1 => Record::Update { volume, position: read_position(r)?, spans: decode_spans(r)? },
            2 => Record::Create { volume, header: Box::new(object::decode_header(r)?) },
            3 => Record::Delete { volume, snapshots: read_flag(r)? },
            4 => {
                let position = read_position(r)?;
                Record::Resize { volume, position, size: r.number(8, "size")? }
            }
            5 => {
                let position = read_position(r)?;
                Record::State { volume, position, state: read_state(r)? }
            }
            6 => Record::Mark { volume, position: read_position(r)? },
            7 => Record::Attach { volume, attached: read_flag(r)? },
            8 => Record::Snapshot {
                volume,
                position: read_position(r)?,
                snapshot: SnapshotId(r.number(8, "snapshot")?),
                internal: read_flag(r)?,
                created: r.number(8, "created")?,
                header: Box::new(object::decode_header(r)?),
            },
            9 => Record::DeleteSnapshot { snapshot: SnapshotId(volume.0) },
            10 => {
                let snapshot = SnapshotId(r.number(8, "snapshot")?);
                Record::Clone { volume, snapshot, header: Box::new(object::decode_header(r)?) }
            }
            11 => {
                let position = read_position(r)?;
                Record::Rollback { volume, position, to: SnapshotId(r.number(8, "snapshot")?) }
            }
            12 => {
                let of = VolumeId(r.number(8, "volume")?);
                Record::Stage { volume, of, base: SnapshotId(r.number(8, "snapshot")?) }
            }
            13 => Record::Staged {
                volume,
                changed: Seq(r.number(8, "changed")?),
                progress: r.number(8, "progress")?,
                spans: decode_spans(r)?,
            },
            14 => {
                let position = read_position(r)?;
                let staging = VolumeId(r.number(8, "staging volume")?);
                let flags = r.byte("flags")?;
                if flags & !(ADOPT_RENEW | ADOPT_STATE) != 0 {
                    return Err(r.malformed("flags"));
                }
                let has_state = flags & ADOPT_STATE != 0;
                let state = if has_state { Some(read_state(r)?) } else { None };
                Record::Adopt { volume, position, staging, renew: flags & ADOPT_RENEW != 0, state }
            }
            15 => Record::Credit { volume, sectors: r.number(8, "sectors")? },
            _ => return Err(r.malformed("record kind")),
        })
    }
}

impl Span {
    pub fn len(&self) -> usize {
        SPAN_HEADER
            + match self {
                Span::Hole { .. } => 0,
                Span::Blocks { blocks, .. } => blocks.len() * BLOCK_RECORD_LEN,
            }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Span::Hole { first, count } => {
                w.byte(0);
                w.number(8, first.0);
                w.number(8, *count);
            }
            Span::Blocks { first, blocks } => {
                w.byte(1);
                w.number(8, first.0);
                w.number(8, blocks.len() as u64);
                for block in blocks {
                    w.number(6, block.place.0);
                    w.number(1, u64::from(block.sectors) - 1);
                    w.byte(block.encoding.byte());
                    w.number(8, block.checksum.0);
                }
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Span, Malformed> {
        let kind = r.byte("span")?;
        let first = Granule(r.number(8, "span")?);
        let count = r.number(8, "span")?;
        match kind {
            0 => Ok(Span::Hole { first, count }),
            1 if count <= r.left() as u64 / BLOCK_RECORD_LEN as u64 => {
                let blocks =
                    (0..count).map(|_| BlockRecord::decode(r)).collect::<Result<_, _>>()?;
                Ok(Span::Blocks { first, blocks })
            }
            _ => Err(r.malformed("span")),
        }
    }
}

impl BlockRecord {
    fn decode(r: &mut Reader<'_>) -> Result<BlockRecord, Malformed> {
        let place = Sector(r.number(6, "place")?);
        let sectors = u16::from(r.byte("sectors")?) + 1;
        let encoding = r.byte("encoding")?;
        let encoding = Encoding::from_byte(encoding).ok_or_else(|| r.malformed("encoding"))?;
        Ok(BlockRecord { place, sectors, encoding, checksum: Checksum(r.number(8, "checksum")?) })
    }
}
