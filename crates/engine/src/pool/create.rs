//! Making a pool.
use block::{Buf, ByteLen, ByteOffset, SectorSize, Wait};

use crate::error::CreateError;
use crate::format::{SPACE_ROOTS_MAX, SUPERBLOCK_LEN, SpaceRoot, Superblock, SuperblockProblem};
use crate::limits::{JOURNAL_AT, JOURNAL_BLOCK, JOURNAL_MAX, JOURNAL_MIN, MAP_PAGE, POOL_MIN};
use crate::pool::backing::step_up;
use crate::pool::blocking;
use crate::space::Layout;
use crate::units::{Birth, Epoch, Sector, Session, Slot};

#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    pub uuid: [u8; 16],
    /// The device's physical sector unless told otherwise.
    pub sector: Option<SectorSize>,
    /// A 32nd of the pool unless told otherwise: with little load, every write takes a block of it,
    /// and half of it between two checkpoints should be worth one.
    pub journal: Option<ByteLen>,
    /// Whether a pool that is there already may be lost.
    pub overwrite: bool,
}

/// The reserve: a 32nd of the pool, within bounds. It must hold one operation's worth of map
/// pages at the least; more lets more discards share a checkpoint.
const RESERVE_MIN: u64 = 1 << 20;
const RESERVE_MAX: u64 = 256 << 20;

/// Makes a pool on a device. Nothing is written before everything was checked, and until the last
/// write the device is no pool.
pub fn create<D: Wait>(disk: &mut D, options: &CreateOptions) -> Result<(), CreateError> {
    let superblock = plan(disk, options)?;
    if !options.overwrite && holds_pool(disk)? {
        return Err(CreateError::HoldsPool);
    }
    if disk.is_sparse() {
        // What is written in place has its space from the start, and with it a first step.
        let layout = Layout::of(&superblock);
        let end = step_up(&layout, layout.first_home_end().0);
        blocking::allocate(disk, ByteOffset(0), layout.bytes(end))?;
    }
    // Journal blocks of an earlier pool on this device name another uuid, so they need no wiping.
    write_superblocks(disk, &superblock)
}

fn plan<D: Wait>(disk: &D, options: &CreateOptions) -> Result<Superblock, CreateError> {
    let geometry = disk.geometry();
    let sector = options.sector.unwrap_or(geometry.physical_sector);
    if sector.bytes() < geometry.sector.bytes() {
        let (device, asked) = (geometry.sector.bytes(), sector.bytes());
        return Err(CreateError::Sector { device, asked });
    }
    let size = ByteLen(geometry.size.0 - geometry.size.0 % 4096);
    let (min, max) = (JOURNAL_MIN, JOURNAL_MAX);
    let journal = match options.journal {
        Some(asked) if !(min..=max).contains(&asked.0) || asked.0 % JOURNAL_BLOCK as u64 != 0 => {
            return Err(CreateError::Journal { asked, min: ByteLen(min), max: ByteLen(max) });
        }
        Some(asked) => asked.0,
        None => (size.0 / 32).clamp(min, max) / JOURNAL_BLOCK as u64 * JOURNAL_BLOCK as u64,
    };
    if size.0 < POOL_MIN || size.0 < JOURNAL_AT + journal + POOL_MIN / 2 {
        return Err(CreateError::TooSmall { size });
    }
    let per = |bytes: u64| bytes / sector.bytes();
    let mut superblock = Superblock {
        uuid: options.uuid,
        sector,
        epoch: Epoch(0),
        session: Session(0),
        clean: true,
        sectors: per(size.0),
        regions_at: Sector(per(JOURNAL_AT + journal)),
        journal_at: Sector(per(JOURNAL_AT)),
        journal_blocks: journal / JOURNAL_BLOCK as u64,
        replay_from: Slot(1),
        durable: Slot(0),
        directory: None,
        directory_height: 0,
        birth: Birth(0),
        next_object: 1,
        reserve: per((size.0 / 32).clamp(RESERVE_MIN, RESERVE_MAX)),
        space: Vec::new(),
    };
    let roots = Layout::of(&superblock).roots();
    if roots > SPACE_ROOTS_MAX as u64 {
        let max = ByteLen(size.0 / roots * SPACE_ROOTS_MAX as u64);
        return Err(CreateError::TooLarge { size, sector: sector.bytes(), max });
    }
    superblock.space = (0..roots).map(|_| SpaceRoot::default()).collect();
    Ok(superblock)
}

fn holds_pool<D: Wait>(disk: &mut D) -> Result<bool, CreateError> {
    for epoch in [Epoch(0), Epoch(1)] {
        for copy in 0..2 {
            let at = Layout::superblock(epoch, copy);
            let bytes = blocking::read(disk, at, SUPERBLOCK_LEN)?;
            if !matches!(Superblock::decode(&bytes), Err(SuperblockProblem::Foreign)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// All four superblocks, the two pairs of epochs 0 and 1, so that a bad pair is always damage.
fn write_superblocks<D: Wait>(disk: &mut D, superblock: &Superblock) -> Result<(), CreateError> {
    // Old superblocks go first: a half-made pool must not open as the one before.
    for pass in 0..2 {
        for copy in 0..2 {
            for epoch in [Epoch(0), Epoch(1)] {
                let mut bytes = Buf::zeroed(MAP_PAGE);
                if pass == 1 {
                    Superblock { epoch, ..superblock.clone() }.encode(&mut bytes);
                }
                blocking::write(disk, Layout::superblock(epoch, copy), bytes.into_data())?;
            }
        }
        blocking::flush(disk)?;
    }
    Ok(())
}
