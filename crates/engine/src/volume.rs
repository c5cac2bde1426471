//! What a volume is: what was asked for, what is kept of it on the device, and what in memory.
use block::{ByteLen, Position};

pub use crate::compress::Compression;
use crate::error::OpError;
use crate::format::Child;
use crate::limits::{NAME_MAX, VOLUME_MAX};
use crate::snapshot::Jump;
use crate::units::{Slot, SnapshotId, VolumeId};

/// The logical block of a volume: a power of two from 512 B to 128 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockSize(u32);

impl BlockSize {
    pub const DEFAULT: BlockSize = BlockSize(4096);

    pub fn new(bytes: u64) -> Option<BlockSize> {
        let bytes = u32::try_from(bytes).ok()?;
        (bytes.is_power_of_two() && (512..=128 << 10).contains(&bytes)).then_some(BlockSize(bytes))
    }

    pub fn bytes(self) -> u64 {
        u64::from(self.0)
    }

    /// Unit of the map: at least 4 KiB, so that small blocks do not multiply the map.
    pub fn granule(self) -> u64 {
        self.bytes().max(4096)
    }
}

impl Default for BlockSize {
    fn default() -> BlockSize {
        BlockSize::DEFAULT
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSpec {
    pub name: String,
    pub size: ByteLen,
    pub block_size: BlockSize,
    pub compression: Compression,
    /// The volume's identity across pools and sites.
    pub uid: [u8; 16],
}

impl VolumeSpec {
    pub fn validate(&self) -> Result<(), OpError> {
        check_name(&self.name)?;
        check_size(self.size, self.block_size)
    }
}

/// A snapshot that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// Unique among the snapshots of its volume.
    pub name: String,
    /// The snapshot's identity across pools and sites.
    pub uid: [u8; 16],
    /// Made by Pollux for its own purposes; not shown to users.
    pub internal: bool,
    /// When it was asked for, in milliseconds since 1970. The engine knows no clock.
    pub created: u64,
}

/// A volume that is asked for with the content of a snapshot. Block size and compression are the
/// snapshot's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneSpec {
    pub name: String,
    pub uid: [u8; 16],
    /// At least the snapshot's size, which it has if nothing else is said.
    pub size: Option<ByteLen>,
}

pub fn check_name(name: &str) -> Result<(), OpError> {
    if name.is_empty() || name.len() > NAME_MAX || name.contains(char::is_control) {
        return Err(OpError::BadName { name: name.into() });
    }
    Ok(())
}

pub fn check_size(size: ByteLen, block_size: BlockSize) -> Result<(), OpError> {
    if size.0 == 0 || size.0 > VOLUME_MAX || !size.0.is_multiple_of(block_size.bytes()) {
        return Err(OpError::BadSize { size, unit: block_size.bytes() });
    }
    Ok(())
}

/// What of a volume does not change with every write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub uid: [u8; 16],
    pub size: u64,
    pub block_size: BlockSize,
    pub compression: Compression,
}

/// A map: its topmost page, and how many levels there are; 0 while nothing was ever stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRoot {
    pub root: Child,
    pub height: u8,
}

impl MapRoot {
    pub const EMPTY: MapRoot = MapRoot { root: Child::NEVER, height: 0 };

    /// The granule behind the last that it can reach.
    pub fn end(self) -> u64 {
        1 << (7 * u32::from(self.height)).min(63)
    }
}

/// An import under way: this volume is hidden, and takes what arrives for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    pub of: VolumeId,
    pub progress: u64,
}

/// A volume as its object page keeps it: what survives a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durable {
    pub header: Header,
    pub map: MapRoot,
    pub position: Position,
    /// The snapshot that it goes on from: its newest one, or the one it was cloned from.
    pub parent: Option<SnapshotId>,
    pub attached: bool,
    pub staging: Option<Staging>,
    /// Space that a replication stream was promised, in sectors.
    pub credit: u64,
    /// Written and read by replication alone.
    pub state: Vec<u8>,
}

/// A volume of an open pool.
#[derive(Clone, Debug)]
pub struct Volume {
    pub id: VolumeId,
    /// As of the newest sealed operation, but for `map`, which is that of the last checkpoint, or
    /// of a jump since.
    pub kept: Durable,
    /// It goes with the next checkpoint.
    pub deleting: bool,
    /// The next checkpoint has to finish this first.
    pub jump: Option<Jump>,
    /// Its operations are done without gaps in their positions. Known to whoever has the pool
    /// open, not to the device.
    pub in_order: bool,
    pub held: Position,
    pub durable: Position,
    /// The slot of what brought it there; 0 for what was found when the pool was opened.
    pub durable_by: Slot,
    /// As of the newest accepted operation: what later ones are judged by.
    pub front: Front,
}

/// What a volume will be when everything that was accepted is done.
#[derive(Clone, Copy, Debug)]
pub struct Front {
    pub size: u64,
    pub position: Position,
    pub deleted: bool,
    pub attached: bool,
    /// An import into this volume is under way: its content does not change by other means.
    pub staged: Option<VolumeId>,
}

impl Volume {
    pub fn new(id: VolumeId, kept: Durable) -> Volume {
        let position = kept.position;
        let front = Front {
            size: kept.header.size,
            position,
            deleted: false,
            attached: kept.attached,
            staged: None,
        };
        let (deleting, jump, in_order) = (false, None, false);
        let (held, durable, durable_by) = (position, position, Slot(0));
        Volume { id, kept, deleting, jump, in_order, held, durable, durable_by, front }
    }

    pub fn granule(&self) -> u64 {
        self.kept.header.block_size.granule()
    }

    pub fn height(&self) -> u8 {
        self.kept.needed_height()
    }
}

impl Durable {
    pub fn born(spec: &VolumeSpec) -> Durable {
        Durable {
            header: Header {
                name: spec.name.clone(),
                uid: spec.uid,
                size: spec.size.0,
                block_size: spec.block_size,
                compression: spec.compression,
            },
            ..Durable::blank()
        }
    }

    /// Granules of the present size.
    pub fn granules(&self) -> u64 {
        self.header.size.div_ceil(self.header.block_size.granule())
    }

    /// Levels that a map of the present size needs.
    pub fn needed_height(&self) -> u8 {
        self.height_of(self.header.size)
    }

    /// Levels that its map would need with another size.
    pub fn height_of(&self, size: u64) -> u8 {
        height_for(size.div_ceil(self.header.block_size.granule())).max(self.map.height)
    }

    fn blank() -> Durable {
        Durable {
            header: Header {
                name: String::new(),
                uid: [0; 16],
                size: 0,
                block_size: BlockSize::DEFAULT,
                compression: Compression::Off,
            },
            map: MapRoot::EMPTY,
            position: Position::default(),
            parent: None,
            attached: false,
            staging: None,
            credit: 0,
            state: Vec::new(),
        }
    }

    pub fn with_header(header: Header) -> Durable {
        Durable { header, ..Durable::blank() }
    }
}

/// Levels of a radix tree of fan-out 128 that reaches `count` leaves' entries.
pub fn height_for(count: u64) -> u8 {
    let mut height = 1;
    while height < 9 && count > 1 << (7 * u32::from(height)) {
        height += 1;
    }
    height
}
