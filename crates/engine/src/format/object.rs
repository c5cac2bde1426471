//! An object page: one volume, one snapshot, or a map that nobody has any more.
//!
//! Invariants:
//! - The page is the only durable description of the object; everything in it is of one instant.
//! - All kinds have the same fields at the same places; those that a kind does not use are zero,
//!   and a reader skips what it does not know behind the state.
use block::{Position, Seq, Term};

use super::codec::{Malformed, Reader, Writer};
use super::page::{Child, Held, PAGE_HEADER, PagePtr};
use crate::limits::{MAP_PAGE, NAME_MAX, STATE_MAX, VOLUME_MAX};
use crate::snapshot::{Cut, Floor, Object, Orphan};
use crate::units::{Birth, Granule, Sector, SnapshotId, VolumeId};
use crate::volume::{BlockSize, Compression, Durable, Header, MapRoot, Staging};

const KIND_VOLUME: u64 = 1;
const KIND_SNAPSHOT: u64 = 2;
const KIND_ORPHAN: u64 = 3;

const FLAG_ATTACHED: u64 = 1;
const FLAG_STAGING: u64 = 2;
const FLAG_INTERNAL: u64 = 4;
const FLAG_DELETED: u64 = 8;

/// Room for fields of later versions, zero until then.
const SPARE: usize = 128;

pub fn header_len(header: &Header) -> usize {
    16 + 8 + 4 + 1 + 1 + 2 + header.name.len()
}

pub fn encode_header(w: &mut Writer<'_>, header: &Header) {
    w.bytes(&header.uid);
    w.number(8, header.size);
    w.number(4, header.block_size.bytes());
    w.byte(header.compression.byte());
    w.byte(0);
    w.number(2, header.name.len() as u64);
    w.bytes(header.name.as_bytes());
}

pub fn decode_header(r: &mut Reader<'_>) -> Result<Header, Malformed> {
    let uid = r.bytes(16, "uid")?.try_into().expect("sixteen bytes");
    let size = r.number(8, "size")?;
    let block_size = r.number(4, "block size")?;
    let block_size = BlockSize::new(block_size).ok_or_else(|| r.malformed("block size"))?;
    let compression = r.byte("compression")?;
    let compression =
        Compression::from_byte(compression).ok_or_else(|| r.malformed("compression"))?;
    r.byte("padding")?;
    let len = r.length(2, "name")?;
    let name = std::str::from_utf8(r.bytes(len, "name")?).map_err(|_| r.malformed("name"))?;
    if name.len() > NAME_MAX || size > VOLUME_MAX {
        return Err(r.malformed("name"));
    }
    Ok(Header { name: name.into(), uid, size, block_size, compression })
}

/// The fields of all kinds of objects.
#[derive(Default)]
struct Fields {
    kind: u64,
    flags: u64,
    position: Position,
    parent: u64,
    /// The volume that a snapshot, an orphan or a staging volume is of.
    of: u64,
    /// Progress of an import, or how far a map was dropped.
    progress: u64,
    birth: u64,
    created: u64,
    credit: u64,
    floor: Floor,
}

impl Fields {
    fn of(object: &Object) -> Fields {
        let flag = |is: bool, flag| if is { flag } else { 0 };
        match object {
            Object::Volume(volume) => Fields {
                kind: KIND_VOLUME,
                flags: flag(volume.attached, FLAG_ATTACHED)
                    | flag(volume.staging.is_some(), FLAG_STAGING),
                position: volume.position,
                parent: volume.parent.map_or(0, |parent| parent.0),
                of: volume.staging.map_or(0, |staging| staging.of.0),
                progress: volume.staging.map_or(0, |staging| staging.progress),
                credit: volume.credit,
                ..Fields::default()
            },
            Object::Snapshot(cut) => Fields {
                kind: KIND_SNAPSHOT,
                flags: flag(cut.internal, FLAG_INTERNAL) | flag(cut.deleted, FLAG_DELETED),
                position: cut.position,
                parent: cut.parent.map_or(0, |parent| parent.0),
                of: cut.volume.0,
                progress: cut.dropped.0,
                birth: cut.birth.0,
                created: cut.created,
                ..Fields::default()
            },
            Object::Orphan(orphan) => Fields {
                kind: KIND_ORPHAN,
                of: orphan.volume.0,
                progress: orphan.dropped.0,
                floor: orphan.floor,
                ..Fields::default()
            },
        }
    }

    fn encode(&self, w: &mut Writer<'_>) {
        for value in [
            self.position.term.0,
            self.position.seq.0,
            self.parent,
            self.of,
            self.progress,
            self.birth,
            self.created,
            self.credit,
            self.floor.below.0,
            self.floor.cut.0,
            self.floor.above.0,
        ] {
            w.number(8, value);
        }
    }

    fn decode(kind: u64, flags: u64, r: &mut Reader<'_>) -> Result<Fields, Malformed> {
        let mut next = || r.number(8, "object");
        Ok(Fields {
            kind,
            flags,
            position: Position { term: Term(next()?), seq: Seq(next()?) },
            parent: next()?,
            of: next()?,
            progress: next()?,
            birth: next()?,
            created: next()?,
            credit: next()?,
            floor: Floor { below: Birth(next()?), cut: Granule(next()?), above: Birth(next()?) },
        })
    }
}

/// Writes the body of an object page; the header is the page's own.
pub fn encode(page: &mut [u8], object: &Object) {
    let mut w = Writer::new(&mut page[PAGE_HEADER..]);
    let fields = Fields::of(object);
    let (map, header, state): (MapRoot, &Header, &[u8]) = match object {
        Object::Volume(volume) => (volume.map, &volume.header, &volume.state),
        Object::Snapshot(cut) => (cut.map, &cut.header, &cut.state),
        Object::Orphan(orphan) => (orphan.map, &orphan.header, &[]),
    };
    w.number(2, fields.kind);
    w.number(2, fields.flags);
    w.number(4, u64::from(map.height));
    let (places, born) = match map.root {
        Child::Hole { .. } => ([0, 0], 0),
        Child::Page { ptr, .. } => ([ptr.places[0].0, ptr.places[1].0], ptr.born.0),
    };
    let held = map.root.held();
    for value in [places[0], places[1], born, map.root.changed().0, held.blocks, held.stored] {
        w.number(8, value);
    }
    fields.encode(&mut w);
    w.skip_to(w.at() + SPARE);
    encode_header(&mut w, header);
    w.number(2, state.len() as u64);
    w.bytes(state);
}

pub fn decode(page: &[u8]) -> Result<Object, Malformed> {
    if page.len() != MAP_PAGE {
        return Err(Malformed { what: "object page", at: 0 });
    }
    let mut r = Reader::new(&page[PAGE_HEADER..]);
    let kind = r.number(2, "kind")?;
    let flags = r.number(2, "flags")?;
    let height = r.number(4, "height")?;
    let height = u8::try_from(height).map_err(|_| r.malformed("height"))?;
    let mut next = || r.number(8, "map");
    let (a, b, born, changed) = (next()?, next()?, next()?, Seq(next()?));
    let held = Held { blocks: next()?, stored: next()? };
    let root = match a {
        0 => Child::Hole { changed },
        _ => {
            let ptr = PagePtr { places: [Sector(a), Sector(b)], born: Birth(born) };
            Child::Page { ptr, changed, held }
        }
    };
    let map = MapRoot { root, height };
    let fields = Fields::decode(kind, flags, &mut r)?;
    r.bytes(SPARE, "spare fields")?;
    let header = decode_header(&mut r)?;
    let len = r.length(2, "state")?;
    if len > STATE_MAX || height > 9 {
        return Err(r.malformed("state"));
    }
    let state = r.bytes(len, "state")?.to_vec();
    match fields.kind {
        KIND_VOLUME => Ok(Object::Volume(fields.volume(header, map, state))),
        KIND_SNAPSHOT => Ok(Object::Snapshot(fields.cut(header, map, state))),
        KIND_ORPHAN => Ok(Object::Orphan(fields.orphan(header, map))),
        _ => Err(r.malformed("object kind")),
    }
}

impl Fields {
    fn parent(&self) -> Option<SnapshotId> {
        (self.parent != 0).then_some(SnapshotId(self.parent))
    }

    fn volume(&self, header: Header, map: MapRoot, state: Vec<u8>) -> Durable {
        let staging = Staging { of: VolumeId(self.of), progress: self.progress };
        Durable {
            header,
            map,
            position: self.position,
            parent: self.parent(),
            attached: self.flags & FLAG_ATTACHED != 0,
            staging: (self.flags & FLAG_STAGING != 0).then_some(staging),
            credit: self.credit,
            state,
        }
    }

    fn cut(&self, header: Header, map: MapRoot, state: Vec<u8>) -> Cut {
        Cut {
            volume: VolumeId(self.of),
            header,
            map,
            position: self.position,
            parent: self.parent(),
            birth: Birth(self.birth),
            created: self.created,
            internal: self.flags & FLAG_INTERNAL != 0,
            deleted: self.flags & FLAG_DELETED != 0,
            dropped: Granule(self.progress),
            state,
        }
    }

    fn orphan(&self, header: Header, map: MapRoot) -> Orphan {
        let (volume, dropped) = (VolumeId(self.of), Granule(self.progress));
        Orphan { volume, header, map, floor: self.floor, dropped }
    }
}
