//! The superblock: the one place from which everything of a pool is found.
//!
//! Invariants:
//! - Epoch E lives in the pair of slots E mod 2: copy 1 near the start of the device, copy 2
//!   [`COPY_GAP`](crate::limits::COPY_GAP) behind it. Copy 1 is written and flushed before copy 2
//!   is begun, and the epoch counts only when copy 2 is flushed.
//! - So a power cut leaves at most one bad copy. Two bad copies of one pair are damage: which of
//!   two epochs was lost cannot be told, and the other pair may be an older state.
use block::SectorSize;
use thiserror::Error;

use super::codec::{Malformed, Reader, Writer};
use super::page::PagePtr;
use crate::units::{Birth, Checksum, Epoch, Sector, Session, Slot};

pub const SUPERBLOCK_LEN: usize = 4096;
const MAGIC: &[u8; 8] = b"POLLUXSB";
/// 1: the first.
pub const FORMAT_VERSION: u32 = 1;

/// Top space pages that the superblock names.
pub const SPACE_ROOTS_MAX: usize = 128;
const SPACE_ROOTS_AT: usize = 1024;

/// What the superblock says of one top space page. Like `SpaceEntry`, with room for the count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceRoot {
    pub epoch: Epoch,
    pub home: u8,
    pub free: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub uuid: [u8; 16],
    pub sector: SectorSize,
    pub epoch: Epoch,
    pub session: Session,
    /// Closed with everything durable and nothing to replay.
    pub clean: bool,
    /// Sectors of the device that belong to the pool.
    pub sectors: u64,
    pub regions_at: Sector,
    pub journal_at: Sector,
    pub journal_blocks: u64,
    pub replay_from: Slot,
    pub durable: Slot,
    pub directory: Option<PagePtr>,
    pub directory_height: u8,
    /// The newest birth that was given.
    pub birth: Birth,
    pub next_object: u64,
    pub reserve: u64,
    pub space: Vec<SpaceRoot>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SuperblockProblem {
    #[error("it is no superblock of a Pollux pool")]
    Foreign,
    #[error("its checksum does not match its bytes")]
    Checksum,
    #[error("it has format version {found}; this program knows version {FORMAT_VERSION}")]
    Version { found: u32 },
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

impl Superblock {
    /// The first eight bytes of the uuid, which every slot and page carries.
    pub fn pool(&self) -> u64 {
        pool_tag(&self.uuid)
    }

    pub fn encode(&self, bytes: &mut [u8]) {
        assert_eq!(bytes.len(), SUPERBLOCK_LEN, "a superblock has one size");
        bytes.fill(0);
        let mut w = Writer::new(bytes);
        w.skip_to(8);
        w.bytes(MAGIC);
        w.number(4, u64::from(FORMAT_VERSION));
        w.number(4, self.sector.bytes());
        w.bytes(&self.uuid);
        w.number(8, self.epoch.0);
        w.number(8, self.session.0);
        w.number(8, u64::from(self.clean));
        for value in [self.sectors, self.regions_at.0, self.journal_at.0, self.journal_blocks] {
            w.number(8, value);
        }
        w.number(8, self.replay_from.0);
        w.number(8, self.durable.0);
        let root = self.directory.map_or([0; 3], |p| [p.places[0].0, p.places[1].0, p.born.0]);
        root.into_iter().for_each(|value| w.number(8, value));
        w.number(8, u64::from(self.directory_height));
        w.number(8, self.birth.0);
        w.number(8, self.next_object);
        w.number(8, self.reserve);
        w.number(8, self.space.len() as u64);
        w.skip_to(SPACE_ROOTS_AT);
        for root in &self.space {
            w.number(8, root.epoch.0 << 1 | u64::from(root.home));
            w.number(8, root.free);
        }
        let sum = Checksum::of(&bytes[8..]);
        Writer::new(bytes).number(8, sum.0);
    }

    pub fn decode(bytes: &[u8]) -> Result<Superblock, SuperblockProblem> {
        let mut r = Reader::new(bytes);
        let sum = r.number(8, "superblock")?;
        if r.bytes(8, "magic")? != MAGIC {
            return Err(SuperblockProblem::Foreign);
        }
        if bytes.len() != SUPERBLOCK_LEN || Checksum::of(&bytes[8..]).0 != sum {
            return Err(SuperblockProblem::Checksum);
        }
        let version = u32::try_from(r.number(4, "version")?).expect("four bytes");
        if version != FORMAT_VERSION {
            return Err(SuperblockProblem::Version { found: version });
        }
        Ok(Superblock::decode_fields(&mut r, bytes)?)
    }

    fn decode_fields(r: &mut Reader<'_>, bytes: &[u8]) -> Result<Superblock, Malformed> {
        let sector = SectorSize::from_bytes(r.number(4, "sector size")?)
            .ok_or_else(|| r.malformed("sector size"))?;
        let uuid = r.bytes(16, "uuid")?.try_into().expect("sixteen bytes");
        let mut next = |what| r.number(8, what);
        let mut superblock = Superblock {
            uuid,
            sector,
            epoch: Epoch(next("epoch")?),
            session: Session(next("session")?),
            clean: next("clean")? == 1,
            sectors: next("size")?,
            regions_at: Sector(next("regions")?),
            journal_at: Sector(next("journal")?),
            journal_blocks: next("journal size")?,
            replay_from: Slot(next("replay")?),
            durable: Slot(next("durable")?),
            directory: None,
            directory_height: 0,
            birth: Birth(0),
            next_object: 0,
            reserve: 0,
            space: Vec::new(),
        };
        let root = [next("directory")?, next("directory")?, next("directory")?];
        if root[0] != 0 {
            let places = [Sector(root[0]), Sector(root[1])];
            superblock.directory = Some(PagePtr { places, born: Birth(root[2]) });
        }
        let height = next("directory height")?;
        superblock.birth = Birth(next("birth")?);
        superblock.next_object = next("next object")?;
        superblock.reserve = next("reserve")?;
        let roots = next("space roots")?;
        superblock.directory_height =
            u8::try_from(height).map_err(|_| r.malformed("directory height"))?;
        if superblock.birth.0 >> 39 != 0 || superblock.next_object >> 48 != 0 {
            return Err(r.malformed("birth"));
        }
        if roots > SPACE_ROOTS_MAX as u64 || superblock.journal_blocks == 0 {
            return Err(r.malformed("space roots"));
        }
        let mut r = Reader::new(&bytes[SPACE_ROOTS_AT..]);
        for _ in 0..roots {
            let word = r.number(8, "space root")?;
            let free = r.number(8, "space root")?;
            superblock.space.push(SpaceRoot {
                epoch: Epoch(word >> 1),
                home: (word & 1) as u8,
                free,
            });
        }
        Ok(superblock)
    }
}

pub fn pool_tag(uuid: &[u8; 16]) -> u64 {
    u64::from_le_bytes(uuid[..8].try_into().expect("eight of sixteen bytes"))
}
