//! An object page: one volume of the pool. Snapshots will be objects too.
//!
//! Invariants:
//! - The page is the only durable description of the volume; root, position and the state of
//!   replication in it are of one instant.
//! - Fields that this version does not use are zero, and a reader skips what it does not know
//!   behind the state.
use block::{Position, Seq, Term};

use super::codec::{Malformed, Reader, Writer};
use super::page::{Child, PAGE_HEADER, PagePtr};
use crate::limits::{MAP_PAGE, NAME_MAX, STATE_MAX};
use crate::units::{Epoch, Sector};
use crate::volume::{BlockSize, Compression, Durable, Header};

const KIND_VOLUME: u64 = 1;
const FLAG_DELETING: u64 = 1;
/// Room for what snapshots and clones need: branch, origin, previous and next snapshot, dead
/// list, deferred and hidden marks, internal snapshots.
const SNAPSHOT_ROOM: usize = 192;

pub fn header_len(header: &Header) -> usize {
    16 + 8 + 4 + 1 + 1 + 2 + header.name.len()
}

pub fn encode_header(w: &mut Writer<'_>, header: &Header) {
    w.bytes(&header.uid);
    w.number(8, header.size);
    w.number(4, header.block_size.bytes());
    w.byte(header.compression as u8);
    w.byte(0);
    w.number(2, header.name.len() as u64);
    w.bytes(header.name.as_bytes());
}

pub fn decode_header(r: &mut Reader<'_>) -> Result<Header, Malformed> {
    let uid = r.bytes(16, "uid")?.try_into().expect("sixteen bytes");
    let size = r.number(8, "size")?;
    let block_size = r.number(4, "block size")?;
    let block_size = BlockSize::new(block_size).ok_or_else(|| r.malformed("block size"))?;
    if r.byte("compression")? != 0 {
        return Err(r.malformed("compression"));
    }
    r.byte("padding")?;
    let len = r.length(2, "name")?;
    let name = std::str::from_utf8(r.bytes(len, "name")?).map_err(|_| r.malformed("name"))?;
    if name.len() > NAME_MAX || size > crate::limits::VOLUME_MAX {
        return Err(r.malformed("name"));
    }
    Ok(Header { name: name.into(), uid, size, block_size, compression: Compression::Off })
}

/// Writes the body of an object page; the header is the page's own.
pub fn encode(page: &mut [u8], volume: &Durable) {
    let mut w = Writer::new(&mut page[PAGE_HEADER..]);
    w.number(2, KIND_VOLUME);
    w.number(2, if volume.deleting { FLAG_DELETING } else { 0 });
    w.number(4, u64::from(volume.height));
    let (places, born) = match volume.root {
        Child::Hole { .. } => ([0, 0], 0),
        Child::Page { ptr, .. } => ([ptr.places[0].0, ptr.places[1].0], ptr.born.0),
    };
    for value in [places[0], places[1], born, volume.root.changed().0] {
        w.number(8, value);
    }
    w.number(8, volume.position.term.0);
    w.number(8, volume.position.seq.0);
    w.number(8, volume.stored);
    w.number(8, volume.credit);
    w.skip_to(w.at() + SNAPSHOT_ROOM);
    encode_header(&mut w, &volume.header);
    w.number(2, volume.state.len() as u64);
    w.bytes(&volume.state);
}

pub fn decode(page: &[u8]) -> Result<Durable, Malformed> {
    if page.len() != MAP_PAGE {
        return Err(Malformed { what: "object page", at: 0 });
    }
    let mut r = Reader::new(&page[PAGE_HEADER..]);
    if r.number(2, "kind")? != KIND_VOLUME {
        return Err(r.malformed("object kind"));
    }
    let flags = r.number(2, "flags")?;
    let height = r.number(4, "height")?;
    let height = u8::try_from(height).map_err(|_| r.malformed("height"))?;
    let mut next = || r.number(8, "volume");
    let (a, b, born, changed) = (next()?, next()?, next()?, Seq(next()?));
    let position = Position { term: Term(next()?), seq: Seq(next()?) };
    let (stored, credit) = (next()?, next()?);
    let root = match a {
        0 => Child::Hole { changed },
        _ => Child::Page {
            ptr: PagePtr { places: [Sector(a), Sector(b)], born: Epoch(born) },
            changed,
        },
    };
    r.bytes(SNAPSHOT_ROOM, "snapshot fields")?;
    let header = decode_header(&mut r)?;
    let len = r.length(2, "state")?;
    if len > STATE_MAX || height > 9 {
        return Err(r.malformed("state"));
    }
    Ok(Durable {
        header,
        root,
        height,
        position,
        stored,
        deleting: flags & FLAG_DELETING != 0,
        credit,
        state: r.bytes(len, "state")?.to_vec(),
    })
}
