//! Places that are none, or somebody else's.
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tonic::Code;

use super::plugin::{BLOCK, MOUNT};
use super::{Case, World, refused};

pub const CASES: &[Case] = &[
    ("a path that is none", no_paths),
    ("a staging path that is not there, or a file", no_folder),
    ("a staging path with something else on it", occupied),
    ("a path through a link", linked),
    ("a target that is of the wrong sort, or not empty", wrong_sort),
    ("a target that has no folder to be in", homeless),
    ("a target that is somebody else's mount", foreign_target),
    ("a target in which somebody works", busy),
];

fn no_paths(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let up = world.folder.join("../up");
    for path in [Path::new("relative"), Path::new("/"), Path::new("/.."), &up, Path::new("/a\0b")] {
        let (caller, id) = (&world.caller, &volume.id);
        let places = (&*volume.staging, path);
        for answer in [
            caller.stage(id, path, &MOUNT),
            caller.unstage(id, path),
            caller.publish(id, places, &MOUNT, false),
            caller.unpublish(id, path),
        ] {
            refused(answer, Code::InvalidArgument, "path").context(format!("{path:?}"))?;
        }
    }
    world.works(&volume)
}

fn no_folder(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let nowhere = world.folder.join("nowhere");
    refused(world.caller.stage(&volume.id, &nowhere, &MOUNT), Code::InvalidArgument, "nowhere")?;
    let file = volume.staging.with_file_name("file");
    fs::write(&file, "somebody's")?;
    refused(world.caller.stage(&volume.id, &file, &MOUNT), Code::InvalidArgument, "no folder")?;
    ensure!(fs::read(&file)? == b"somebody's");
    world.nothing_left()?;
    // Nothing is there, so there is nothing to do.
    world.caller.unstage(&volume.id, &nowhere)?;
    world.caller.unpublish(&volume.id, &nowhere)?;
    world.works(&volume)
}

/// A mount that is not ours, while it is held.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn over(at: &Path) -> Result<Tmpfs> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "theirs"]).arg(at).status()?;
        ensure!(mounted.success());
        fs::write(at.join("theirs"), "theirs")?;
        Ok(Tmpfs(at.into()))
    }

    fn is_untouched(&self) -> Result<()> {
        ensure!(fs::read(self.0.join("theirs")).is_ok_and(|it| it == b"theirs"));
        Ok(())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // What stays is found as a mount that was left behind.
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn occupied(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let theirs = Tmpfs::over(&volume.staging)?;
    refused(world.stage(&volume), Code::FailedPrecondition, "theirs")?;
    refused(world.unstage(&volume), Code::FailedPrecondition, "theirs")?;
    theirs.is_untouched()?;
    let left = world.left()?;
    ensure!(left.processes.is_empty() && left.entries.is_empty(), "{left:?}");
    drop(theirs);
    world.works(&volume)
}

/// Folders of orchestrators are often links to a larger disk; the kernel tells of mounts without links.
fn linked(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let link = world.folder.join("link");
    symlink(volume.staging.parent().context("a folder")?, &link)?;
    let (staging, target) = (link.join("staging"), link.join("target"));
    let (caller, id) = (&world.caller, &volume.id);
    for _ in 0..2 {
        caller.stage(id, &staging, &MOUNT)?;
        caller.publish(id, (&staging, &target), &MOUNT, false)?;
    }
    let left = world.left()?;
    ensure!(left.mounts.len() == 3, "the file, the stage and the target: {left:?}");
    caller.stats(id, &target)?;
    // By its other name it is the same.
    world.stage(&volume)?;
    for _ in 0..2 {
        caller.unpublish(id, &target)?;
    }
    for _ in 0..2 {
        caller.unstage(id, &staging)?;
    }
    fs::remove_file(&link)?;
    world.works(&volume)
}

fn wrong_sort(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    fs::write(&volume.target, "")?;
    refused(world.publish(&volume), Code::InvalidArgument, "no folder")?;
    fs::remove_file(&volume.target)?;
    fs::create_dir(&volume.target)?;
    fs::write(volume.target.join("file"), "somebody's")?;
    refused(world.publish(&volume), Code::InvalidArgument, "not empty")?;
    ensure!(fs::read(volume.target.join("file"))? == b"somebody's");
    refused(world.unpublish(&volume), Code::FailedPrecondition, "not empty")?;
    fs::remove_file(volume.target.join("file"))?;
    symlink("/etc", volume.target.with_file_name("etc"))?;
    let etc = volume.target.with_file_name("etc");
    let linked = world.caller.publish(&volume.id, (&volume.staging, &etc), &MOUNT, false);
    refused(linked, Code::InvalidArgument, "no folder")?;
    // An empty folder is as good as none.
    world.publish(&volume)?;
    world.unpublish(&volume)?;
    ensure!(!volume.target.exists());
    world.unstage(&volume)?;

    let device = world.volume(&BLOCK)?;
    world.stage(&device)?;
    fs::create_dir(&device.target)?;
    refused(world.publish(&device), Code::InvalidArgument, "no file")?;
    fs::remove_dir(&device.target)?;
    fs::write(&device.target, "somebody's")?;
    refused(world.publish(&device), Code::InvalidArgument, "not empty")?;
    ensure!(fs::read(&device.target)? == b"somebody's");
    refused(world.unpublish(&device), Code::FailedPrecondition, "not empty")?;
    fs::remove_file(&device.target)?;
    Ok(world.unstage(&device)?)
}

fn homeless(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    let target = world.folder.join("no/such/folder");
    let answer = world.caller.publish(&volume.id, (&volume.staging, &target), &MOUNT, false);
    refused(answer, Code::InvalidArgument, "does not exist")?;
    ensure!(!world.folder.join("no").exists());
    Ok(world.unstage(&volume)?)
}

fn foreign_target(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    fs::create_dir(&volume.target)?;
    let theirs = Tmpfs::over(&volume.target)?;
    refused(world.publish(&volume), Code::FailedPrecondition, "theirs")?;
    refused(world.unpublish(&volume), Code::FailedPrecondition, "theirs")?;
    theirs.is_untouched()?;
    drop(theirs);
    world.publish(&volume)?;
    // Another volume's place is not this one's to take away.
    let other = world.volume(&MOUNT)?;
    world.stage(&other)?;
    let wrong = world.caller.unpublish(&other.id, &volume.target);
    refused(wrong, Code::FailedPrecondition, "something else")?;
    let wrong = world.caller.unstage(&other.id, &volume.staging);
    refused(wrong, Code::FailedPrecondition, "")?;
    world.unstage(&other)?;
    world.unpublish(&volume)?;
    Ok(world.unstage(&volume)?)
}

fn busy(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    world.publish(&volume)?;
    refused(world.unstage(&volume), Code::FailedPrecondition, "unpublish it there first")?;
    let mut sleep = Command::new("sleep");
    let mut sleep = sleep.arg("60").current_dir(&volume.target).stdin(Stdio::null()).spawn()?;
    refused(world.unpublish(&volume), Code::FailedPrecondition, "somebody works in it")?;
    fs::write(volume.target.join("still"), "there")?;
    sleep.kill()?;
    sleep.wait()?;
    world.unpublish(&volume)?;
    let mut sleep = Command::new("sleep");
    let mut sleep = sleep.arg("60").current_dir(&volume.staging).stdin(Stdio::null()).spawn()?;
    refused(world.unstage(&volume), Code::FailedPrecondition, "somebody works in it")?;
    sleep.kill()?;
    sleep.wait()?;
    Ok(world.unstage(&volume)?)
}
