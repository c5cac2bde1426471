//! What mixed clients do: chosen by chance, where it hurts.
use replication::entry::Zeroing;

use super::volume::Extent;
use crate::Rng;

/// Sectors at the beginning of a volume that are left to the ordered load.
pub const RESERVED: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Read(Extent),
    /// Which parts of it are allocated.
    Extents(Extent),
    Write(Extent, Fua),
    Zero(Extent, Zeroing, Fua),
    Flush,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fua {
    Yes,
    No,
}

impl Fua {
    pub fn is_yes(self) -> bool {
        self == Fua::Yes
    }
}

/// Where one client works. Some clients share their places with others, some are alone.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Sectors that are written again and again.
    hot: Vec<u64>,
    writes_percent: u64,
    fua_percent: u64,
}

/// Sectors of a granule that is larger than most writes, to have merges.
const NEAR: u64 = 16;
/// 128 KiB.
const SECTORS_MAX: u64 = 256;

/// Volumes with more sectors (16 MiB) are sparse, and large parts of them are discarded at times.
const WIDE_FROM: u64 = 1 << 15;

fn wide(rng: &mut Rng, sectors: u64) -> Extent {
    let first = rng.range(RESERVED..sectors) / 8 * 8;
    let count = rng.range(1..sectors / 2) / 8 * 8 + 8;
    Extent { first, count: count.min(sectors - first) }
}

impl Mix {
    /// `shared` is drawn alike by clients that are to meet.
    pub fn new(rng: &mut Rng, shared: &mut Rng, sectors: u64) -> Mix {
        let places = if rng.chance(2, 3) { shared } else { &mut *rng };
        let count = 1 + places.index(6);
        let hot = (0..count).map(|_| places.range(RESERVED..sectors)).collect();
        Mix { hot, writes_percent: rng.range(25..70), fua_percent: *rng.pick(&[0, 5, 30]) }
    }

    /// The places that clients share, to be read.
    pub fn of_spy(shared: &mut Rng, sectors: u64) -> Mix {
        let count = 1 + shared.index(6);
        let hot = (0..count).map(|_| shared.range(RESERVED..sectors)).collect();
        Mix { hot, writes_percent: 0, fua_percent: 0 }
    }

    /// A single sector, mostly one that is written again and again.
    pub fn look(&self, rng: &mut Rng) -> Wish {
        Wish::Read(Extent { first: *rng.pick(&self.hot), count: 1 })
    }

    pub fn wish(&self, rng: &mut Rng, sectors: u64) -> Wish {
        let roll = rng.below(100);
        if roll < 4 {
            return Wish::Flush;
        }
        let extent = self.extent(rng, sectors);
        if roll >= 4 + self.writes_percent {
            return Wish::Read(extent);
        }
        let fua = if rng.chance(self.fua_percent, 100) { Fua::Yes } else { Fua::No };
        if sectors > WIDE_FROM && rng.chance(1, 40) {
            return Wish::Zero(wide(rng, sectors), Zeroing::Discard, fua);
        }
        match rng.below(12) {
            0 => Wish::Zero(extent, Zeroing::Zeroes, fua),
            1 => Wish::Zero(extent, Zeroing::Discard, fua),
            _ => Wish::Write(extent, fua),
        }
    }

    fn extent(&self, rng: &mut Rng, sectors: u64) -> Extent {
        let count = match rng.below(20) {
            0..8 => 1,
            8..14 => rng.range(1..NEAR),
            14..17 => 8 * rng.range(1..5),
            17..19 => rng.range(1..65),
            _ => rng.range(64..SECTORS_MAX + 1),
        };
        let first = if rng.chance(4, 5) {
            let hot = *rng.pick(&self.hot);
            // Beside a hot sector within its granule, so that ranges overlap in every way.
            let near = (hot + rng.below(NEAR)).saturating_sub(NEAR / 2 * rng.below(2));
            if rng.chance(1, 2) { hot } else { near }
        } else {
            let first = rng.range(RESERVED..sectors);
            if rng.chance(1, 2) { first / 8 * 8 } else { first }
        };
        let first = first.clamp(RESERVED, sectors - 1);
        Extent { first, count: count.min(sectors - first) }
    }
}
