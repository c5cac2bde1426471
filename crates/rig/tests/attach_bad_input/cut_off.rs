//! A mkfs whose machine is lost: the next machine makes the file system anew, unless somebody used the volume since.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use control::api::types::{Format, NewVolume};
use rig::nbd::{Nbd, NbdError};
use rig::site::MIB;
use tonic::Code;

use super::content::{noise, read, write};
use super::left::Left;
use super::plugin::MOUNT;
use super::{Case, SIZE, SOON, Volume, World, refused};

pub const CASES: &[Case] = &[
    ("the machine is lost while it makes a file system", machine_lost),
    ("the driver is killed while it makes a file system", driver_killed),
    ("somebody uses the volume between", used_between),
    ("a mkfs that cannot be run", no_tool),
    ("a volume that is open to everybody", open),
];

/// A mkfs that writes into the middle of the device and comes to no end, or to a bad one.
fn false_mkfs(world: &World, end: &str) -> Result<PathBuf> {
    let programs = world.folder.join("programs");
    fs::create_dir_all(&programs)?;
    let _ = fs::remove_file(programs.join("written"));
    let program = programs.join("mkfs.ext4");
    let script = format!(
        "#!/bin/sh\nfor device; do :; done\n\
         head -c 65536 /dev/urandom | dd of=$device bs=4096 seek=8192 conv=notrunc,fsync\n\
         : >{}/written\n{end}\n",
        programs.display()
    );
    fs::write(&program, script)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(programs)
}

/// The driver and its mkfs are killed when the latter has written something.
fn cut_off(world: &mut World) -> Result<Volume> {
    let volume = world.volume(&MOUNT)?;
    cut_off_on(world, &volume)?;
    Ok(volume)
}

fn cut_off_on(world: &mut World, volume: &Volume) -> Result<()> {
    let programs = false_mkfs(world, "exec sleep 600")?;
    world.plugin.restart_with(Some(&programs))?;
    let (caller, id, at) = (world.caller.clone(), &volume.id, &volume.staging);
    thread::scope(|scope| -> Result<()> {
        let staging = scope.spawn(|| caller.stage(id, at, &MOUNT));
        let begun = Instant::now();
        while !programs.join("written").exists() {
            ensure!(begun.elapsed() < SOON && !staging.is_finished(), "mkfs was not run");
            thread::sleep(Duration::from_millis(5));
        }
        world.plugin.kill9_with_tools()?;
        ensure!(staging.join().unwrap().is_err());
        Ok(())
    })?;
    let noted = noted(world, volume)?.context("the site knows of it")?;
    ensure!(noted.host == "worker-1" && noted.file_system == "ext4", "{noted:?}");
    Ok(())
}

fn noted(world: &World, volume: &Volume) -> Result<Option<Format>> {
    let api = world.rig.api()?;
    Ok(api.ask(async |client| client.volume(&volume.id).await)?.format)
}

/// Nothing of this machine goes on, and it has forgotten everything.
fn lose_machine(world: &World) -> Result<()> {
    Left::sweep(&world.folder, &world.plugin.state())?;
    world.nothing_left()
}

fn machine_lost(world: &mut World) -> Result<()> {
    let volume = cut_off(world)?;
    lose_machine(world)?;
    let next = world.plugin.start_beside("worker-2")?;
    let caller = next.caller()?;
    caller.register()?;
    world.caller = next.caller()?;
    // The orchestrator takes it from the machine that is gone.
    world.plugin.restart()?;
    let lost = world.plugin.caller()?;
    lost.detach(&volume.id, &MOUNT)?;
    caller.attach(&volume.id, &MOUNT, false)?;
    caller.stage(&volume.id, &volume.staging, &MOUNT)?;
    ensure!(noted(world, &volume)?.is_none(), "it is made");
    fs::write(volume.staging.join("file"), "it works")?;
    caller.unstage(&volume.id, &volume.staging)?;
    caller.stage(&volume.id, &volume.staging, &MOUNT)?;
    ensure!(fs::read(volume.staging.join("file"))? == b"it works");
    caller.unstage(&volume.id, &volume.staging)?;
    world.caller = lost;
    Ok(())
}

fn driver_killed(world: &mut World) -> Result<()> {
    let volume = cut_off(world)?;
    world.plugin.restart()?;
    world.works(&volume)?;
    ensure!(noted(world, &volume)?.is_none(), "it is made");
    Ok(())
}

/// Both ways: with the attachment that the killed driver left, and with a fresh one.
fn used_between(world: &mut World) -> Result<()> {
    for is_fresh in [false, true] {
        let volume = cut_off(world)?;
        if is_fresh {
            lose_machine(world)?;
        }
        world.plugin.restart()?;
        world.with_device(&volume, |device| write(device, 48 * MIB, &noise(8192)))?;
        let before = world.with_device(&volume, read)?;
        refused(world.stage(&volume), Code::FailedPrecondition, "no known file system")?;
        world.nothing_left()?;
        ensure!(before == world.with_device(&volume, read)?, "bytes have changed");
    }
    Ok(())
}

/// What it left is discarded, so that the volume is blank again.
fn no_tool(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let programs = false_mkfs(world, "echo no such luck >&2; exit 1")?;
    world.plugin.restart_with(Some(&programs))?;
    refused(world.stage(&volume), Code::Internal, "no such luck")?;
    world.nothing_left()?;
    ensure!(noted(world, &volume)?.is_none(), "it is forgotten");
    world.plugin.restart()?;
    world.works(&volume)
}

/// Whoever has no attachment is kept out from before the mkfs until its file system is there: nothing that he writes is
/// taken for something that it left.
fn open(world: &mut World) -> Result<()> {
    let wanted = NewVolume {
        name: "open".into(),
        size: SIZE,
        replicas: Some(1),
        attached_only: false,
        ..NewVolume::default()
    };
    let api = world.rig.api()?;
    let made = api.insist(SOON, async |client| client.create_volume(&wanted).await)?;
    let place = world.folder.join("open");
    let (staging, target) = (place.join("staging"), place.join("target"));
    fs::create_dir_all(&staging)?;
    let volume = Volume { id: made.uid, how: MOUNT, staging, target };
    world.caller.register()?;
    world.caller.attach(&volume.id, &MOUNT, false)?;
    let portal = world.rig.nbd(1);
    let plain = || Nbd::connect(portal, "open", Box::new(|| true));
    let mut before = plain()?;
    cut_off_on(world, &volume)?;
    ensure!(before.write(0, &[7; 4096], false).is_err(), "it is cut off");
    ensure!(matches!(plain(), Err(NbdError::NoExport(_))), "it is kept out");
    world.plugin.restart()?;
    world.works(&volume)?;
    plain().map(drop).context("it may come again")
}
