//! Writes that are still in this machine's memory when a volume is to leave it.
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rig::process::pollux;
use tonic::Code;

use super::deaths::is_back;
use super::plugin::{BLOCK, HOST, How, MOUNT};
use super::{Case, Volume, World, refused};

pub const CASES: &[Case] = &[
    ("the target is away when a volume is unstaged", away),
    ("the target is away when a device is unstaged", device_away),
    ("the target comes back in time", comes_back),
    ("the target is away and everything was written", nothing_to_lose),
];

const NODE: u64 = 1;
const BULK: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Buffered, and nothing else.
fn write(volume: &Volume) -> Result<()> {
    Ok(fs::write(volume.staging.join("bulk"), vec![7; BULK])?)
}

fn unmount_by_force(world: &World, name: &str) -> Result<()> {
    let mut command = Command::new(pollux());
    command.args(["volume", "unmount", name, "--force", "--host", HOST]);
    command.arg("--state").arg(world.plugin.state());
    command.args(["--api", world.plugin.api()]).arg("--token-file").arg(world.plugin.token());
    let done = command.output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Of the newest volume.
fn name(world: &World) -> String {
    format!("v{}", world.volumes)
}

fn is_kept(world: &World, volume: &Volume) -> Result<()> {
    let name = name(world);
    let words = format!("pollux volume unmount {name} --force");
    refused(world.unstage(volume), Code::FailedPrecondition, &words)?;
    let device = world.left()?.loops.first().map(|device| device.display().to_string());
    let device = device.unwrap_or_else(|| "there is a device".into());
    refused(world.unstage(volume), Code::FailedPrecondition, &device)
}

fn away(world: &mut World) -> Result<()> {
    let volume = world.volume(&How { hold: "2s", ..MOUNT })?;
    world.stage(&volume)?;
    write(&volume)?;
    world.rig.kill9(NODE);
    is_kept(world, &volume)?;
    world.rig.restart(NODE)?;
    // What the kernel has dropped does not come back with the target.
    is_kept(world, &volume)?;
    ensure!(world.left()?.mounts.contains(&volume.staging), "it stays mounted");
    unmount_by_force(world, &name(world))?;
    world.nothing_left()?;
    world.caller.attach(&volume.id, &MOUNT, false)?;
    is_back(world, &volume)
}

/// Whoever wrote has closed it, and was told nothing.
fn device_away(world: &mut World) -> Result<()> {
    let volume = world.volume(&How { hold: "2s", ..BLOCK })?;
    world.stage(&volume)?;
    world.publish(&volume)?;
    let mut device = OpenOptions::new().write(true).open(&volume.target)?;
    device.write_all(&vec![7; BULK])?;
    world.rig.kill9(NODE);
    drop(device);
    world.unpublish(&volume)?;
    is_kept(world, &volume)?;
    world.rig.restart(NODE)?;
    is_kept(world, &volume)?;
    unmount_by_force(world, &name(world))?;
    world.nothing_left()?;
    world.caller.attach(&volume.id, &BLOCK, false)?;
    is_back(world, &volume)
}

/// Well before IO fails: the unstage waits, and nothing is lost.
fn comes_back(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    write(&volume)?;
    world.rig.kill9(NODE);
    let (caller, id, at) = (world.caller.clone(), &volume.id, &volume.staging);
    thread::scope(|scope| -> Result<()> {
        let unstaging = scope.spawn(|| caller.unstage(id, at));
        thread::sleep(Duration::from_secs(1));
        ensure!(!unstaging.is_finished(), "it waits");
        world.rig.restart(NODE)?;
        Ok(unstaging.join().unwrap()?)
    })?;
    world.nothing_left()?;
    world.stage(&volume)?;
    ensure!(fs::read(volume.staging.join("bulk"))? == vec![7; BULK]);
    Ok(world.unstage(&volume)?)
}

/// It is not durable as far as can be told, but nothing is lost: once the target is back, asking again is enough.
fn nothing_to_lose(world: &mut World) -> Result<()> {
    let volume = world.volume(&How { hold: "2s", ..MOUNT })?;
    world.stage(&volume)?;
    write(&volume)?;
    rustix::fs::syncfs(fs::File::open(&volume.staging)?)?;
    world.rig.kill9(NODE);
    let answer = world.unstage(&volume);
    world.rig.restart(NODE)?;
    // Whether the kernel flushes what is clean is its own affair.
    if answer.is_err() {
        refused(answer, Code::Unavailable, "ask again")?;
        let begun = Instant::now();
        while let Err(status) = world.unstage(&volume) {
            ensure!(begun.elapsed() < PATIENCE, "{status}");
            ensure!(status.code() == Code::Unavailable, "{status}");
        }
    }
    world.nothing_left()?;
    is_back(world, &volume)
}
