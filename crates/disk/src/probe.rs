//! Finds out in which units a file or device does direct IO, if it does, and switches it over.
use std::fs::File;
use std::path::Path;

use block::{Buf, ByteLen, IoMode, PAGE_LEN, SectorSize};
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::error::OpenError;
use crate::ioctl;
use crate::options::Direct;
use crate::target::{Kind, Units};

/// What a file system says about direct IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Support {
    None,
    InUnitsOf(u64),
    /// It does not say: kernels before 6.1, and file systems that were not taught to.
    Untold,
}

/// Sets the mode of IO, and tells its units.
pub(crate) fn settle(
    path: &Path,
    file: &File,
    kind: Kind,
    direct: Direct,
) -> Result<Units, OpenError> {
    let (sector, physical_sector) = match kind {
        Kind::Device => device_sectors(path, file)?,
        // A file system tears nothing smaller than its blocks, whatever lies below it.
        Kind::File => (SectorSize::B512, SectorSize::B4096),
    };
    let direct_sector = match (direct, kind) {
        (Direct::Never, _) => None,
        (Direct::Auto, Kind::Device) => switch_to_direct(path, file)?.then_some(sector),
        (Direct::Auto, Kind::File) => direct_sector(path, file)?,
    };
    if direct_sector.is_none() {
        let switch = OpenError::system(path, "set buffered IO for");
        rustix::fs::fcntl_setfl(file, OFlags::empty()).map_err(switch)?;
    }
    Ok(Units {
        sector: direct_sector.unwrap_or(sector),
        physical_sector,
        mode: match direct_sector {
            Some(_) => IoMode::Direct,
            None => IoMode::Buffered,
        },
    })
}

/// Switches in place rather than opening anew, so that lock and IO are of one file. Whether the
/// file system went along.
fn switch_to_direct(path: &Path, file: &File) -> Result<bool, OpenError> {
    match rustix::fs::fcntl_setfl(file, OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(OpenError::system(path, "set direct IO for")(error)),
    }
}

fn device_sectors(path: &Path, device: &File) -> Result<(SectorSize, SectorSize), OpenError> {
    let ask = OpenError::system(path, "ask the logical sector of");
    let logical = ioctl::logical_sector(device).map_err(ask)?;
    let ask = OpenError::system(path, "ask the physical sector of");
    let physical = ioctl::physical_sector(device).map_err(ask)?;
    let sector = supported(path, logical)?;
    // A device that writes larger units whole also writes our largest one whole.
    let physical = physical.clamp(sector.bytes(), SectorSize::B4096.bytes());
    Ok((sector, supported(path, physical)?))
}

/// The smallest sector that is a multiple of the unit. Units are powers of two.
fn supported(path: &Path, unit: u64) -> Result<SectorSize, OpenError> {
    [SectorSize::B512, SectorSize::B4096]
        .into_iter()
        .find(|sector| unit <= sector.bytes())
        .ok_or(OpenError::Alignment { path: path.into(), unit: ByteLen(unit) })
}

/// The unit of direct IO of a file that was switched to it, or `None` where it was not.
fn direct_sector(path: &Path, file: &File) -> Result<Option<SectorSize>, OpenError> {
    let support = declared(file).map_err(OpenError::system(path, "ask the alignment of"))?;
    if support == Support::None || !switch_to_direct(path, file)? {
        return Ok(None);
    }
    let support = match support {
        Support::Untold => tried(file).map_err(OpenError::system(path, "read"))?,
        told => told,
    };
    match support {
        Support::InUnitsOf(unit) => supported(path, unit).map(Some),
        Support::None | Support::Untold => Ok(None),
    }
}

fn declared(file: &File) -> rustix::io::Result<Support> {
    let found = match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
        Ok(found) => found,
        Err(Errno::NOSYS) => return Ok(Support::Untold),
        Err(error) => return Err(error),
    };
    if found.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(Support::Untold);
    }
    // Memory is aligned no better than a sector, so its rule counts as the sector's.
    Ok(match found.stx_dio_offset_align {
        0 => Support::None,
        offset => Support::InUnitsOf(offset.max(found.stx_dio_mem_align).into()),
    })
}

/// Reads in each unit, away from the natural alignment of place and memory.
fn tried(file: &File) -> rustix::io::Result<Support> {
    let mut buf = Buf::zeroed(2 * PAGE_LEN);
    for sector in [512, PAGE_LEN] {
        match rustix::io::pread(file, &mut buf[sector..2 * sector], sector as u64) {
            Ok(_) => return Ok(Support::InUnitsOf(sector as u64)),
            Err(Errno::INVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Support::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Scratch;

    /// Protects from a trial that misjudges the file system on kernels that do not tell.
    #[test]
    fn trying_finds_what_the_file_system_declares() {
        let scratch = Scratch::file(1 << 20);
        let file = File::open(scratch.path()).unwrap();
        if !switch_to_direct(scratch.path(), &file).unwrap() {
            crate::skipped!("SKIPPED: no direct IO in {}", scratch.path().display());
            return;
        }
        let tried = tried(&file).unwrap();
        assert_ne!(tried, Support::Untold);
        match declared(&file).unwrap() {
            Support::Untold => crate::skipped!("SKIPPED: the kernel does not declare an alignment"),
            declared => assert_eq!(tried, declared),
        }
    }

    /// Protects from writing in units that the device would refuse or tear.
    #[test]
    fn units_are_rounded_up_to_a_sector_or_refused() {
        let path = Path::new("/dev/x");
        assert_eq!(supported(path, 1).unwrap(), SectorSize::B512);
        assert_eq!(supported(path, 512).unwrap(), SectorSize::B512);
        assert_eq!(supported(path, 2048).unwrap(), SectorSize::B4096);
        assert_eq!(supported(path, 4096).unwrap(), SectorSize::B4096);
        let Err(OpenError::Alignment { unit, .. }) = supported(path, 16_384) else {
            panic!("a unit of 16 KiB was accepted");
        };
        assert_eq!(unit, ByteLen(16_384));
    }
}
