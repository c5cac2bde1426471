//! The way of an IO through the disk: checked, kicked, and finished.
use std::time::Duration;

use block::{
    ByteLen, Completion, Disk, DiskError, DiskErrorKind, Done, Geometry, Io, IoId, IoMode, Wait,
};

use super::cache::Landing;
use super::faults::{EIO, error};
use super::sparse::ENOSPC;
use super::{CrashDisk, Delivery, InFlight, Queued, Task};

impl Disk for CrashDisk {
    fn geometry(&self) -> Geometry {
        let image = self.cache.visible();
        Geometry {
            size: image.size(),
            sector: image.sector(),
            physical_sector: image.physical_sector(),
            mode: IoMode::Direct,
        }
    }

    fn is_sparse(&self) -> bool {
        self.sparse.is_some()
    }

    fn submit(&mut self, id: IoId, io: Io) {
        let (operation, at, len) = described(&io);
        let sector = self.cache.visible().sector().bytes();
        assert!(
            at.is_multiple_of(sector) && len.is_multiple_of(sector),
            "a {operation} of {len} bytes at byte {at} is not made of sectors of {sector} bytes"
        );
        let submitted_at = self.cache.clock();
        self.queue.push(Queued { id, io, submitted_at });
    }

    fn kick(&mut self) {
        for queued in std::mem::take(&mut self.queue) {
            if self.stopped() && !matches!(queued.io, Io::Read { .. }) {
                self.counters.swallowed += 1;
                if self.refuses {
                    let (operation, at, len) = described(&queued.io);
                    let error = error(operation, at, len, DiskErrorKind::System(EIO));
                    self.refused.push_back(Completion { id: queued.id, result: Err(error) });
                }
                continue;
            }
            let id = queued.id;
            let task = self.start(queued);
            self.in_flight.push_back(InFlight { id, task });
        }
    }

    fn complete(&mut self) -> Option<Completion> {
        if let Some(refused) = self.refused.pop_front() {
            return Some(refused);
        }
        if self.in_flight.is_empty() {
            return None;
        }
        let index = match self.delivery {
            Delivery::Immediate => 0,
            Delivery::Random if !self.owed && self.rng.chance(1, 4) => return None,
            Delivery::Random => self.rng.index(self.in_flight.len()),
        };
        self.owed = false;
        Some(self.complete_one(index))
    }
}

impl Wait for CrashDisk {
    fn wait(&mut self, _at_most: Option<Duration>) {
        self.kick();
        self.owed = !self.in_flight.is_empty();
    }
}

impl CrashDisk {
    /// The device takes an IO from the queue.
    fn start(&mut self, queued: Queued) -> Task {
        let (operation, at, len) = described(&queued.io);
        self.count(&queued.io, len);
        let size = self.cache.visible().size();
        if at.checked_add(len).is_none_or(|end| ByteLen(end) > size) {
            return Task::Refused(error(operation, at, len, DiskErrorKind::OutOfRange));
        }
        match queued.io {
            Io::Read { mut buf, .. } => {
                let taken = self.delivery == Delivery::Random && self.rng.chance(1, 2);
                if taken {
                    self.cache.read(at, &mut buf, &mut self.rng);
                }
                Task::Read { at, buf, taken }
            }
            Io::Write { data, .. } => Task::Write(self.cache.accept_write(at, &data)),
            Io::Trim { .. } => Task::Trim(self.cache.accept_trim(at, len, &mut self.rng)),
            Io::Allocate { .. } => Task::Allocate { at, len },
            Io::Flush => Task::Flush { covers: queued.submitted_at, no: self.counters.flushes - 1 },
        }
    }

    fn count(&mut self, io: &Io, len: u64) {
        let counters = &mut self.counters;
        match io {
            Io::Read { .. } => {
                counters.reads += 1;
                counters.bytes_read += len;
            }
            Io::Write { .. } => {
                counters.writes += 1;
                counters.bytes_written += len;
            }
            Io::Flush => counters.flushes += 1,
            Io::Trim { .. } => counters.trims += 1,
            Io::Allocate { .. } => {}
        }
    }

    /// The device is done with an IO.
    pub(super) fn finish(&mut self, task: Task) -> Result<Done, DiskError> {
        match task {
            Task::Refused(error) => Err(error),
            Task::Read { at, mut buf, taken } => {
                if let Some(error) = self.faults.of_read(at, buf.len() as u64) {
                    return Err(error);
                }
                if !taken {
                    self.cache.read(at, &mut buf, &mut self.rng);
                }
                Ok(Done::Read(buf))
            }
            Task::Allocate { at, len } => match &mut self.sparse {
                None => Ok(Done::Allocated),
                Some(sparse) => match sparse.allocate(at, len) {
                    Ok(()) => Ok(Done::Allocated),
                    Err(kind) => Err(error("allocation", at, len, kind)),
                },
            },
            Task::Write(write) => {
                let error = self.faults.of_write(write.at, write.len).or_else(|| {
                    let sparse = self.sparse.as_ref()?;
                    let missing = !sparse.holds(write.at, write.len);
                    let kind = DiskErrorKind::System(ENOSPC);
                    missing.then(|| error("write", write.at, write.len, kind))
                });
                let landing = match error {
                    None => Landing::Whole,
                    Some(_) => Landing::EitherWay,
                };
                self.cache.land(&write, landing, &mut self.rng);
                error.map_or(Ok(Done::Written), Err)
            }
            Task::Trim(write) => {
                self.cache.land(&write, Landing::Whole, &mut self.rng);
                Ok(Done::Trimmed)
            }
            Task::Flush { covers, no } => match self.faults.of_flush(no) {
                Some(error) => {
                    self.cache.strand(covers);
                    Err(error)
                }
                None => {
                    self.cache.settle(covers);
                    Ok(Done::Flushed)
                }
            },
        }
    }
}

fn described(io: &Io) -> (&'static str, u64, u64) {
    match io {
        Io::Read { at, buf } => ("read", at.0, buf.len() as u64),
        Io::Write { at, data } => ("write", at.0, data.len() as u64),
        Io::Flush => ("flush", 0, 0),
        Io::Trim { at, len } => ("trim", at.0, len.0),
        Io::Allocate { at, len } => ("allocation", at.0, len.0),
    }
}
