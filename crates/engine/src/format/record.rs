//! What a slot carries: one record per operation, whole or not at all.
use block::{Position, Seq, Term};

use super::codec::{Malformed, Reader, Writer};
use super::object;
use super::page::Encoding;
use crate::units::{Checksum, Granule, Sector, VolumeId};
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
const UPDATE_HEADER: usize = 1 + 2 + 8 + 16 + 2;

/// A run of granules that an operation changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Span {
    Hole { first: Granule, count: u64 },
    Blocks { first: Granule, blocks: Vec<BlockRecord> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Data of a volume changed.
    Update { volume: VolumeId, position: Position, spans: Vec<Span> },
    /// A volume was born.
    Create { volume: VolumeId, header: Box<Header> },
    /// A volume goes; its space comes back step by step.
    Delete { volume: VolumeId },
    /// A volume has a new size.
    Resize { volume: VolumeId, position: Position, size: u64 },
    /// The small state of replication, committed together with a position.
    State { volume: VolumeId, position: Position, state: Vec<u8> },
    /// A position without content: flushes and barriers.
    Mark { volume: VolumeId, position: Position },
    /// What is left of a large hole that a checkpoint did not finish. Lies below everything that
    /// was written since.
    Carry { volume: VolumeId, first: Granule, count: u64, changed: Seq },
}

fn position(w: &mut Writer<'_>, position: Position) {
    w.number(8, position.term.0);
    w.number(8, position.seq.0);
}

fn read_position(r: &mut Reader<'_>) -> Result<Position, Malformed> {
    Ok(Position { term: Term(r.number(8, "term")?), seq: Seq(r.number(8, "seq")?) })
}

impl Record {
    /// Bytes that `encode` will write.
    pub fn len(&self) -> usize {
        match self {
            Record::Update { spans, .. } => {
                UPDATE_HEADER + spans.iter().map(Span::len).sum::<usize>()
            }
            Record::Create { header, .. } => 3 + 8 + object::header_len(header),
            Record::Delete { .. } => 3 + 8,
            Record::Resize { .. } => 3 + 8 + 16 + 8,
            Record::State { state, .. } => 3 + 8 + 16 + state.len(),
            Record::Mark { .. } => 3 + 8 + 16,
            Record::Carry { .. } => 3 + 8 + 24,
        }
    }

    pub fn encode(&self, bytes: &mut [u8]) {
        let len = self.len();
        let mut w = Writer::new(&mut bytes[..len]);
        let kind = match self {
            Record::Update { .. } => 1,
            Record::Create { .. } => 2,
            Record::Delete { .. } => 3,
            Record::Resize { .. } => 4,
            Record::State { .. } => 5,
            Record::Mark { .. } => 6,
            Record::Carry { .. } => 7,
        };
        w.byte(kind);
        w.number(2, len as u64 - 3);
        w.number(8, self.volume().0);
        match self {
            Record::Update { position: p, spans, .. } => {
                position(&mut w, *p);
                w.number(2, spans.len() as u64);
                spans.iter().for_each(|span| span.encode(&mut w));
            }
            Record::Create { header, .. } => object::encode_header(&mut w, header),
            Record::Delete { .. } => {}
            Record::Resize { position: p, size, .. } => {
                position(&mut w, *p);
                w.number(8, *size);
            }
            Record::State { position: p, state, .. } => {
                position(&mut w, *p);
                w.bytes(state);
            }
            Record::Mark { position: p, .. } => position(&mut w, *p),
            Record::Carry { first, count, changed, .. } => {
                w.number(8, first.0);
                w.number(8, *count);
                w.number(8, changed.0);
            }
        }
        assert_eq!(w.at(), len, "a record is as long as it said");
    }

    pub fn volume(&self) -> VolumeId {
        match self {
            Record::Update { volume, .. }
            | Record::Create { volume, .. }
            | Record::Delete { volume }
            | Record::Resize { volume, .. }
            | Record::State { volume, .. }
            | Record::Mark { volume, .. }
            | Record::Carry { volume, .. } => *volume,
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
        let volume = VolumeId(r.number(8, "volume")?);
        let record = match kind {
            1 => Record::decode_update(&mut r, volume)?,
            2 => Record::Create { volume, header: Box::new(object::decode_header(&mut r)?) },
            3 => Record::Delete { volume },
            4 => {
                let position = read_position(&mut r)?;
                Record::Resize { volume, position, size: r.number(8, "size")? }
            }
            5 => {
                let position = read_position(&mut r)?;
                let len = r.left();
                Record::State { volume, position, state: r.bytes(len, "state")?.to_vec() }
            }
            6 => Record::Mark { volume, position: read_position(&mut r)? },
            7 => Record::Carry {
                volume,
                first: Granule(r.number(8, "first")?),
                count: r.number(8, "count")?,
                changed: Seq(r.number(8, "changed")?),
            },
            _ => return Err(r.malformed("record kind")),
        };
        if r.left() != 0 {
            return Err(r.malformed("record end"));
        }
        Ok(Some(record))
    }

    fn decode_update(r: &mut Reader<'_>, volume: VolumeId) -> Result<Record, Malformed> {
        let position = read_position(r)?;
        let count = r.length(2, "spans")?;
        let spans = (0..count).map(|_| Span::decode(r)).collect::<Result<_, _>>()?;
        Ok(Record::Update { volume, position, spans })
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
                    w.byte(block.encoding as u8);
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
