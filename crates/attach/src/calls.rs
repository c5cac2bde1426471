//! System calls that no library has for us: loop devices, and what a process does that others' memory waits for.
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use block::{ByteLen, ByteOffset};
use rustix::ioctl::{IntegerSetter, NoArg, Opcode, Setter, ioctl};

const LOOP_CLR_FD: Opcode = 0x4c01;
const LOOP_SET_CAPACITY: Opcode = 0x4c07;
const LOOP_CONFIGURE: Opcode = 0x4c0a;
const LOOP_CTL_GET_FREE: Opcode = 0x4c82;

const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LO_NAME_SIZE: usize = 64;

/// Of `linux/prctl.h`.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LO_NAME_SIZE],
    crypt_name: [u8; LO_NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// The number of a loop device that nobody uses. Somebody else may take it before we do.
pub fn free_loop(control: &File) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument, and its answer is the number that the call returns.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), libc::Ioctl::from(LOOP_CTL_GET_FREE)) };
    u32::try_from(number).map_err(|_| io::Error::last_os_error())
}

/// Makes a loop device of a file, in one step and without a second cache.
pub fn configure_loop(
    device: &File,
    backing: &File,
    block: ByteLen,
    read_only: bool,
    name: &str,
) -> io::Result<()> {
    let mut file_name = [0; LO_NAME_SIZE];
    // The last byte stays zero.
    let shown = name.as_bytes().iter().take(LO_NAME_SIZE - 1);
    file_name.iter_mut().zip(shown).for_each(|(to, from)| *to = *from);
    let flags = LO_FLAGS_DIRECT_IO | if read_only { LO_FLAGS_READ_ONLY } else { 0 };
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?,
        block_size: u32::try_from(block.0).map_err(io::Error::other)?,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name,
            crypt_name: [0; LO_NAME_SIZE],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one `loop_config`, laid out as the kernel's header has it, writes nothing
    // to it, and keeps no pointer to it.
    unsafe { Ok(ioctl(device.as_fd(), Setter::<LOOP_CONFIGURE, LoopConfig>::new(config))?) }
}

/// Done at once if nobody has the device open, otherwise when the last one closes it.
pub fn clear_loop(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { Ok(ioctl(device.as_fd(), NoArg::<LOOP_CLR_FD>::new())?) }
}

/// The device becomes as large as its file is by now.
pub fn resize_loop(device: &File) -> io::Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument; the integer is not looked at.
    unsafe { Ok(ioctl(device.as_fd(), IntegerSetter::<LOOP_SET_CAPACITY>::new_usize(0))?) }
}

const NBD_SET_SOCK: Opcode = 0xab00;
const NBD_SET_BLKSIZE: Opcode = 0xab01;
const NBD_DO_IT: Opcode = 0xab03;
const NBD_CLEAR_SOCK: Opcode = 0xab04;
const NBD_SET_SIZE_BLOCKS: Opcode = 0xab07;
const NBD_DISCONNECT: Opcode = 0xab08;
const NBD_SET_FLAGS: Opcode = 0xab0a;

/// What the kernel's client of NBD is told of a disk.
pub struct NbdDisk {
    pub size: ByteLen,
    pub block: ByteLen,
    pub flags: u16,
}

/// Gives a socket to a device; `ResourceBusy` if it has one.
pub fn configure_nbd(device: &File, socket: &impl AsRawFd, disk: &NbdDisk) -> io::Result<()> {
    let socket = usize::try_from(socket.as_raw_fd()).map_err(io::Error::other)?;
    // SAFETY: NBD_SET_SOCK takes a descriptor by value, and has a reference of its own to what it means.
    unsafe { ioctl(device.as_fd(), IntegerSetter::<NBD_SET_SOCK>::new_usize(socket))? };
    let block = usize::try_from(disk.block.0).map_err(io::Error::other)?;
    // SAFETY: both take integers by value.
    unsafe {
        ioctl(device.as_fd(), IntegerSetter::<NBD_SET_BLKSIZE>::new_usize(block))?;
        ioctl(device.as_fd(), IntegerSetter::<NBD_SET_FLAGS>::new_usize(disk.flags.into()))?;
    }
    resize_nbd(device, disk.size, disk.block)
}

pub fn resize_nbd(device: &File, size: ByteLen, block: ByteLen) -> io::Result<()> {
    let blocks = usize::try_from(size.0 / block.0).map_err(io::Error::other)?;
    // SAFETY: NBD_SET_SIZE_BLOCKS takes an integer by value.
    unsafe { Ok(ioctl(device.as_fd(), IntegerSetter::<NBD_SET_SIZE_BLOCKS>::new_usize(blocks))?) }
}

/// Returns when the device is disconnected.
pub fn run_nbd(device: &File) -> io::Result<()> {
    // SAFETY: both take no argument.
    unsafe {
        let ran = ioctl(device.as_fd(), NoArg::<NBD_DO_IT>::new());
        ioctl(device.as_fd(), NoArg::<NBD_CLEAR_SOCK>::new())?;
        Ok(ran?)
    }
}

pub fn disconnect_nbd(device: &File) -> io::Result<()> {
    // SAFETY: NBD_DISCONNECT takes no argument.
    unsafe { Ok(ioctl(device.as_fd(), NoArg::<NBD_DISCONNECT>::new())?) }
}

/// Of `linux/fs.h`.
const BLKDISCARD: Opcode = 0x1277;

/// This part of a block device reads as zeros afterwards, and its space is given back: targets of ours promise that (P7).
pub fn discard(device: &File, from: ByteOffset, len: ByteLen) -> io::Result<()> {
    // SAFETY: BLKDISCARD reads two integers of 64 bits, and keeps no pointer to them.
    unsafe { Ok(ioctl(device.as_fd(), Setter::<BLKDISCARD, [u64; 2]>::new([from.0, len.0]))?) }
}

/// This process writes what the kernel wants to get rid of when memory is short: its own needs must not wait for
/// that, and none of its pages may have to be read first. What is not allowed is left out, and told.
pub fn stand_under_writeback() -> Vec<String> {
    let mut missing = Vec::new();
    let mut note = |what: &str, done: bool| {
        if !done {
            missing.push(format!("{what}: {}", io::Error::last_os_error()));
        }
    };
    // SAFETY: both calls take integers only.
    unsafe {
        note("PR_SET_IO_FLUSHER", libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) == 0);
        // Pages are locked when they are first used: buffers are reserved far larger than they are filled.
        let how = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
        note("mlockall", libc::mlockall(how) == 0);
    }
    note("oom_score_adj", std::fs::write("/proc/self/oom_score_adj", "-1000").is_ok());
    missing
}
