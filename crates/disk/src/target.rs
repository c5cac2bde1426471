//! The file or device that IO goes to: its shape, and which IO it admits.
use std::fs::File;
use std::sync::Arc;

use block::{
    ByteLen, ByteOffset, Completion, DiskErrorKind, Geometry, Io, IoId, IoMode, PAGE_LEN,
    SectorSize,
};
use rustix::io::Result;

use crate::flight::Flight;
use crate::ioctl;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Device,
}

#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) file: Arc<File>,
    pub(crate) kind: Kind,
    pub(crate) read_only: bool,
    /// A file that had fewer blocks than bytes when it was opened.
    pub(crate) sparse: bool,
    /// The error of a flush that failed while the disk was opened, until a flush has told it.
    pub(crate) lost: Option<i32>,
    /// As it was at the last look; only the size ever changes.
    pub(crate) known: Geometry,
}

/// The bytes in a file or device.
pub(crate) fn size_of(file: &File, kind: Kind) -> Result<ByteLen> {
    match kind {
        Kind::File => {
            let size = rustix::fs::fstat(file)?.st_size;
            Ok(ByteLen(u64::try_from(size).unwrap_or(0)))
        }
        Kind::Device => ioctl::device_size(file),
    }
}

/// The place and the length of an IO, where it has them.
pub(crate) fn extent(io: &Io) -> Option<(ByteOffset, ByteLen)> {
    match io {
        Io::Read { at, buf } => Some((*at, ByteLen(buf.len() as u64))),
        Io::Write { at, data } => Some((*at, ByteLen(data.len() as u64))),
        Io::Trim { at, len } | Io::Allocate { at, len } => Some((*at, *len)),
        Io::Flush => None,
    }
}

impl Target {
    pub(crate) fn geometry(&self) -> Geometry {
        let mut geometry = self.known;
        if let Ok(size) = size_of(&self.file, self.kind) {
            geometry.size = whole_sectors(size, geometry.sector);
        }
        geometry
    }

    /// An IO that is to be done, or what became of one that the kernel need not see.
    pub(crate) fn admit(&mut self, id: IoId, io: Io) -> std::result::Result<Flight, Completion> {
        let decided = self.decide(&io);
        let flight = Flight::new(id, io);
        match decided {
            Some(result) => Err(flight.end(result)),
            None => Ok(flight),
        }
    }

    /// Decides about an IO that the kernel need not see; `None` where it must.
    fn decide(&mut self, io: &Io) -> Option<std::result::Result<(), DiskErrorKind>> {
        if matches!(io, Io::Flush)
            && let Some(code) = self.lost.take()
        {
            return Some(Err(DiskErrorKind::System(code)));
        }
        let (at, len) = extent(io)?;
        if self.read_only && !matches!(io, Io::Read { .. }) {
            return Some(Err(DiskErrorKind::System(libc::EROFS)));
        }
        if !self.is_aligned(io, at, len) {
            return Some(Err(DiskErrorKind::System(libc::EINVAL)));
        }
        if !self.contains(at, len) {
            return Some(Err(DiskErrorKind::OutOfRange));
        }
        // A device has all of its space.
        if self.kind == Kind::Device && matches!(io, Io::Allocate { .. }) {
            return Some(Ok(()));
        }
        // The system has several opinions on empty ranges, so it is not asked.
        (len.0 == 0).then_some(Ok(()))
    }

    /// The same rule in both modes: what works through the page cache must not fail directly.
    fn is_aligned(&self, io: &Io, at: ByteOffset, len: ByteLen) -> bool {
        let sector = self.known.sector.bytes();
        let memory = match io {
            Io::Write { data, .. } => data.is_aligned(self.sector_len()),
            _ => true,
        };
        memory && at.0.is_multiple_of(sector) && len.0.is_multiple_of(sector)
    }

    fn contains(&mut self, at: ByteOffset, len: ByteLen) -> bool {
        let Some(end) = at.end(len) else {
            return false;
        };
        if end.0 > self.known.size.0 {
            self.known = self.geometry();
        }
        end.0 <= self.known.size.0
    }

    pub(crate) fn sector_len(&self) -> usize {
        match self.known.sector {
            SectorSize::B512 => 512,
            SectorSize::B4096 => PAGE_LEN,
        }
    }
}

/// A last piece of a file that no sector covers cannot be addressed, so it does not count.
pub(crate) fn whole_sectors(size: ByteLen, sector: SectorSize) -> ByteLen {
    ByteLen(size.0 - size.0 % sector.bytes())
}

/// What direct IO of a file or device is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) sector: SectorSize,
    pub(crate) physical_sector: SectorSize,
    pub(crate) mode: IoMode,
}

#[cfg(test)]
mod tests {
    use block::Done;

    use super::*;
    use crate::tests::Scratch;

    /// Protects from an error that the system tells once, and that its first hearer keeps to itself.
    #[test]
    fn a_flush_that_failed_before_is_told_by_the_first_one() {
        let scratch = Scratch::file(4096);
        let known = Geometry {
            size: ByteLen(4096),
            sector: SectorSize::B512,
            physical_sector: SectorSize::B4096,
            mode: IoMode::Buffered,
        };
        let file = Arc::new(File::open(scratch.path()).unwrap());
        let (kind, lost) = (Kind::File, Some(libc::EIO));
        let mut target = Target { file, kind, read_only: false, sparse: false, lost, known };
        let read = || Io::Read { at: ByteOffset(0), buf: block::Buf::zeroed(512) };
        assert!(target.admit(IoId(1), read()).is_ok());
        let told = target.admit(IoId(2), Io::Flush).map(drop).unwrap_err();
        let error = told.result.map(|done| matches!(done, Done::Flushed)).unwrap_err();
        assert_eq!(error.kind, DiskErrorKind::System(libc::EIO));
        assert!(error.loses_writes());
        assert!(target.admit(IoId(3), Io::Flush).is_ok(), "once");
    }
}
