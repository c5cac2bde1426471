//! What orchestrators, operators and accidents do to volumes on a machine: each gets a clear answer, nothing is
//! formatted over, nothing is left behind, and the next call works.
//!
//! Needs root, `/dev/fuse` and `/dev/loop-control`; without them it says so and shows nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod content;
mod cut_off;
mod deaths;
mod left;
mod modes;
mod paths;
mod plugin;
mod steps;
mod unwritten;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rig::site::{MIB, Rig};
use tonic::{Code, Status};

use left::Left;
use plugin::{Caller, How, Plugin};

const SIZE: u64 = 64 * MIB;
/// What ends by itself, such as a process that was told to.
const SOON: Duration = Duration::from_secs(10);

/// A site, a driver, and a folder for mounts.
pub struct World {
    plugin: Plugin,
    caller: Caller,
    rig: Rig,
    folder: PathBuf,
    volumes: u32,
}

/// A volume that is attached to this machine in the site, and places for it.
pub struct Volume {
    id: String,
    how: How,
    staging: PathBuf,
    target: PathBuf,
}

impl World {
    fn start(folder: &Path) -> Result<World> {
        if folder.exists() {
            // Of a run that was killed.
            Left::sweep(folder, &folder.join("a"))?;
        }
        // Many volumes are made in it, and little is written to each.
        let rig = Rig::start_controlled_sparse(folder, &[16 * 1024 * MIB], &[])?;
        let api = rig.catalog_address().replace(":7460", ":7470");
        let plugin = Plugin::start(folder, api)?;
        let caller = plugin.caller()?;
        Ok(World { plugin, caller, rig, folder: folder.canonicalize()?, volumes: 0 })
    }

    fn volume(&mut self, how: &How) -> Result<Volume> {
        self.volume_for(how, false)
    }

    fn volume_for(&mut self, how: &How, readonly: bool) -> Result<Volume> {
        self.volumes += 1;
        let name = format!("v{}", self.volumes);
        let id = self.caller.create(&name, SIZE, how, readonly).context("a new volume")?;
        let place = self.folder.join(&name);
        let (staging, target) = (place.join("staging"), place.join("target"));
        fs::create_dir_all(&staging)?;
        Ok(Volume { id, how: how.clone(), staging, target })
    }

    fn stage(&self, volume: &Volume) -> Result<(), Status> {
        self.caller.stage(&volume.id, &volume.staging, &volume.how)
    }

    fn publish(&self, volume: &Volume) -> Result<(), Status> {
        let places = (&*volume.staging, &*volume.target);
        self.caller.publish(&volume.id, places, &volume.how, false)
    }

    fn unpublish(&self, volume: &Volume) -> Result<(), Status> {
        self.caller.unpublish(&volume.id, &volume.target)
    }

    fn unstage(&self, volume: &Volume) -> Result<(), Status> {
        self.caller.unstage(&volume.id, &volume.staging)
    }

    /// As a device for a moment.
    fn with_device<T>(&self, volume: &Volume, work: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        let block = How { secret: volume.how.secret, ..plugin::BLOCK };
        let device = volume.target.with_file_name("device");
        self.caller.stage(&volume.id, &volume.staging, &block)?;
        self.caller.publish(&volume.id, (&volume.staging, &device), &block, false)?;
        let done = work(&device);
        self.caller.unpublish(&volume.id, &device)?;
        self.caller.unstage(&volume.id, &volume.staging)?;
        done
    }

    fn left(&self) -> Result<Left> {
        Left::below(&self.folder, &self.plugin.state())
    }

    /// Also if the end of a process takes a moment.
    fn nothing_left(&self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let left = self.left()?;
            if left == Left::default() {
                return Ok(());
            }
            ensure!(begun.elapsed() < SOON, "left behind: {left:#?}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The volume is as good as new: staged, used, and given back.
    fn works(&self, volume: &Volume) -> Result<()> {
        self.stage(volume).context("a stage afterwards")?;
        if volume.how.kind.is_some() {
            fs::write(volume.staging.join("works"), "it works")?;
        }
        self.unstage(volume).context("an unstage afterwards")?;
        self.nothing_left()
    }
}

/// It was refused in this way, with these words.
fn refused(answer: Result<(), Status>, code: Code, words: &str) -> Result<()> {
    match answer {
        Ok(()) => bail!("it worked, instead of {code:?} ({words})"),
        Err(status) => {
            println!("    {:?}: {}", status.code(), status.message());
            ensure!(status.code() == code, "{code:?} expected: {status}");
            ensure!(status.message().contains(words), "`{words}` expected: {status}");
            Ok(())
        }
    }
}

type Case = (&'static str, fn(&mut World) -> Result<()>);

fn is_possible() -> Result<(), &'static str> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root");
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(device).exists() {
            return Err("it needs /dev/fuse and /dev/loop-control");
        }
    }
    Ok(())
}

#[test]
fn attach_bad_input() {
    if let Err(why) = is_possible() {
        println!("SKIPPED: {why}");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("attach_bad");
    let mut world = World::start(&folder).unwrap();
    let cases = [
        paths::CASES,
        modes::CASES,
        content::CASES,
        cut_off::CASES,
        unwritten::CASES,
        deaths::CASES,
        steps::CASES,
    ]
    .concat();
    let only = std::env::var("RIG_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    for (name, case) in cases.into_iter().filter(|(name, _)| name.contains(&only)) {
        println!("{name}");
        let begun = Instant::now();
        let done = case(&mut world).and_then(|()| world.nothing_left());
        println!("    {:?}", begun.elapsed());
        if let Err(error) = done {
            println!("    FAILED: {error:?}");
            failed.push(name);
            world.plugin.restart().unwrap();
            Left::sweep(&world.folder, &world.plugin.state()).unwrap();
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
