//! What the simulated disk promises. A fault here would make every crash test pass for nothing.
use block::{Data, Disk, DiskErrorKind, Done, Wait};

use super::*;

mod faults;
mod power_cut;
mod queue;

const KIB: u64 = 1024;
const SECTOR: u64 = 512;

fn disk() -> CrashDisk {
    CrashDisk::new(ByteLen(256 * KIB), SectorSize::B512, 1)
}

/// Queues a write of one repeated byte.
fn queue_write(disk: &mut CrashDisk, id: u64, at: u64, len: u64, byte: u8) {
    let data = Data::copy_of(&vec![byte; image::place(len)]);
    let at = ByteOffset(at);
    disk.submit(IoId(id), Io::Write { at, data });
}

fn start_write(disk: &mut CrashDisk, id: u64, at: u64, len: u64, byte: u8) {
    queue_write(disk, id, at, len, byte);
    disk.kick();
}

fn finish_all(disk: &mut CrashDisk) {
    while disk.in_flight() > 0 {
        disk.complete_one(0).result.unwrap();
    }
}

fn write(disk: &mut CrashDisk, at: u64, len: u64, byte: u8) {
    start_write(disk, 0, at, len, byte);
    finish_all(disk);
}

fn flush(disk: &mut CrashDisk) -> Result<Done, DiskError> {
    disk.submit(IoId(0), Io::Flush);
    disk.kick();
    disk.complete_one(disk.in_flight() - 1).result
}

/// Starts a read; it stands last among the IOs in flight.
fn read(disk: &mut CrashDisk, at: u64, len: u64) -> Result<Vec<u8>, DiskError> {
    let buf = Buf::zeroed(image::place(len));
    let at = ByteOffset(at);
    disk.submit(IoId(0), Io::Read { at, buf });
    disk.kick();
    match disk.complete_one(disk.in_flight() - 1).result? {
        Done::Read(buf) => Ok(buf.to_vec()),
        other => panic!("a read ended as {other:?}"),
    }
}

/// The first byte of each of the first `n` sectors of an image.
fn firsts(image: &Image, n: u64) -> Vec<u8> {
    let first = |i| image.peek(ByteOffset(i * SECTOR), 1)[0];
    (0..n).map(first).collect()
}
