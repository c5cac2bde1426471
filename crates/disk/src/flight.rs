//! One IO between its submission and its completion: how far it came, and what becomes of it.
use block::{ByteLen, ByteOffset, Completion, DiskError, DiskErrorKind, Done, Io, IoId};

use crate::target::extent;

/// An IO that the system keeps putting off fails after this many attempts without a byte moved.
const STALLS_MAX: u16 = 1000;

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) id: IoId,
    pub(crate) io: Io,
    /// Bytes that moved already; a multiple of the sector.
    pub(crate) done: usize,
    stalls: u16,
}

/// What the system said to an attempt: the bytes that it moved, or its error number.
pub(crate) type Outcome = Result<usize, i32>;

/// What follows from an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The rest is still to be done.
    Again,
    End(Result<(), DiskErrorKind>),
}

impl Flight {
    pub(crate) fn new(id: IoId, io: Io) -> Flight {
        Flight { id, io, done: 0, stalls: 0 }
    }

    pub(crate) fn advance(&mut self, outcome: Outcome, sector_len: usize) -> Next {
        match outcome {
            Ok(moved) => self.moved(moved, sector_len),
            Err(libc::EINTR | libc::EAGAIN) if self.stalls < STALLS_MAX => {
                self.stalls += 1;
                Next::Again
            }
            // A trim is advice: not being able to take it is no failure. Nor is a file system that takes
            // space only when something is written.
            Err(libc::EOPNOTSUPP) if matches!(self.io, Io::Trim { .. } | Io::Allocate { .. }) => {
                Next::End(Ok(()))
            }
            Err(code) => Next::End(Err(DiskErrorKind::System(code))),
        }
    }

    fn moved(&mut self, moved: usize, sector_len: usize) -> Next {
        let len = match &self.io {
            Io::Read { buf, .. } => buf.len(),
            Io::Write { data, .. } => data.len(),
            Io::Flush | Io::Trim { .. } | Io::Allocate { .. } => return Next::End(Ok(())),
        };
        // The end of a shrunk file may lie within a sector, where direct IO cannot go on from.
        let whole = moved - moved % sector_len;
        if whole == 0 {
            return Next::End(Err(DiskErrorKind::Short));
        }
        self.stalls = 0;
        self.done += whole;
        if self.done < len { Next::Again } else { Next::End(Ok(())) }
    }

    pub(crate) fn end(self, result: Result<(), DiskErrorKind>) -> Completion {
        let id = self.id;
        let result = match result {
            Ok(()) => Ok(match self.io {
                Io::Read { buf, .. } => Done::Read(buf),
                Io::Write { .. } => Done::Written,
                Io::Flush => Done::Flushed,
                Io::Trim { .. } => Done::Trimmed,
                Io::Allocate { .. } => Done::Allocated,
            }),
            Err(kind) => Err(self.error(kind)),
        };
        Completion { id, result }
    }

    fn error(&self, kind: DiskErrorKind) -> DiskError {
        let operation = match self.io {
            Io::Read { .. } => "read",
            Io::Write { .. } => "write",
            Io::Flush => "flush",
            Io::Trim { .. } => "trim",
            Io::Allocate { .. } => "allocation",
        };
        let (at, len) = extent(&self.io).unwrap_or((ByteOffset(0), ByteLen(0)));
        DiskError { operation, at, len, kind }
    }
}

#[cfg(test)]
mod tests {
    use block::{Buf, Data};

    use super::*;

    fn read(len: usize) -> Flight {
        let buf = Buf::zeroed(len);
        Flight::new(IoId(1), Io::Read { at: ByteOffset(0), buf })
    }

    /// Protects from reporting a half-done IO as done, or as failed.
    #[test]
    fn a_short_transfer_goes_on_until_all_bytes_moved() {
        let mut flight = read(8192);
        assert_eq!(flight.advance(Ok(4096), 512), Next::Again);
        assert_eq!(flight.advance(Ok(700), 512), Next::Again);
        assert_eq!(flight.done, 4608, "the piece of a sector is done again");
        assert_eq!(flight.advance(Ok(3584), 512), Next::End(Ok(())));
    }

    /// Protects from an endless loop on a device that moves nothing.
    #[test]
    fn a_transfer_without_progress_is_short() {
        let short = Next::End(Err(DiskErrorKind::Short));
        assert_eq!(read(4096).advance(Ok(0), 512), short);
        assert_eq!(read(4096).advance(Ok(511), 512), short);
    }

    /// Protects from failing an IO that only a signal disturbed, and from retrying it for ever.
    #[test]
    fn interruptions_are_retried_and_not_for_ever() {
        let mut flight = read(4096);
        for _ in 0..STALLS_MAX {
            assert_eq!(flight.advance(Err(libc::EINTR), 512), Next::Again);
        }
        let failed = Next::End(Err(DiskErrorKind::System(libc::EAGAIN)));
        assert_eq!(flight.advance(Err(libc::EAGAIN), 512), failed);
    }

    /// Protects from failing a pool on devices that cannot trim, and from hiding other failures.
    #[test]
    fn only_a_trim_may_be_unsupported() {
        let (at, len) = (ByteOffset(0), ByteLen(4096));
        let mut trim = Flight::new(IoId(1), Io::Trim { at, len });
        assert_eq!(trim.advance(Err(libc::EOPNOTSUPP), 512), Next::End(Ok(())));
        let io_error = Next::End(Err(DiskErrorKind::System(libc::EIO)));
        assert_eq!(trim.advance(Err(libc::EIO), 512), io_error);
        let data = Data::copy_of(&[0; 512]);
        let mut write = Flight::new(IoId(1), Io::Write { at, data });
        let refused = Next::End(Err(DiskErrorKind::System(libc::EOPNOTSUPP)));
        assert_eq!(write.advance(Err(libc::EOPNOTSUPP), 512), refused);
    }
}
