//! A disk that is only read: what is written to it stays in memory.
//!
//! A pool can be asked what changed, or what is whose, only when it is open, and opening writes.
//! On a shadow it may, and the device keeps every byte: a pool can be looked at and exported from
//! a place that cannot be written, and by several at once.
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use block::{
    Buf, ByteLen, ByteOffset, Completion, Disk, DiskError, DiskErrorKind, Done, Geometry, Io, IoId,
    LOGICAL_SECTOR, Wait,
};

const SECTOR: usize = 512;
const _: () = assert!(SECTOR as u64 == LOGICAL_SECTOR, "the finest unit of any IO");

/// 2 GiB. A journal holds at most some 256 thousand updates; the checkpoint that opening makes of
/// them writes a map page for each, twice. A pool that was closed takes a few pages.
const SECTORS_MAX: usize = (2 << 30) / SECTOR;

const ENOMEM: i32 = 12;

pub struct Shadow<D> {
    disk: D,
    written: BTreeMap<u64, [u8; SECTOR]>,
    reading: HashMap<IoId, ByteOffset>,
    done: VecDeque<Completion>,
}

impl<D: Disk> Shadow<D> {
    pub fn over(disk: D) -> Shadow<D> {
        let (reading, done) = (HashMap::new(), VecDeque::new());
        Shadow { disk, written: BTreeMap::new(), reading, done }
    }

    fn write(&mut self, at: ByteOffset, bytes: &[u8]) -> Result<Done, DiskError> {
        let len = ByteLen(bytes.len() as u64);
        let failed = |kind| DiskError { operation: "write", at, len, kind };
        if at.end(len).is_none_or(|end| end.0 > self.geometry().size.0) {
            return Err(failed(DiskErrorKind::OutOfRange));
        }
        if self.written.len() + bytes.len() / SECTOR > SECTORS_MAX {
            return Err(failed(DiskErrorKind::System(ENOMEM)));
        }
        for (sector, bytes) in (at.0 / LOGICAL_SECTOR..).zip(bytes.chunks_exact(SECTOR)) {
            let bytes = bytes.try_into().expect("chunks of a sector have its length");
            self.written.insert(sector, bytes);
        }
        Ok(Done::Written)
    }

    /// What the device has, with what was written since.
    fn overlay(&self, at: ByteOffset, buf: &mut Buf) {
        let first = at.0 / LOGICAL_SECTOR;
        let sectors = (buf.len() / SECTOR) as u64;
        for (sector, bytes) in self.written.range(first..first + sectors) {
            let from = usize::try_from(sector - first).expect("within a buffer") * SECTOR;
            buf[from..from + SECTOR].copy_from_slice(bytes);
        }
    }
}

impl<D: Disk> Disk for Shadow<D> {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn submit(&mut self, id: IoId, io: Io) {
        let result = match io {
            Io::Read { at, buf } => {
                self.reading.insert(id, at);
                return self.disk.submit(id, Io::Read { at, buf });
            }
            Io::Write { at, data } => self.write(at, &data),
            Io::Flush => Ok(Done::Flushed),
            Io::Trim { .. } => Ok(Done::Trimmed),
            Io::Allocate { .. } => Ok(Done::Allocated),
        };
        self.done.push_back(Completion { id, result });
    }

    fn kick(&mut self) {
        self.disk.kick();
    }

    fn complete(&mut self) -> Option<Completion> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let mut done = self.disk.complete()?;
        let at = self.reading.remove(&done.id);
        if let (Some(at), Ok(Done::Read(buf))) = (at, &mut done.result) {
            self.overlay(at, buf);
        }
        Some(done)
    }

    fn lend(&mut self, capacity: usize) -> Option<Buf> {
        self.disk.lend(capacity)
    }
}

impl<D: Wait> Wait for Shadow<D> {
    fn wait(&mut self, at_most: Option<Duration>) {
        if self.done.is_empty() {
            self.disk.wait(at_most);
        } else {
            self.disk.kick();
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{Data, SectorSize};
    use sim::CrashDisk;

    use super::*;

    fn run(disk: &mut impl Wait, io: Io) -> Result<Done, DiskError> {
        disk.submit(IoId(1), io);
        loop {
            disk.wait(None);
            if let Some(done) = disk.complete() {
                return done.result;
            }
        }
    }

    fn read(disk: &mut impl Wait, at: u64, len: usize) -> Vec<u8> {
        let io = Io::Read { at: ByteOffset(at), buf: Buf::zeroed(len) };
        match run(disk, io).unwrap() {
            Done::Read(buf) => buf.to_vec(),
            other => panic!("a read ended as {other:?}"),
        }
    }

    /// Protects from a look that leaves a trace.
    #[test]
    fn what_is_written_is_read_again_and_never_reaches_the_disk() {
        let mut disk = CrashDisk::new(ByteLen(1 << 20), SectorSize::B512, 1);
        let write =
            |at, byte, len| Io::Write { at: ByteOffset(at), data: Data::copy_of(&vec![byte; len]) };
        run(&mut disk, write(0, 7, 8192)).unwrap();
        let mut shadow = Shadow::over(&mut disk);
        run(&mut shadow, write(512, 9, 1024)).unwrap();
        run(&mut shadow, Io::Flush).unwrap();
        assert!(run(&mut shadow, write(1 << 20, 9, 512)).is_err(), "beyond the end");
        let mut expected = vec![7; 4096];
        expected[512..1536].fill(9);
        assert_eq!(read(&mut shadow, 0, 4096), expected);
        assert_eq!(read(&mut shadow, 1024, 1024), [[9; 512], [7; 512]].concat());
        assert_eq!(read(&mut disk, 0, 4096), vec![7; 4096]);
    }
}
