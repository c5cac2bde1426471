//! After a power cut or a kill: is what came back a part of the history that is long enough?
use std::collections::BTreeMap;

use block::{ByteLen, ByteOffset, Position};
use engine::{Op, OpenOptions, Pool, Reply, VolumeId};

use super::history::{History, SECTOR, State, Status, VolumeState, content};
use crate::CrashDisk;

/// What must have survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// Power was cut: everything that an acknowledged flush covers.
    PowerCut,
    /// The process was killed: everything that was acknowledged.
    Kill,
}

/// Volumes with position and size: enough to tell how long a part of the history came back.
type Outline = BTreeMap<VolumeId, (Position, u64)>;

/// A history at the moment of a crash, prepared for being compared with many pools.
pub struct Expected<'a> {
    history: &'a History,
    outlines: Vec<Outline>,
    /// States that were needed already, by the length of their history.
    states: BTreeMap<usize, State>,
}

impl<'a> Expected<'a> {
    pub fn new(history: &'a History) -> Expected<'a> {
        let mut state = State::default();
        let mut outlines = vec![Outline::new()];
        for index in 0..history.entries.len() {
            history.apply(&mut state, index);
            let outline =
                |(id, volume): (&VolumeId, &VolumeState)| (*id, (volume.position, volume.size));
            outlines.push(state.volumes.iter().map(outline).collect());
        }
        Expected { history, outlines, states: BTreeMap::new() }
    }

    /// Opens a pool after a crash and verifies it. Returns it with the number of operations that
    /// it holds, or what is wrong.
    pub fn verify(
        &mut self,
        disk: CrashDisk,
        recovery: Recovery,
        options: OpenOptions,
    ) -> Result<(Pool<CrashDisk>, usize), String> {
        let mut pool =
            Pool::open(disk, options).map_err(|error| format!("does not open: {error}"))?;
        let count = self.prefix_of(&pool)?;
        let least = match recovery {
            Recovery::PowerCut => self.history.flushed,
            Recovery::Kill => self.history.acked_prefix(),
        };
        // Operations that were refused leave no trace.
        let mut missing = (count..least).map(|at| &self.history.entries[at]);
        if missing.any(|entry| entry.status != Status::Refused) {
            return Err(format!("only {count} of {least} operations survived"));
        }
        self.compare(&mut pool, count)?;
        Ok((pool, count))
    }

    /// The longest part of the history that has the pool's volumes, positions and sizes.
    fn prefix_of(&self, pool: &Pool<CrashDisk>) -> Result<usize, String> {
        let found: Outline =
            pool.volumes().into_iter().map(|info| (info.id, (info.held, info.size.0))).collect();
        self.outlines
            .iter()
            .rposition(|outline| *outline == found)
            .ok_or_else(|| format!("{found:?} are the volumes of no part of the history"))
    }

    fn compare(&mut self, pool: &mut Pool<CrashDisk>, count: usize) -> Result<(), String> {
        let history = self.history;
        let state = self.states.entry(count).or_insert_with(|| history.state_after(count));
        for info in pool.volumes() {
            let volume = &state.volumes[&info.id];
            if info.name != volume.name || info.state != volume.state {
                return Err(format!("volume {} is not as after operation {count}", info.id));
            }
            compare_volume(pool, history, volume, info.id)?;
        }
        Ok(())
    }
}

fn compare_volume(
    pool: &mut Pool<CrashDisk>,
    history: &History,
    volume: &VolumeState,
    id: VolumeId,
) -> Result<(), String> {
    let mut expected = [0; 512];
    for (sector, count) in history.touched_ranges(id, volume.size / SECTOR) {
        let (offset, len) = (ByteOffset(sector * SECTOR), ByteLen(count * SECTOR));
        let bytes = match pool.run(Op::Read { volume: id, offset, len }) {
            Ok(Reply::Read(bytes)) => bytes,
            other => return Err(format!("a read of volume {id} ended as {other:?}")),
        };
        for (at, part) in (sector..).zip(bytes.chunks_exact(512)) {
            let number = volume.sectors.get(&at).copied().unwrap_or(0);
            content(id, at, number, &mut expected);
            if part != expected {
                return Err(format!("volume {id} sector {at} is not of operation {number}"));
            }
        }
        pool.recycle(bytes);
    }
    Ok(())
}
