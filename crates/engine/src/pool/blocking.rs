//! Reading and waiting, for opening and for tools: the only places where a pool waits.
use std::collections::HashMap;

use block::{Buf, ByteLen, ByteOffset, Data, DiskError, Done, Io, IoId, Wait};

use crate::error::{CheckpointError, OpError};
use crate::pool::{Condition, Op, Pool, Reply, RequestId};
use crate::units::Epoch;

/// Reads one range and waits for it. No other IO may be under way.
pub fn read<D: Wait>(disk: &mut D, at: ByteOffset, len: usize) -> Result<Buf, DiskError> {
    disk.submit(IoId(0), Io::Read { at, buf: Buf::zeroed(len) });
    loop {
        disk.wait(None);
        if let Some(completion) = disk.complete() {
            return completion.result.map(|done| match done {
                Done::Read(buf) => buf,
                other => panic!("a read ended as {other:?}"),
            });
        }
    }
}

fn finish<D: Wait>(disk: &mut D) -> Result<(), DiskError> {
    loop {
        disk.wait(None);
        if let Some(completion) = disk.complete() {
            return completion.result.map(|_| ());
        }
    }
}

/// Writes one range and waits for it. No other IO may be under way.
pub fn write<D: Wait>(disk: &mut D, at: ByteOffset, data: Data) -> Result<(), DiskError> {
    disk.submit(IoId(0), Io::Write { at, data });
    finish(disk)
}

/// Flushes and waits for it.
pub fn flush<D: Wait>(disk: &mut D) -> Result<(), DiskError> {
    disk.submit(IoId(0), Io::Flush);
    finish(disk)
}

/// Takes space for a range of a sparse device and waits for it.
pub fn allocate<D: Wait>(disk: &mut D, at: ByteOffset, len: ByteLen) -> Result<(), DiskError> {
    disk.submit(IoId(0), Io::Allocate { at, len });
    finish(disk)
}

/// Reads many ranges at once; `None` where one could not be read.
pub fn reads<D: Wait>(
    disk: &mut D,
    ranges: impl Iterator<Item = (ByteOffset, usize)>,
) -> Result<Vec<Option<Buf>>, DiskError> {
    let mut outstanding = 0u64;
    for (at, len) in ranges {
        disk.submit(IoId(outstanding), Io::Read { at, buf: Buf::zeroed(len) });
        outstanding += 1;
    }
    let mut found = HashMap::new();
    while (found.len() as u64) < outstanding {
        disk.wait(None);
        while let Some(completion) = disk.complete() {
            let buf = completion.result.ok().and_then(|done| match done {
                Done::Read(buf) => Some(buf),
                _ => None,
            });
            found.insert(completion.id.0, buf);
        }
    }
    Ok((0..outstanding).map(|id| found.remove(&id).flatten()).collect())
}

impl<D: Wait> Pool<D> {
    /// Waits until the device finished something, then goes on.
    pub fn wait(&mut self) {
        // Waiting kicks by itself.
        self.device.unkicked = 0;
        self.device.disk.wait(None);
        self.turn();
    }

    /// One operation from start to end. For tools and tests: nothing else may be under way.
    pub fn run(&mut self, op: Op) -> Result<Reply, OpError> {
        let id = RequestId(u64::MAX);
        self.submit(id, op);
        self.poll();
        loop {
            if let Some((answered, result)) = self.reply() {
                assert_eq!(answered, id, "a single operation runs at a time");
                return result;
            }
            self.wait();
        }
    }

    /// Makes a checkpoint of everything that was acknowledged, and waits until it counts.
    pub fn checkpoint(&mut self) -> Result<(), CheckpointError> {
        // One that runs already may have been begun before the newest operations.
        let running = u64::from(self.job.is_some());
        self.checkpoint_wanted = true;
        self.wait_for_epoch(Epoch(self.superblock.epoch.0 + running + 1))
    }

    /// Waits until the running checkpoint counts. What is left to be dropped goes on behind it.
    pub(super) fn finish_job(&mut self) -> Result<(), CheckpointError> {
        let running = u64::from(self.job.is_some());
        self.wait_for_epoch(Epoch(self.superblock.epoch.0 + running))
    }

    fn wait_for_epoch(&mut self, epoch: Epoch) -> Result<(), CheckpointError> {
        self.poll();
        while self.superblock.epoch < epoch && !matches!(self.condition, Condition::Failed(_)) {
            self.wait();
        }
        match (self.failure.clone(), &self.condition) {
            (Some(failure), _) => Err(failure),
            (None, Condition::Failed(reason)) => {
                Err(CheckpointError::PoolFailed { reason: reason.clone() })
            }
            (None, Condition::Serving | Condition::Closing) => Ok(()),
        }
    }

    /// Ends service: everything that was submitted is finished, made durable, and recorded in a
    /// last checkpoint that says so. What is left to be dropped is dropped when the pool is open
    /// again. The device is given back.
    pub fn close(mut self) -> Result<D, CheckpointError> {
        self.poll();
        while self.is_serving() && !self.is_idle() {
            self.wait();
        }
        if self.is_serving() {
            // No further checkpoint begins by itself.
            self.condition = Condition::Closing;
        }
        let closed = self.finish_job().and_then(|()| {
            self.begin_checkpoint(true);
            self.finish_job()
        });
        self.finish_marking();
        closed?;
        // Reads that nobody waits for any more must not be taken for those of the next owner.
        while self.device.under_way() > 0 {
            self.wait();
        }
        Ok(self.device.disk)
    }

    /// Drops the pool as a killed process would, and gives the device back.
    pub fn abandon(self) -> D {
        self.device.disk
    }
}
