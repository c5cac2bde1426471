//! A disk in memory that answers at once, and notices whoever asks without end.
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use block::{
    ByteLen, Completion, Disk, DiskError, DiskErrorKind, Done, Geometry, Io, IoId, IoMode,
    SectorSize, Wait,
};

use crate::change::checksum;
use crate::pools::{Kind, Structure};

pub const PAGE: usize = 4096;
/// Two regions where sectors have 512 B, a part of one where they have 4 KiB.
const LEN: usize = 24 << 20;
/// IOs that opening or checking a pool of this size may need: more is a loop.
const IOS_MAX: u64 = 200_000;
/// The longest IO that the engine has a reason for is 1 MiB: a window of the journal.
const IO_LEN_MAX: usize = 2 << 20;

/// A disk in memory, of which only what was written is kept. A copy shares it.
pub struct MemDisk {
    sector: SectorSize,
    pages: HashMap<usize, Arc<[u8; PAGE]>>,
    done: VecDeque<Completion>,
    ios: u64,
    /// Pages that were read.
    pub looked_at: HashSet<usize>,
}

impl Clone for MemDisk {
    fn clone(&self) -> MemDisk {
        MemDisk { pages: self.pages.clone(), ..MemDisk::blank(self.sector) }
    }
}

impl MemDisk {
    pub fn blank(sector: SectorSize) -> MemDisk {
        let (pages, done, looked_at) = (HashMap::new(), VecDeque::new(), HashSet::new());
        MemDisk { sector, pages, done, ios: 0, looked_at }
    }

    fn read(&self, at: usize, into: &mut [u8]) {
        for (i, byte_at) in (at..at + into.len()).step_by(512).enumerate() {
            let part = &mut into[i * 512..(i + 1) * 512];
            match self.pages.get(&(byte_at / PAGE)) {
                Some(page) => part.copy_from_slice(&page[byte_at % PAGE..][..512]),
                None => part.fill(0),
            }
        }
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        for (i, part) in bytes.chunks_exact(512).enumerate() {
            let byte_at = at + i * 512;
            let page = self.pages.entry(byte_at / PAGE).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[byte_at % PAGE..][..512].copy_from_slice(part);
        }
    }

    pub fn bytes(&self, structure: &Structure) -> Vec<u8> {
        let mut bytes = vec![0; structure.len];
        self.read(structure.at, &mut bytes);
        bytes
    }

    /// Everything that is whole, in the order of its place. All of it begins at a page.
    pub fn structures(&self) -> Vec<Structure> {
        let mut places: Vec<usize> = self.pages.keys().map(|page| page * PAGE).collect();
        places.sort_unstable();
        let found = places.into_iter().filter_map(|at| {
            let page = &self.pages[&(at / PAGE)];
            let (kind, len) = match &page[8..] {
                [b'P', b'O', b'L', b'L', b'U', b'X', b'S', b'B', ..] => (Kind::Superblock, PAGE),
                [b'P', b'L', b'X', b'J', ..] => (Kind::Slot, usize::from(page[14]) * PAGE),
                [b'P', b'L', b'X', b'P', ..] => (Kind::Page, PAGE),
                _ => return None,
            };
            let structure = Structure { kind, at, len };
            let bytes = self.bytes(&structure);
            (checksum(&bytes[8..]).to_le_bytes() == bytes[..8]).then_some(structure)
        });
        found.collect()
    }

    fn answer(&mut self, io: Io) -> Result<Done, DiskError> {
        self.ios += 1;
        assert!(self.ios < IOS_MAX, "disk: asked without end");
        let (operation, at, len) = match &io {
            Io::Read { at, buf } => ("read", *at, buf.len()),
            Io::Write { at, data } => ("write", *at, data.len()),
            Io::Flush => return Ok(Done::Flushed),
            Io::Trim { .. } => return Ok(Done::Trimmed),
            Io::Allocate { .. } => return Ok(Done::Allocated),
        };
        assert!(len <= IO_LEN_MAX, "disk: a {operation} of {len} bytes");
        let sector = self.sector.bytes();
        assert!(
            at.0.is_multiple_of(sector) && (len as u64).is_multiple_of(sector),
            "disk: {operation} between sectors"
        );
        let len = ByteLen(len as u64);
        if at.end(len).is_none_or(|end| end.0 > LEN as u64) {
            return Err(DiskError { operation, at, len, kind: DiskErrorKind::OutOfRange });
        }
        let at = usize::try_from(at.0).expect("it lies within the image");
        match io {
            Io::Read { mut buf, .. } => {
                self.read(at, &mut buf);
                self.looked_at.extend(at / PAGE..(at + buf.len()).div_ceil(PAGE));
                Ok(Done::Read(buf))
            }
            Io::Write { data, .. } => {
                self.write(at, &data);
                Ok(Done::Written)
            }
            Io::Flush | Io::Trim { .. } | Io::Allocate { .. } => unreachable!("answered above"),
        }
    }
}

impl Disk for MemDisk {
    fn geometry(&self) -> Geometry {
        let size = ByteLen(LEN as u64);
        Geometry { size, sector: self.sector, physical_sector: self.sector, mode: IoMode::Direct }
    }

    fn submit(&mut self, id: IoId, io: Io) {
        let result = self.answer(io);
        self.done.push_back(Completion { id, result });
    }

    fn kick(&mut self) {}

    fn complete(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }
}

impl Wait for MemDisk {
    fn wait(&mut self, _at_most: Option<Duration>) {
        // Whoever waits though nothing is under way, and waits again, waits for ever.
        self.ios += 1;
        assert!(self.ios < IOS_MAX, "disk: waited for without end");
    }
}
