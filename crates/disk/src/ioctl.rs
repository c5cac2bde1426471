//! The three questions to a block device, and the one request, that only ioctl carries.
use std::os::fd::AsFd;

use block::{ByteLen, ByteOffset};
use rustix::io::Result;
use rustix::ioctl::{Getter, Opcode, Setter, opcode};

// The kernel's header declares a size_t here and fills in a u64, hence the usize.
const BLKGETSIZE64: Opcode = opcode::read::<usize>(0x12, 114);
const BLKDISCARD: Opcode = opcode::none(0x12, 119);

pub(crate) fn device_size(device: impl AsFd) -> Result<ByteLen> {
    // SAFETY: BLKGETSIZE64 writes exactly one u64 to its argument, and keeps no pointer to it.
    unsafe {
        let size = Getter::<BLKGETSIZE64, u64>::new();
        rustix::ioctl::ioctl(device, size).map(ByteLen)
    }
}

pub(crate) fn logical_sector(device: impl AsFd) -> Result<u64> {
    rustix::fs::ioctl_blksszget(device).map(u64::from)
}

pub(crate) fn physical_sector(device: impl AsFd) -> Result<u64> {
    rustix::fs::ioctl_blkpbszget(device).map(u64::from)
}

/// Returns when the device has taken note, which may be seconds later for a large range.
pub(crate) fn discard(device: impl AsFd, at: ByteOffset, len: ByteLen) -> Result<()> {
    // SAFETY: BLKDISCARD reads two u64 (start, length) from its argument, writes nothing to it,
    // and keeps no pointer to it.
    unsafe {
        let range = Setter::<BLKDISCARD, [u64; 2]>::new([at.0, len.0]);
        rustix::ioctl::ioctl(device, range)
    }
}
