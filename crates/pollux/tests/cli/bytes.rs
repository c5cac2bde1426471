//! Volumes with something in them, and what they hold.
use std::time::Duration;

use block::{ByteLen, ByteOffset, Data, Position, Seq, Wait};
use disk::{FileDisk, OpenOptions};
use engine::{Op, Pool, Reply, Subject, VolumeInfo, Zeroing};
use pollux::proof::{self, limits};
use pollux::{Shadow, patience};
use sim::Rng;

use crate::shell::Shell;

pub const MIB: u64 = 1 << 20;
/// The longest single read and write.
const STEP: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(2);

impl Shell {
    pub fn open(&self, pool: &str) -> Pool<FileDisk> {
        let disk = disk::open(self.path(pool), &OpenOptions::default());
        proof::open(disk.expect("nobody else has it"), limits()).expect("a pool")
    }

    /// Opens the pool, changes it and closes it.
    pub fn change(&self, pool: &str, act: impl FnOnce(&mut Pool<FileDisk>)) {
        let mut pool = self.open(pool);
        act(&mut pool);
        drop(pool.close().expect("the pool can be closed"));
    }

    fn look<T>(&self, pool: &str, act: impl FnOnce(&mut Pool<Shadow<FileDisk>>) -> T) -> T {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        // The lock of a killed process lingers.
        let disk = patience::open(&self.path(pool), &options, PATIENCE);
        let shadow = Shadow::over(disk.expect("nobody else has it"));
        act(&mut proof::open(shadow, limits()).expect("a pool"))
    }

    /// All bytes of `VOLUME` or `VOLUME@SNAPSHOT`.
    pub fn bytes(&self, pool: &str, of: &str) -> Vec<u8> {
        self.look(pool, |pool| match of.split_once('@') {
            None => {
                let volume = volume(pool, of);
                read(pool, Subject::Volume(volume.id), volume.size)
            }
            Some((name, snapshot)) => {
                let volume = volume(pool, name).id;
                let found = pool.snapshots().into_iter().find(|found| {
                    found.volume == volume && found.name == snapshot && !found.hidden
                });
                let found = found.expect("a snapshot of this name");
                read(pool, Subject::Snapshot(found.id), found.size)
            }
        })
    }

    /// All volumes and snapshots, hidden ones too, with their bytes.
    pub fn everything(&self, pool: &str) -> Vec<(String, Vec<u8>)> {
        self.look(pool, |pool| {
            let volumes = pool.volumes().into_iter().filter(|volume| volume.staging.is_none());
            let volumes = volumes.map(|v| (v.name, Subject::Volume(v.id), v.size));
            let shown = pool.snapshots().into_iter().filter(|s| !s.hidden && !s.internal);
            let snapshots = shown.map(|s| (s.name, Subject::Snapshot(s.id), s.size));
            let all: Vec<_> = volumes.chain(snapshots).collect();
            all.into_iter().map(|(name, of, size)| (name, read(pool, of, size))).collect()
        })
    }
}

pub fn volume<D: Wait>(pool: &Pool<D>, name: &str) -> VolumeInfo {
    let is_it = |volume: &VolumeInfo| volume.name == name && volume.staging.is_none();
    pool.volumes().into_iter().find(is_it).expect("a volume of this name")
}

fn read<D: Wait>(pool: &mut Pool<D>, of: Subject, size: ByteLen) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < size.0 {
        let offset = ByteOffset(bytes.len() as u64);
        let len = ByteLen((size.0 - offset.0).min(STEP as u64));
        let op = match of {
            Subject::Volume(volume) => Op::Read { volume, offset, len },
            Subject::Snapshot(snapshot) => Op::ReadSnapshot { snapshot, offset, len },
        };
        match pool.run(op).expect("it can be read") {
            Reply::Read(data) => bytes.extend_from_slice(&data),
            other => panic!("a read was answered by {other:?}"),
        }
    }
    bytes
}

/// The next position of a volume.
pub fn next(volume: &VolumeInfo) -> Position {
    Position { seq: Seq(volume.held.seq.0 + 1), ..volume.held }
}

pub fn write(pool: &mut Pool<FileDisk>, name: &str, offset: u64, bytes: &[u8]) {
    for (at, part) in (0..).zip(bytes.chunks(STEP)) {
        let volume = volume(pool, name);
        let position = next(&volume);
        let offset = ByteOffset(offset + at * STEP as u64);
        let data = Data::copy_of(part);
        pool.run(Op::Write { volume: volume.id, position, offset, data }).expect("a write");
    }
}

pub fn zero(pool: &mut Pool<FileDisk>, name: &str, offset: u64, len: u64, how: Zeroing) {
    let volume = volume(pool, name);
    let (position, offset, len) = (next(&volume), ByteOffset(offset), ByteLen(len));
    pool.run(Op::Zero { volume: volume.id, position, offset, len, how }).expect("zeros");
}

/// Bytes that nothing else has.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// Writes, zeroes and discards, large and small, anywhere in a volume. Some writes are of zeros.
pub fn scribble(pool: &mut Pool<FileDisk>, name: &str, seed: u64, steps: u64) {
    let mut rng = Rng::new(seed);
    let size = volume(pool, name).size.0 / 512;
    for _ in 0..steps {
        let len = match rng.below(8) {
            0 => rng.range(1..size / 2 + 1),
            1..=3 => rng.range(1..257),
            _ => rng.range(1..33),
        };
        let len = len.min(size).min(STEP as u64 / 512);
        let first = rng.below(size - len + 1);
        let (offset, len) = (first * 512, len * 512);
        let in_memory = usize::try_from(len).expect("a step is short");
        match rng.below(10) {
            0 => zero(pool, name, offset, len, Zeroing::Zeroes),
            1 => zero(pool, name, offset, len, Zeroing::Discard),
            2 => write(pool, name, offset, &vec![0; in_memory]),
            _ => {
                let bytes = noise(rng.next_u64(), in_memory);
                write(pool, name, offset, &bytes);
            }
        }
    }
}
