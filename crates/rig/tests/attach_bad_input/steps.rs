//! The driver is killed at every step of what it does: the next one finishes it, or undoes it.
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::left::Left;
use super::plugin::MOUNT;
use super::{Case, Volume, World};

pub const CASES: &[Case] = &[
    ("the driver is killed in a stage", in_a_stage),
    ("the driver is killed in an unstage", in_an_unstage),
    ("the driver is killed again and again", at_any_time),
];

/// How far a call has come, by what is to be seen from outside.
type Step = (&'static str, fn(&Left, &Volume) -> bool);

const STAGE: [Step; 7] = [
    ("its lock", |left, _| !left.entries.is_empty()),
    ("its folder", |left, _| left.entries.iter().any(|entry| entry.is_dir())),
    ("its record", |left, _| left.entries.iter().any(|entry| entry.join("record.json").exists())),
    ("its process", |left, _| !left.processes.is_empty()),
    ("its file", |left, _| !left.mounts.is_empty()),
    ("its device", |left, _| !left.loops.is_empty()),
    ("its mount", |left, volume| left.mounts.contains(&volume.staging)),
];

const UNSTAGE: [Step; 4] = [
    ("its mount", |left, volume| !left.mounts.contains(&volume.staging)),
    ("its device", |left, _| left.loops.is_empty()),
    ("its process", |left, _| left.processes.is_empty()),
    ("its folder", |left, _| !left.entries.iter().any(|entry| entry.is_dir())),
];

/// Kills the driver when a call that runs meanwhile has come so far; how it ended.
fn kill_at(
    world: &mut World,
    volume: &Volume,
    step: &Step,
    call: impl FnOnce() -> Result<(), tonic::Status> + Send,
) -> Result<()> {
    let (folder, state) = (world.folder.clone(), world.plugin.state());
    let answer = thread::scope(|scope| -> Result<_> {
        let calling = scope.spawn(call);
        let begun = Instant::now();
        while !(step.1)(&Left::below(&folder, &state)?, volume) && !calling.is_finished() {
            ensure!(begun.elapsed() < Duration::from_secs(30), "{} never came", step.0);
        }
        world.plugin.kill9();
        Ok(calling.join().unwrap())
    })?;
    println!("    killed at {}: {:?}", step.0, answer.map_err(|status| status.code()));
    world.plugin.restart()
}

fn in_a_stage(world: &mut World) -> Result<()> {
    for step in &STAGE {
        for staged_next in [true, false] {
            let volume = world.volume(&MOUNT)?;
            let (caller, id, at) = (world.caller.clone(), &volume.id, &volume.staging);
            kill_at(world, &volume, step, || caller.stage(id, at, &MOUNT))?;
            if staged_next {
                // A tool that the dead one started may still be at work.
                staged(world, &volume).with_context(|| step.0.to_owned())?;
                let left = world.left()?;
                ensure!(left.processes.len() == 1 && left.loops.len() == 1, "{left:?}");
                is_sound(world, &volume)?;
            }
            unstaged(world, &volume).with_context(|| step.0.to_owned())?;
            world.nothing_left().with_context(|| step.0.to_owned())?;
            world.works(&volume)?;
        }
    }
    Ok(())
}

fn again(what: impl Fn() -> Result<(), tonic::Status>) -> Result<()> {
    let begun = Instant::now();
    while let Err(status) = what() {
        let may_retry = status.code() == tonic::Code::Aborted;
        ensure!(may_retry && begun.elapsed() < Duration::from_secs(10), "{status}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn staged(world: &World, volume: &Volume) -> Result<()> {
    again(|| world.stage(volume))
}

fn unstaged(world: &World, volume: &Volume) -> Result<()> {
    again(|| world.unstage(volume))
}

/// Writes, and an ext4 without complaints afterwards.
fn is_sound(world: &World, volume: &Volume) -> Result<()> {
    fs::write(volume.staging.join("file"), vec![3; 1 << 20])?;
    world.unstage(volume)?;
    world.with_device(volume, check)?;
    world.stage(volume)?;
    ensure!(fs::read(volume.staging.join("file"))? == vec![3; 1 << 20]);
    Ok(())
}

fn check(device: &Path) -> Result<()> {
    let checked = std::process::Command::new("e2fsck").args(["-f", "-n"]).arg(device).output()?;
    ensure!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    Ok(())
}

fn in_an_unstage(world: &mut World) -> Result<()> {
    for step in &UNSTAGE {
        for unstaged_next in [true, false] {
            let volume = world.volume(&MOUNT)?;
            world.stage(&volume)?;
            fs::write(volume.staging.join("kept"), "kept")?;
            let (caller, id, at) = (world.caller.clone(), &volume.id, &volume.staging);
            kill_at(world, &volume, step, || caller.unstage(id, at))?;
            if unstaged_next {
                unstaged(world, &volume).with_context(|| step.0.to_owned())?;
                world.nothing_left().with_context(|| step.0.to_owned())?;
            }
            staged(world, &volume).with_context(|| step.0.to_owned())?;
            ensure!(fs::read(volume.staging.join("kept"))? == b"kept");
            unstaged(world, &volume)?;
            world.nothing_left().with_context(|| step.0.to_owned())?;
        }
    }
    Ok(())
}

/// Moments that none of the steps names: the time is what differs.
fn at_any_time(world: &mut World) -> Result<()> {
    for millis in (0..150).step_by(10) {
        let volume = world.volume(&MOUNT)?;
        let begun = Instant::now();
        let (caller, id, at) = (world.caller.clone(), &volume.id, &volume.staging);
        thread::scope(|scope| {
            scope.spawn(|| caller.stage(id, at, &MOUNT));
            thread::sleep(Duration::from_millis(millis).saturating_sub(begun.elapsed()));
            world.plugin.kill9();
        });
        world.plugin.restart()?;
        staged(world, &volume).with_context(|| format!("after {millis} ms"))?;
        is_sound(world, &volume).with_context(|| format!("after {millis} ms"))?;
        unstaged(world, &volume).with_context(|| format!("after {millis} ms"))?;
        world.nothing_left().with_context(|| format!("after {millis} ms"))?;
    }
    Ok(())
}
