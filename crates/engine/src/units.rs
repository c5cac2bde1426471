//! Numbers of the engine, each with its own type.
use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// A volume within its pool. Never given twice.
    VolumeId
);
number!(
    /// A snapshot within its pool. Counted together with volumes; never given twice.
    SnapshotId
);
number!(
    /// Anything that has a page in the directory: volumes, snapshots, orphaned maps.
    ObjectId
);
number!(
    /// The number of a layer of updates that a checkpoint merged. A snapshot lies between two
    /// births, so a block or page that was born later than a snapshot is not in it.
    Birth
);
number!(
    /// The time between two checkpoints; also the number of the checkpoint that ends it.
    Epoch
);
number!(
    /// The number of an opening of the pool for writing. A slot of another session is not replayed.
    Session
);
number!(
    /// A journal slot, named by its first block counted from the birth of the pool.
    Slot
);
number!(
    /// A sector of the device, counted in the pool's sector size from the start of the device.
    Sector
);
number!(
    /// A unit of a volume's map, counted from the start of the volume.
    Granule
);
number!(
    /// A run of sectors that one space page describes.
    Region
);

impl From<VolumeId> for ObjectId {
    fn from(id: VolumeId) -> ObjectId {
        ObjectId(id.0)
    }
}

impl From<SnapshotId> for ObjectId {
    fn from(id: SnapshotId) -> ObjectId {
        ObjectId(id.0)
    }
}

/// CRC-64/NVME of what is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checksum(pub u64);

impl Checksum {
    pub fn of(bytes: &[u8]) -> Checksum {
        Checksum(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes))
    }
}

/// A run of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    pub start: Sector,
    pub sectors: u64,
}

impl Extent {
    pub fn end(self) -> Sector {
        Sector(self.start.0 + self.sectors)
    }
}

/// A number as an index into memory. Pollux runs on 64-bit machines only, so none is cut off.
pub fn to_usize(number: u64) -> usize {
    const { assert!(size_of::<usize>() == size_of::<u64>(), "a 64-bit machine is needed") };
    #[expect(clippy::cast_possible_truncation, reason = "the assertion above")]
    let index = number as usize;
    index
}
