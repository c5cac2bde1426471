//! The choice of what to do next: small and large, aligned and not, mostly writes.
use block::{Position, Seq, Term};
use engine::{VolumeId, VolumeInfo};
use sim::Rng;

use super::content::SECTOR;
use super::step::{Step, StepKind};

/// Sectors in the smallest granule: steps that begin and end on it need no merging.
const GRANULE: u64 = 8;
/// 256 KiB: large enough to span many granules of any volume of the proof.
const LARGE: u64 = 512;

struct Stretch {
    volume: VolumeId,
    sectors: u64,
    seq: Seq,
}

/// A sequence of steps that follows from its seed.
pub struct Script {
    rng: Rng,
    term: Term,
    volumes: Vec<Stretch>,
}

impl Script {
    /// Goes on where the volumes stand. The term must be one that none of them has seen.
    pub fn new(volumes: &[VolumeInfo], term: Term, seed: u64) -> Script {
        let stretch = |volume: &VolumeInfo| Stretch {
            volume: volume.id,
            sectors: volume.size.0 / SECTOR as u64,
            seq: volume.held.seq,
        };
        assert!(!volumes.is_empty(), "a script needs a volume to write to");
        Script { rng: Rng::new(seed), term, volumes: volumes.iter().map(stretch).collect() }
    }

    pub fn next_step(&mut self) -> Step {
        let kind = match self.rng.below(20) {
            0 => StepKind::Zeroes,
            1 => StepKind::Discard,
            _ => StepKind::Write,
        };
        let index = self.rng.index(self.volumes.len());
        let (first, sectors) = self.run_within(self.volumes[index].sectors);
        let stretch = &mut self.volumes[index];
        stretch.seq.0 += 1;
        let position = Position { term: self.term, seq: stretch.seq };
        Step { kind, volume: stretch.volume, position, first, sectors }
    }

    /// Half of the runs are whole granules, a few are large, the rest begin and end anywhere.
    fn run_within(&mut self, sectors: u64) -> (u64, u32) {
        let rng = &mut self.rng;
        let (unit, len) = match rng.below(20) {
            0 => (1, rng.range(1..LARGE + 1)),
            1..=10 => (GRANULE, rng.range(1..5) * GRANULE),
            _ => (1, rng.range(1..2 * GRANULE + 1)),
        };
        let len = len.min(sectors);
        let first = rng.below((sectors - len) / unit + 1) * unit;
        (first, u32::try_from(len).expect("a run is short"))
    }

    pub fn wants_flush(&mut self) -> bool {
        self.rng.chance(1, 32)
    }
}
