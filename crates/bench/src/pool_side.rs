//! A volume of a pool: what is measured.
use anyhow::{Context, Result, bail, ensure};
use block::{ByteLen, ByteOffset, Position};
use disk::FileDisk;
use engine::{
    BlockSize, Limits, Op, OpError, OpenOptions, Pool, Reply, RequestId, VolumeId, VolumeSpec,
};
use sim::Rng;

use crate::contents::{Expected, Stretch};
use crate::load::{Side, Step};

pub struct PoolSide<'a> {
    pool: Pool<FileDisk>,
    volume: Measured,
    stretch: &'a Stretch,
    rng: Rng,
    /// An answer that was taken to see whether there is one.
    answer: Option<(RequestId, Result<Reply, OpError>)>,
}

/// A volume and what it must hold.
pub struct Measured {
    id: VolumeId,
    size: ByteLen,
    seq: u64,
    expected: Expected,
}

fn create_volume(
    pool: &mut Pool<FileDisk>,
    name: &str,
    size: ByteLen,
    block: u64,
) -> Result<Measured> {
    let block_size = BlockSize::new(block).context("a legal block size")?;
    let spec = VolumeSpec { name: name.into(), size, block_size, uid: [1; 16] };
    let Reply::Created(id) = pool.run(Op::Create { spec })? else {
        bail!("a creation was answered with something else");
    };
    let unit = usize::try_from(block.min(4096))?;
    Ok(Measured { id, size, seq: 0, expected: Expected::new(size, unit) })
}

impl<'a> PoolSide<'a> {
    pub fn new(
        mut disk: FileDisk,
        limits: Limits,
        size: ByteLen,
        stretch: &'a Stretch,
    ) -> Result<PoolSide<'a>> {
        let options = engine::CreateOptions {
            uuid: *b"pollux benchmark",
            overwrite: true,
            ..engine::CreateOptions::default()
        };
        engine::create(&mut disk, &options)?;
        let mut pool = Pool::open(disk, OpenOptions::with(limits))?;
        let volume = create_volume(&mut pool, "measured", size, 4096)?;
        Ok(PoolSide { pool, volume, stretch, rng: Rng::new(12), answer: None })
    }

    /// Goes on with another volume.
    pub fn create_volume(&mut self, name: &str, size: ByteLen, block: u64) -> Result<()> {
        self.volume = create_volume(&mut self.pool, name, size, block)?;
        Ok(())
    }

    /// The same pool and volume with other limits.
    pub fn reopen(self, limits: Limits) -> Result<PoolSide<'a>> {
        let disk = self.pool.close()?;
        let pool = Pool::open(disk, OpenOptions::with(limits))?;
        Ok(PoolSide { pool, ..self })
    }

    pub fn close(self) -> Result<FileDisk> {
        Ok(self.pool.close()?)
    }

    pub fn pool(&self) -> &Pool<FileDisk> {
        &self.pool
    }

    /// Reads some units and compares them with what was written last.
    pub fn verify(&mut self, samples: usize) -> Result<()> {
        let len = self.volume.expected.unit();
        for _ in 0..samples {
            let unit = self.rng.index(self.volume.expected.units());
            let offset = ByteOffset((unit * len) as u64);
            let (volume, len) = (self.volume.id, ByteLen(len as u64));
            let Reply::Read(data) = self.pool.run(Op::Read { volume, offset, len })? else {
                bail!("a read was answered with something else");
            };
            ensure!(
                self.volume.expected.holds(self.stretch, unit, &data),
                "the pool returned wrong data at {offset}"
            );
            self.pool.recycle(data);
        }
        Ok(())
    }
}

impl Side for PoolSide<'_> {
    fn span(&self) -> u64 {
        self.volume.size.0
    }

    fn begin(&mut self, lane: usize, step: Step) {
        let volume = self.volume.id;
        let op = match step {
            Step::Read { offset, len } => {
                Op::Read { volume, offset: ByteOffset(offset), len: ByteLen(len as u64) }
            }
            Step::Write { offset, len } => {
                let unit = self.volume.expected.unit();
                let (from, data) = self.stretch.pick(&mut self.rng, unit, len);
                // Operations take effect in the order of their submission.
                self.volume.expected.wrote(offset, from, len);
                self.volume.seq += 1;
                Op::Write {
                    volume,
                    position: Position::new(1, self.volume.seq),
                    offset: ByteOffset(offset),
                    data,
                }
            }
            Step::Flush => Op::Flush,
        };
        self.pool.submit(RequestId(lane as u64), op);
    }

    fn turn(&mut self) -> Result<()> {
        self.pool.turn();
        self.answer = self.pool.reply();
        while self.answer.is_none() {
            self.pool.wait();
            self.answer = self.pool.reply();
        }
        Ok(())
    }

    fn finished(&mut self) -> Result<Option<usize>> {
        let Some((id, result)) = self.answer.take().or_else(|| self.pool.reply()) else {
            return Ok(None);
        };
        if let Reply::Read(data) = result.context("the pool")? {
            self.pool.recycle(data);
        }
        Ok(Some(usize::try_from(id.0)?))
    }
}
