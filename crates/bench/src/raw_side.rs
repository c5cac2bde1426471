//! The device alone: what the engine is measured against.
use anyhow::{Result, bail};
use block::{Buf, BufPool, ByteOffset, Data, Disk, Done, Io, IoId, Wait};
use disk::FileDisk;
use sim::Rng;

use crate::contents::Stretch;
use crate::load::{Side, Step};

/// Read buffers that are kept: more than any load has outstanding.
const BUFFERS: usize = 32 << 20;

pub struct RawSide<'a> {
    disk: FileDisk,
    span: u64,
    stretch: &'a Stretch,
    rng: Rng,
    bufs: BufPool,
}

impl<'a> RawSide<'a> {
    pub fn new(disk: FileDisk, stretch: &'a Stretch) -> RawSide<'a> {
        RawSide {
            span: disk.geometry().size.0,
            disk,
            stretch,
            rng: Rng::new(11),
            bufs: BufPool::new(BUFFERS),
        }
    }

    /// Memory for a read, as the engine gets it: used before, lent by the disk, or fresh.
    fn buffer(&mut self, len: usize) -> Buf {
        let lent = |disk: &mut FileDisk| {
            let mut buf = disk.lend(BufPool::capacity_for(len))?;
            buf.set_len(len);
            Some(buf)
        };
        let kept = self.bufs.take_kept(len);
        kept.or_else(|| lent(&mut self.disk)).unwrap_or_else(|| self.bufs.take(len))
    }

    /// Spreads the load over the first bytes only.
    pub fn narrow(&mut self, span: u64) {
        self.span = span;
    }

    pub fn into_disk(self) -> FileDisk {
        self.disk
    }
}

impl Side for RawSide<'_> {
    fn span(&self) -> u64 {
        self.span
    }

    fn begin(&mut self, lane: usize, step: Step) {
        let io = match step {
            Step::Read { offset, len } => {
                Io::Read { at: ByteOffset(offset), buf: self.buffer(len) }
            }
            Step::Write { offset, len } => {
                let (_, data): (usize, Data) = self.stretch.pick(&mut self.rng, len.min(4096), len);
                Io::Write { at: ByteOffset(offset), data }
            }
            Step::Flush => Io::Flush,
        };
        self.disk.submit(IoId(lane as u64), io);
    }

    fn turn(&mut self) -> Result<()> {
        self.disk.wait(None);
        Ok(())
    }

    fn finished(&mut self) -> Result<Option<usize>> {
        let Some(completion) = self.disk.complete() else {
            return Ok(None);
        };
        match completion.result {
            Ok(Done::Read(buf)) => self.bufs.give(buf),
            Ok(_) => {}
            Err(error) => bail!("the raw file: {error}"),
        }
        Ok(Some(usize::try_from(completion.id.0)?))
    }
}
