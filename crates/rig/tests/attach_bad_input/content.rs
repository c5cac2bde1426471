//! Volumes with something on them that no stage may write over.
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use control::api::types::{NewVolume, Source};
use rig::site::MIB;
use tonic::Code;

use super::plugin::{How, MOUNT};
use super::{Case, SOON, Volume, World, refused};

pub const CASES: &[Case] = &[
    ("a superblock that is overwritten", no_superblock),
    ("a superblock that is zeroed", zeroed_superblock),
    ("an ext4 that its tools cannot mend", damaged),
    ("data that nobody knows", foreign),
    ("a table of partitions", partitions),
    ("data that was discarded", discarded),
    ("a copy of data that nobody knows", copied),
];

pub fn write(device: &Path, at: u64, bytes: &[u8]) -> Result<()> {
    let file = OpenOptions::new().write(true).open(device)?;
    file.write_all_at(bytes, at)?;
    Ok(file.sync_all()?)
}

/// Everything that the device has.
pub fn read(device: &Path) -> Result<Vec<u8>> {
    fs::read(device).context("reading the device")
}

/// Bytes that look like nothing: the high ones of numbers that jump.
pub fn noise(len: usize) -> Vec<u8> {
    let jumps = std::iter::successors(Some(7_u32), |last| {
        Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
    });
    jumps.map(|number| number.to_be_bytes()[0]).take(len).collect()
}

/// An ext4 with a file in it.
fn used(world: &mut World) -> Result<Volume> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    fs::write(volume.staging.join("precious"), noise(1 << 20))?;
    world.unstage(&volume)?;
    Ok(volume)
}

/// Neither as it was made nor as another one, and not a byte of it has changed.
fn is_left_alone(world: &World, volume: &Volume, words: &str) -> Result<()> {
    let before = world.with_device(volume, read)?;
    for kind in ["ext4", "xfs", "btrfs"] {
        let how = How { kind: Some(kind), ..MOUNT };
        let answer = world.caller.stage(&volume.id, &volume.staging, &how);
        refused(answer, Code::FailedPrecondition, words)?;
        world.nothing_left()?;
    }
    let after = world.with_device(volume, read)?;
    ensure!(before == after, "bytes have changed");
    Ok(())
}

/// The same file system again, once the damage is undone.
fn is_mended(world: &World, volume: &Volume, at: u64, bytes: &[u8]) -> Result<()> {
    world.with_device(volume, |device| write(device, at, bytes))?;
    world.stage(volume)?;
    ensure!(fs::read(volume.staging.join("precious"))? == noise(1 << 20));
    Ok(world.unstage(volume)?)
}

fn no_superblock(world: &mut World) -> Result<()> {
    let volume = used(world)?;
    let good = world.with_device(&volume, |device| {
        let good = read(device)?[..64 << 10].to_vec();
        write(device, 0, &noise(64 << 10))?;
        Ok(good)
    })?;
    is_left_alone(world, &volume, "not formatted over")?;
    is_mended(world, &volume, 0, &good)
}

/// Zeros are what a blank device has too: it is told by what is behind them.
fn zeroed_superblock(world: &mut World) -> Result<()> {
    let volume = used(world)?;
    let good = world.with_device(&volume, |device| {
        let good = read(device)?[..4096].to_vec();
        write(device, 0, &[0; 4096])?;
        Ok(good)
    })?;
    is_left_alone(world, &volume, "not formatted over")?;
    is_mended(world, &volume, 0, &good)
}

fn damaged(world: &mut World) -> Result<()> {
    let volume = used(world)?;
    // Behind the superblock is the table of groups, without which nothing is found.
    let (at, len) = (4096, 4096);
    let good = world.with_device(&volume, |device| {
        let good = read(device)?[at..at + len].to_vec();
        write(device, at as u64, &noise(len))?;
        Ok(good)
    })?;
    let before = world.with_device(&volume, read)?;
    let answer = world.stage(&volume);
    refused(answer, Code::FailedPrecondition, "damaged")?;
    world.nothing_left()?;
    ensure!(before == world.with_device(&volume, read)?, "bytes have changed");
    is_mended(world, &volume, at as u64, &good)
}

fn foreign(world: &mut World) -> Result<()> {
    for at in [0, MIB, 32 * MIB, 63 * MIB] {
        let volume = world.volume(&MOUNT)?;
        world.with_device(&volume, |device| write(device, at, &noise(8192)))?;
        is_left_alone(world, &volume, "no known file system")?;
    }
    Ok(())
}

fn partitions(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let mut table = vec![0; 512];
    // One partition of Linux from sector 2048 on, with 65536 sectors.
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 2, 0, 0, 8, 0, 0, 0, 0, 1, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    world.with_device(&volume, |device| write(device, 0, &table))?;
    is_left_alone(world, &volume, "dos")
}

/// A volume whose data is gone is blank again.
fn discarded(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.with_device(&volume, |device| write(device, 32 * MIB, &noise(8192)))?;
    refused(world.stage(&volume), Code::FailedPrecondition, "no known file system")?;
    world.with_device(&volume, |device| {
        let done = Command::new("blkdiscard").arg(device).output()?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    })?;
    world.works(&volume)
}

/// What a volume has from its origin is its own.
fn copied(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.with_device(&volume, |device| write(device, 32 * MIB, &noise(8192)))?;
    let wanted = NewVolume {
        name: "copy".into(),
        replicas: Some(1),
        source: Some(Source::Volume { id: volume.id.clone() }),
        attached_only: true,
        ..NewVolume::default()
    };
    let api = world.rig.api()?;
    let copy = api.insist(SOON, async |client| client.create_volume(&wanted).await)?;
    world.caller.attach(&copy.uid, &MOUNT, false)?;
    let copy = Volume { id: copy.uid, how: MOUNT, ..volume };
    is_left_alone(world, &copy, "no known file system")
}
