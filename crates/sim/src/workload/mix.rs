//! What a workload is made of.
use block::{ByteLen, SectorSize};

/// Weights and sizes of a random workload.
#[derive(Clone, Debug)]
pub struct Mix {
    pub pool: ByteLen,
    pub sector: SectorSize,
    pub journal: Option<ByteLen>,
    pub volumes_max: usize,
    /// Sectors of 512 bytes that a write covers at the most.
    pub write_max: u64,
    /// Operations that may be under way at once.
    pub depth: u64,
    /// Fill the pool until writes are refused.
    pub fill: bool,
    /// Close and open, or kill and open, in between.
    pub reopen: bool,
    /// Volumes that are much larger than the pool.
    pub huge: bool,
    /// Snapshots, clones, rollbacks and imports: about a quarter of the operations.
    pub snapshots: bool,
}

impl Mix {
    /// A mix for a seed: every combination comes up.
    pub fn for_seed(seed: u64) -> Mix {
        let mut rng = crate::Rng::new(seed ^ 0x6d69_7821);
        let fill = rng.chance(1, 4);
        Mix {
            pool: ByteLen(if fill { 8 << 20 } else { 24 << 20 }),
            sector: if rng.chance(1, 2) { SectorSize::B512 } else { SectorSize::B4096 },
            journal: rng.chance(1, 2).then_some(ByteLen(256 << 10)),
            volumes_max: 1 + rng.index(4),
            write_max: *rng.pick(&[8, 40, 160, 2048]),
            depth: if fill { 1 } else { 1 + rng.below(12) },
            fill,
            reopen: true,
            huge: rng.chance(1, 3),
            snapshots: rng.chance(5, 6),
        }
    }

    /// For power cuts: the disk is cut from outside, so the pool itself is not closed in between.
    pub fn for_power_cut(seed: u64) -> Mix {
        let mut mix = Mix::for_seed(seed);
        mix.reopen = false;
        mix.pool = ByteLen(12 << 20);
        mix.write_max = mix.write_max.min(160);
        mix.volumes_max = mix.volumes_max.max(3);
        mix.depth = mix.depth.max(4);
        if mix.fill {
            mix.pool = ByteLen(7 << 20);
            mix.depth = 1;
            mix.write_max = 160;
        }
        mix
    }
}
