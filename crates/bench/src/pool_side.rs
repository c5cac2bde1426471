//! A volume of a pool: what is measured.
use anyhow::{Context, Result, bail, ensure};
use block::{ByteLen, ByteOffset, Disk, Position, Wait};
use disk::FileDisk;
use engine::{
    BlockSize, Limits, Op, OpError, OpenOptions, Pool, Reply, RequestId, SnapshotSpec, VolumeId,
    VolumeSpec, Zeroing,
};
use sim::Rng;

use crate::contents::{Expected, Stretch};
use crate::load::{Side, Step};

/// Discards under way at a time: many fit a slot.
const DISCARDS: u64 = 256;

pub struct PoolSide<'a, D: Disk = FileDisk> {
    pool: Pool<D>,
    volume: Measured,
    /// Bytes that the load is spread over, from the start of the volume.
    span: u64,
    stretch: &'a Stretch,
    rng: Rng,
    /// An answer that was taken to see whether there is one.
    answer: Option<(RequestId, Result<Reply, OpError>)>,
}

/// A volume that the load is not on at the moment.
pub struct Resting<'a> {
    volume: Measured,
    span: u64,
    stretch: &'a Stretch,
}

/// A volume and what it must hold.
pub struct Measured {
    id: VolumeId,
    seq: u64,
    expected: Expected,
}

fn create_volume<D: Wait>(
    pool: &mut Pool<D>,
    name: &str,
    size: ByteLen,
    block: u64,
) -> Result<Measured> {
    let block_size = BlockSize::new(block).context("a legal block size")?;
    let name = name.into();
    let spec = VolumeSpec { name, size, block_size, uid: [1; 16], ..VolumeSpec::default() };
    let Reply::Created(id) = pool.run(Op::Create { spec })? else {
        bail!("a creation was answered with something else");
    };
    let unit = usize::try_from(block.min(4096))?;
    Ok(Measured { id, seq: 0, expected: Expected::new(size, unit) })
}

impl<'a, D: Wait> PoolSide<'a, D> {
    /// A new pool over whatever the disk has, with one volume of 4 KiB blocks.
    pub fn new(
        mut disk: D,
        limits: Limits,
        journal: Option<ByteLen>,
        size: ByteLen,
        stretch: &'a Stretch,
    ) -> Result<PoolSide<'a, D>> {
        let options = engine::CreateOptions {
            uuid: *b"pollux benchmark",
            overwrite: true,
            journal,
            ..engine::CreateOptions::default()
        };
        engine::create(&mut disk, &options)?;
        let mut pool = Pool::open(disk, OpenOptions::with(limits))?;
        let volume = create_volume(&mut pool, "measured", size, 4096)?;
        Ok(PoolSide { pool, volume, span: size.0, stretch, rng: Rng::new(12), answer: None })
    }

    /// Goes on with another volume.
    pub fn create_volume(&mut self, name: &str, size: ByteLen, block: u64) -> Result<()> {
        self.volume = create_volume(&mut self.pool, name, size, block)?;
        self.span = size.0;
        Ok(())
    }

    /// A volume of any kind, written with other bytes. The load stays where it is.
    pub fn create_resting(
        &mut self,
        spec: VolumeSpec,
        stretch: &'a Stretch,
    ) -> Result<Resting<'a>> {
        let (size, unit) = (spec.size, usize::try_from(spec.block_size.bytes().min(4096))?);
        let Reply::Created(id) = self.pool.run(Op::Create { spec })? else {
            bail!("a creation was answered with something else");
        };
        let volume = Measured { id, seq: 0, expected: Expected::new(size, unit) };
        Ok(Resting { volume, span: size.0, stretch })
    }

    /// The load goes to another volume, and this one rests.
    pub fn swap(&mut self, other: &mut Resting<'a>) {
        std::mem::swap(&mut self.volume, &mut other.volume);
        std::mem::swap(&mut self.span, &mut other.span);
        std::mem::swap(&mut self.stretch, &mut other.stretch);
    }

    /// Spreads the load over the first bytes only.
    pub fn narrow(&mut self, span: u64) {
        self.span = span;
    }

    /// The same pool and volume with other limits.
    pub fn reopen(self, limits: Limits) -> Result<PoolSide<'a, D>> {
        let disk = self.pool.close()?;
        let pool = Pool::open(disk, OpenOptions::with(limits))?;
        Ok(PoolSide { pool, ..self })
    }

    pub fn close(self) -> Result<D> {
        Ok(self.pool.close()?)
    }

    /// Everything that was begun is finished, so that the next round pays only for itself.
    pub fn settle(&mut self) -> Result<()> {
        Ok(self.pool.checkpoint()?)
    }

    pub fn pool(&self) -> &Pool<D> {
        &self.pool
    }

    pub fn pool_mut(&mut self) -> &mut Pool<D> {
        &mut self.pool
    }

    /// Begins a snapshot of the volume; it has a lane like a step of the load.
    pub fn begin_snapshot(&mut self, lane: usize, name: String) {
        self.volume.seq += 1;
        let spec = SnapshotSpec { name, uid: [2; 16], internal: false, created: 0 };
        let position = Position::new(1, self.volume.seq);
        let op = Op::Snapshot { volume: self.volume.id, position: Some(position), spec };
        self.pool.submit(RequestId(lane as u64), op);
    }

    /// Discards ranges of one length, and returns how many. What is there is not looked at again.
    pub fn discard_each(
        &mut self,
        offsets: impl IntoIterator<Item = u64>,
        len: ByteLen,
    ) -> Result<u64> {
        let (mut begun, mut done) = (0, 0);
        let mut offsets = offsets.into_iter().peekable();
        while offsets.peek().is_some() || done < begun {
            while begun - done < DISCARDS
                && let Some(offset) = offsets.next()
            {
                begun += 1;
                self.volume.seq += 1;
                let op = Op::Zero {
                    volume: self.volume.id,
                    position: Position::new(1, self.volume.seq),
                    offset: ByteOffset(offset),
                    len,
                    how: Zeroing::Discard,
                };
                self.pool.submit(RequestId(begun), op);
            }
            self.pool.turn();
            self.pool.wait();
            while let Some((_, result)) = self.pool.reply() {
                result.context("a discard")?;
                done += 1;
            }
        }
        Ok(done)
    }

    /// Reads some units and compares them with what was written last.
    pub fn verify(&mut self, samples: usize) -> Result<()> {
        let len = self.volume.expected.unit();
        let units = self.span / len as u64;
        for _ in 0..samples {
            let unit = usize::try_from(self.rng.below(units))?;
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

impl<D: Wait> Side for PoolSide<'_, D> {
    fn span(&self) -> u64 {
        self.span
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
