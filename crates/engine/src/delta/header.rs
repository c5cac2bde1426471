//! What a stream is of: a volume, the point it starts from and the snapshot it leads to.
//!
//! Invariants:
//! - Everything that an importer needs to decide whether it may begin is in here, none of it in
//!   the frames behind.
//! - A seq is a base only within the volume's own sequence; anywhere else it is a foreign number.
use std::fmt;

use block::{ByteLen, ByteOffset, Position, Seq, Term};

use super::error::HeaderError;
use crate::format::{Malformed, Reader, Writer};
use crate::limits::{NAME_MAX, SEQ_MAX};
use crate::volume::{BlockSize, check_size};

const FIXED: usize = 40;
const SNAPSHOT: usize = 16 + 16 + 8 + 2 + NAME_MAX;
const BASE: usize = 1 + 16 + 16 + 2 + NAME_MAX;

/// The longest payload of a header frame.
pub const HEADER_MAX: usize = FIXED + SNAPSHOT + BASE;

/// What a destination must have before the first range of a delta is applied to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Nothing: the stream has everything that is allocated.
    Empty,
    /// The volume as of this seq of its own: the stream has everything that changed after it.
    Seq(Seq),
    /// This snapshot: the stream has everything that differs from it.
    Snapshot { uid: [u8; 16], name: String, position: Position },
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Base::Empty => f.write_str("an empty volume"),
            Base::Seq(seq) => write!(f, "seq {}", seq.0),
            Base::Snapshot { name, position, .. } => write!(f, "snapshot {name:?} at {position}"),
        }
    }
}

/// The snapshot that a delta leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub uid: [u8; 16],
    /// May be empty: not every snapshot is a user's.
    pub name: String,
    pub position: Position,
    /// Milliseconds since 1970.
    pub created_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The uid of the source volume, the same on all its replicas.
    pub volume: [u8; 16],
    pub block_size: BlockSize,
    /// The volume's size as of the snapshot.
    pub size: ByteLen,
    pub base: Base,
    pub snapshot: Snapshot,
    /// Whether seqs and positions are of the destination's sequence too, so that catching up may
    /// preserve every `changed`. A mirror's are not.
    pub own_sequence: bool,
    /// Where the ranges begin: 0, or where an interrupted import stopped.
    pub resume_from: ByteOffset,
}

impl Header {
    /// Whether what it says can be. Writers and readers both ask.
    pub fn check(&self) -> Result<(), HeaderError> {
        let (size, unit) = (self.size, self.block_size.bytes());
        check_size(size, self.block_size).map_err(|_| HeaderError::Size { size, unit })?;
        check_name(&self.snapshot.name)?;
        let newest = self.snapshot.position.seq;
        check_seq(newest)?;
        match &self.base {
            Base::Empty => {}
            Base::Seq(_) if !self.own_sequence => return Err(HeaderError::ForeignSeq),
            Base::Seq(base) if *base > newest => {
                return Err(HeaderError::BaseLater { base: *base, snapshot: newest });
            }
            Base::Seq(_) => {}
            Base::Snapshot { name, position, .. } => {
                check_name(name)?;
                check_seq(position.seq)?;
            }
        }
        let (from, granule) = (self.resume_from, self.block_size.granule());
        if from.0 != size.0 && (from.0 > size.0 || !from.0.is_multiple_of(granule)) {
            return Err(HeaderError::ResumeFrom { resume_from: from, granule });
        }
        Ok(())
    }

    /// The payload of a header frame. The header was checked.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = [0; HEADER_MAX];
        let mut w = Writer::new(&mut bytes);
        w.bytes(&self.volume);
        w.number(8, self.size.0);
        w.number(4, self.block_size.bytes());
        w.byte(u8::from(self.own_sequence));
        w.skip_to(32);
        w.number(8, self.resume_from.0);
        w.bytes(&self.snapshot.uid);
        write_position(&mut w, self.snapshot.position);
        w.number(8, self.snapshot.created_ms);
        write_name(&mut w, &self.snapshot.name);
        match &self.base {
            Base::Empty => w.byte(0),
            Base::Seq(seq) => {
                w.byte(1);
                w.number(8, seq.0);
            }
            Base::Snapshot { uid, name, position } => {
                w.byte(2);
                w.bytes(uid);
                write_position(&mut w, *position);
                write_name(&mut w, name);
            }
        }
        let len = w.at();
        bytes[..len].to_vec()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut r = Reader::new(bytes);
        let volume = read_uid(&mut r)?;
        let size = ByteLen(r.number(8, "size")?);
        let block_size = r.number(4, "block size")?;
        let block_size = BlockSize::new(block_size).ok_or_else(|| r.malformed("block size"))?;
        let own_sequence = match r.byte("sequence")? {
            0 => false,
            1 => true,
            _ => return Err(r.malformed("sequence")),
        };
        r.bytes(3, "room")?;
        let resume_from = ByteOffset(r.number(8, "resume from")?);
        let snapshot = Snapshot {
            uid: read_uid(&mut r)?,
            position: read_position(&mut r)?,
            created_ms: r.number(8, "created")?,
            name: read_name(&mut r)?,
        };
        let base = match r.byte("base")? {
            0 => Base::Empty,
            1 => Base::Seq(Seq(r.number(8, "base")?)),
            2 => {
                let (uid, position) = (read_uid(&mut r)?, read_position(&mut r)?);
                Base::Snapshot { uid, position, name: read_name(&mut r)? }
            }
            _ => return Err(r.malformed("base")),
        };
        if r.left() != 0 {
            return Err(r.malformed("header end"));
        }
        Ok(Header { volume, block_size, size, base, snapshot, own_sequence, resume_from })
    }
}

fn check_name(name: &str) -> Result<(), HeaderError> {
    if name.len() > NAME_MAX || name.contains(char::is_control) {
        return Err(HeaderError::Name { name: name.into() });
    }
    Ok(())
}

fn check_seq(found: Seq) -> Result<(), HeaderError> {
    if found.0 >= SEQ_MAX { Err(HeaderError::SeqTooHigh { found }) } else { Ok(()) }
}

fn write_position(w: &mut Writer<'_>, position: Position) {
    w.number(8, position.term.0);
    w.number(8, position.seq.0);
}

fn write_name(w: &mut Writer<'_>, name: &str) {
    w.number(2, name.len() as u64);
    w.bytes(name.as_bytes());
}

fn read_uid(r: &mut Reader<'_>) -> Result<[u8; 16], Malformed> {
    let mut uid = [0; 16];
    uid.copy_from_slice(r.bytes(16, "uid")?);
    Ok(uid)
}

fn read_position(r: &mut Reader<'_>) -> Result<Position, Malformed> {
    Ok(Position { term: Term(r.number(8, "term")?), seq: Seq(r.number(8, "seq")?) })
}

fn read_name(r: &mut Reader<'_>) -> Result<String, Malformed> {
    let len = r.length(2, "name")?;
    let name = std::str::from_utf8(r.bytes(len, "name")?).map_err(|_| r.malformed("name"))?;
    Ok(name.into())
}
