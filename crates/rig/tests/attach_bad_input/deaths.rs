//! Processes of attachments that die, and a site that is away.
use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tonic::Code;

use super::left::{Left, kill9};
use super::plugin::{BLOCK, MOUNT};
use super::{Case, Volume, World, refused};

pub const CASES: &[Case] = &[
    ("the attachment's process is killed while it is used", killed),
    ("the attachment's process is killed while it begins", killed_at_start),
    ("the site is away", site_away),
    ("the site goes away in the middle of a stage", site_goes_away),
];

/// The one that there is.
fn process(world: &World) -> Result<i32> {
    let left = world.left()?;
    ensure!(left.processes.len() == 1, "{left:?}");
    Ok(left.processes[0])
}

fn synced(at: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(at, bytes)?;
    Ok(File::open(at)?.sync_all()?)
}

fn killed(world: &mut World) -> Result<()> {
    for how in [MOUNT, BLOCK] {
        let volume = world.volume(&how)?;
        world.stage(&volume)?;
        world.publish(&volume)?;
        if how.kind.is_some() {
            synced(&volume.target.join("kept"), b"kept")?;
            fs::write(volume.target.join("perhaps"), vec![1; 1 << 20])?;
        }
        let told = world.caller.stats(&volume.id, &volume.target)?;
        ensure!(told.volume_condition.is_some_and(|it| !it.abnormal));
        kill9(process(world)?);
        await_end(world)?;
        let told = world.caller.stats(&volume.id, &volume.target)?;
        let condition = told.volume_condition.context("a condition")?;
        println!("    {}", condition.message);
        ensure!(condition.abnormal, "{condition:?}");
        ensure!(told.usage.first().is_some_and(|it| it.total > 0), "{:?}", told.usage);
        // Whoever uses it has lost writes perhaps: nothing is mended under it.
        refused(world.stage(&volume), Code::FailedPrecondition, "unmount")?;
        refused(world.publish(&volume), Code::FailedPrecondition, "unmount")?;
        world.unpublish(&volume)?;
        world.unstage(&volume)?;
        world.nothing_left()?;
        world.stage(&volume)?;
        if how.kind.is_some() {
            ensure!(fs::read(volume.staging.join("kept"))? == b"kept");
        }
        world.unstage(&volume)?;
    }
    Ok(())
}

fn await_end(world: &World) -> Result<()> {
    let begun = Instant::now();
    while !world.left()?.processes.is_empty() {
        ensure!(begun.elapsed() < Duration::from_secs(5), "it goes on");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Kills it as soon as something is to be seen of it.
fn kill_when(world: &World, seen: impl Fn(&Left) -> bool) -> Result<bool> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let left = world.left()?;
        if let Some(pid) = left.processes.first().filter(|_| seen(&left)) {
            kill9(*pid);
            return Ok(true);
        }
    }
    Ok(false)
}

type Seen = fn(&Left) -> bool;

fn killed_at_start(world: &mut World) -> Result<()> {
    let moments: [(&str, Seen); 4] = [
        ("the process", |left| !left.processes.is_empty()),
        ("its file", |left| !left.mounts.is_empty()),
        ("its device", |left| !left.loops.is_empty()),
        ("the stage", |left| left.mounts.len() > 1),
    ];
    for (what, seen) in moments {
        for _ in 0..3 {
            let volume = world.volume(&MOUNT)?;
            let answer = thread::scope(|scope| -> Result<_> {
                let staging = scope.spawn(|| world.stage(&volume));
                ensure!(kill_when(world, seen)?, "{what} never came");
                Ok(staging.join().unwrap())
            })?;
            println!("    killed at {what}: {answer:?}");
            after_kill(world, &volume, answer.is_err()).with_context(|| what.to_owned())?;
        }
    }
    Ok(())
}

/// What failed has left nothing; what had worked before the end came is taken back by an unstage.
fn after_kill(world: &World, volume: &Volume, failed: bool) -> Result<()> {
    if !failed {
        world.unstage(volume)?;
    }
    world.nothing_left()?;
    world.works(volume)
}

fn site_away(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    world.rig.catalog().kill9();
    // What is attached does not need the site.
    world.publish(&volume)?;
    synced(&volume.target.join("written"), b"while it was away")?;
    world.caller.stats(&volume.id, &volume.target)?;
    world.stage(&volume).or_else(|status| match status.code() {
        Code::Unavailable => Ok(()),
        _ => Err(status),
    })?;
    world.unpublish(&volume)?;
    world.unstage(&volume)?;
    refused(world.stage(&volume), Code::Unavailable, "")?;
    world.nothing_left()?;
    world.rig.catalog().restart()?;
    is_back(world, &volume)
}

fn site_goes_away(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let (caller, folder, state) =
        (world.caller.clone(), world.folder.clone(), world.plugin.state());
    let answer = thread::scope(|scope| -> Result<_> {
        let staging = scope.spawn(|| caller.stage(&volume.id, &volume.staging, &MOUNT));
        let begun = Instant::now();
        while Left::below(&folder, &state)?.processes.is_empty() {
            ensure!(begun.elapsed() < Duration::from_secs(5), "no process came");
        }
        world.rig.catalog().kill9();
        Ok(staging.join().unwrap())
    })?;
    println!("    {answer:?}");
    match answer {
        // It had asked already.
        Ok(()) => world.unstage(&volume)?,
        Err(status) => refused(Err(status), Code::Unavailable, "")?,
    }
    world.nothing_left()?;
    world.rig.catalog().restart()?;
    is_back(world, &volume)
}

/// A controller that has just begun refuses for moments.
pub fn is_back(world: &World, volume: &Volume) -> Result<()> {
    let begun = Instant::now();
    while let Err(status) = world.stage(volume) {
        ensure!(begun.elapsed() < Duration::from_secs(20), "{status}");
        ensure!(status.code() == Code::Unavailable, "{status}");
        world.nothing_left()?;
        thread::sleep(Duration::from_millis(50));
    }
    world.unstage(volume)?;
    world.works(volume)
}
