//! Volumes that are wanted in one way and had in another.
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use anyhow::{Result, ensure};
use tonic::Code;

use super::plugin::{BLOCK, How, MOUNT, Mode};
use super::{Case, World, refused};

pub const CASES: &[Case] = &[
    ("publish before stage", early),
    ("staged twice", twice),
    ("a device that is wanted as a mount", mounted_and_device),
    ("published for reading", for_reading),
    ("a device for reading", device_for_reading),
    ("staged for reading", staged_for_reading),
    ("attached for reading, wanted for writing", attached_for_reading),
    ("one writer, one place", one_place),
    ("options that are none", options),
    ("a wrong secret", wrong_secret),
    ("stages at the same time", crowd),
];

/// Whoever has it as a device may have anything on it.
fn mounted_and_device(world: &mut World) -> Result<()> {
    let volume = world.volume(&BLOCK)?;
    world.stage(&volume)?;
    world.publish(&volume)?;
    let answer = world.caller.stage(&volume.id, &volume.staging, &MOUNT);
    refused(answer, Code::AlreadyExists, "as a device")?;
    world.unpublish(&volume)?;
    Ok(world.unstage(&volume)?)
}

fn early(world: &mut World) -> Result<()> {
    for how in [MOUNT, BLOCK] {
        let volume = world.volume(&how)?;
        refused(world.publish(&volume), Code::FailedPrecondition, "not staged")?;
        ensure!(!volume.target.exists());
        world.works(&volume)?;
    }
    Ok(())
}

fn twice(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    fs::write(volume.staging.join("kept"), "kept")?;
    for other in [
        How { kind: Some("xfs"), ..MOUNT },
        How { mode: Mode::SingleNodeReaderOnly, ..MOUNT },
        BLOCK,
    ] {
        let answer = world.caller.stage(&volume.id, &volume.staging, &other);
        refused(answer, Code::AlreadyExists, "another way")?;
    }
    world.stage(&volume)?;
    ensure!(fs::read(volume.staging.join("kept"))? == b"kept");
    world.unstage(&volume)?;
    world.unstage(&volume)?;
    // Of its file system nothing was taken.
    let other = How { kind: Some("btrfs"), ..MOUNT };
    let answer = world.caller.stage(&volume.id, &volume.staging, &other);
    refused(answer, Code::FailedPrecondition, "ext4")?;
    world.nothing_left()?;
    world.works(&volume)
}

fn is_refused_to_write(at: &Path) -> Result<()> {
    let written = fs::write(at.join("file"), "no");
    let kind = written.err().map(|error| error.kind());
    ensure!(kind == Some(ErrorKind::ReadOnlyFilesystem), "{kind:?}");
    Ok(())
}

fn for_reading(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    world.stage(&volume)?;
    let places = (&*volume.staging, &*volume.target);
    world.caller.publish(&volume.id, places, &MOUNT, true)?;
    is_refused_to_write(&volume.target)?;
    fs::write(volume.staging.join("file"), "yes")?;
    world.caller.publish(&volume.id, places, &MOUNT, true)?;
    refused(world.publish(&volume), Code::AlreadyExists, "reading only")?;
    world.unpublish(&volume)?;
    Ok(world.unstage(&volume)?)
}

/// The kernel lets every opener of a device file write, however the file is mounted: only the device itself can say no.
fn device_for_reading(world: &mut World) -> Result<()> {
    let device = world.volume(&BLOCK)?;
    let reading = How { mode: Mode::SingleNodeReaderOnly, ..BLOCK };
    world.caller.stage(&device.id, &device.staging, &reading)?;
    let places = (&*device.staging, &*device.target);
    world.caller.publish(&device.id, places, &reading, true)?;
    // Some kernels refuse to open it, others to write.
    let written = fs::OpenOptions::new().write(true).open(&device.target);
    let written = written.and_then(|file| file.write_all_at(&[1; 4096], 0));
    ensure!(written.is_err());
    refused(world.stage(&device), Code::AlreadyExists, "reading only")?;
    world.unpublish(&device)?;
    Ok(world.unstage(&device)?)
}

fn staged_for_reading(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    let reading = How { mode: Mode::SingleNodeReaderOnly, ..MOUNT };
    // Blank, and nobody may write: there is nothing to mount, and nothing is made.
    let blank = world.caller.stage(&volume.id, &volume.staging, &reading);
    refused(blank, Code::FailedPrecondition, "blank")?;
    world.nothing_left()?;
    world.works(&volume)?;
    world.caller.stage(&volume.id, &volume.staging, &reading)?;
    is_refused_to_write(&volume.staging)?;
    refused(world.publish(&volume), Code::AlreadyExists, "reading only")?;
    refused(world.stage(&volume), Code::AlreadyExists, "reading only")?;
    let places = (&*volume.staging, &*volume.target);
    world.caller.publish(&volume.id, places, &reading, false)?;
    ensure!(fs::read(volume.target.join("works"))? == b"it works");
    world.unpublish(&volume)?;
    world.unstage(&volume)?;
    world.works(&volume)
}

/// As an orchestrator does it with a volume that it calls read-only: its mode is still that of a writer.
fn attached_for_reading(world: &mut World) -> Result<()> {
    let volume = world.volume_for(&MOUNT, true)?;
    refused(world.stage(&volume), Code::FailedPrecondition, "blank")?;
    world.nothing_left()?;
    world.caller.delete(&volume.id, &MOUNT)?;

    let volume = world.volume(&MOUNT)?;
    world.works(&volume)?;
    world.caller.attach_again(&volume.id, &MOUNT, true)?;
    for _ in 0..2 {
        world.stage(&volume)?;
    }
    is_refused_to_write(&volume.staging)?;
    refused(world.publish(&volume), Code::AlreadyExists, "reading only")?;
    let places = (&*volume.staging, &*volume.target);
    world.caller.publish(&volume.id, places, &MOUNT, true)?;
    ensure!(fs::read(volume.target.join("works"))? == b"it works");
    world.unpublish(&volume)?;
    Ok(world.unstage(&volume)?)
}

fn one_place(world: &mut World) -> Result<()> {
    let alone = How { mode: Mode::SingleNodeSingleWriter, ..MOUNT };
    for how in [alone.clone(), How { kind: None, ..alone }] {
        let volume = world.volume(&how)?;
        let second = volume.target.with_file_name("second");
        world.stage(&volume)?;
        world.publish(&volume)?;
        world.publish(&volume)?;
        let places = (&*volume.staging, &*second);
        let answer = world.caller.publish(&volume.id, places, &how, false);
        refused(answer, Code::FailedPrecondition, "only one place")?;
        ensure!(!second.exists());
        world.unpublish(&volume)?;
        world.caller.publish(&volume.id, places, &how, false)?;
        world.caller.unpublish(&volume.id, &second)?;
        world.unstage(&volume)?;
    }
    Ok(())
}

fn options(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    for flags in ["no-such-option", "noatime,data=nonsense", "a\0b"] {
        let how = How { flags: vec![flags.into()], ..MOUNT };
        let answer = world.caller.stage(&volume.id, &volume.staging, &how);
        refused(answer, Code::InvalidArgument, "option")?;
        world.nothing_left()?;
    }
    let how = How { flags: vec!["noatime".into(), "nodev,nosuid".into()], ..MOUNT };
    world.caller.stage(&volume.id, &volume.staging, &how)?;
    Ok(world.unstage(&volume)?)
}

fn wrong_secret(world: &mut World) -> Result<()> {
    let volume = world.volume(&How { secret: Some("open sesame open"), ..MOUNT })?;
    for secret in [Some("close sesame close"), None] {
        let wrong = How { secret, ..MOUNT };
        let answer = world.caller.stage(&volume.id, &volume.staging, &wrong);
        refused(answer, Code::Unauthenticated, "")?;
        world.nothing_left()?;
    }
    world.works(&volume)
}

fn crowd(world: &mut World) -> Result<()> {
    let volume = world.volume(&MOUNT)?;
    for round in 0..6 {
        let barrier = Barrier::new(4);
        let answers: Vec<_> = thread::scope(|scope| {
            let one = || {
                barrier.wait();
                world.stage(&volume)
            };
            let all: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let left = world.left()?;
        ensure!(left.processes.len() == 1 && left.loops.len() == 1, "round {round}: {left:?}");
        ensure!(left.mounts.len() == 2, "round {round}: the file and the stage: {left:?}");
        ensure!(answers.iter().any(Result::is_ok), "{answers:?}");
        let codes = answers.into_iter().filter_map(Result::err).map(|status| status.code());
        ensure!(codes.into_iter().all(|code| code == Code::Aborted));
        world.stage(&volume)?;
        world.unstage(&volume)?;
        world.nothing_left()?;
    }
    Ok(())
}
