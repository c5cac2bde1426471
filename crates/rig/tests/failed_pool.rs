//! A device that fails: what its pool acknowledged without a flush may be lost, though the machine runs
//! on, and nobody goes on as if it were not (P8).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::links::Network;
use rig::nbd::Nbd;
use rig::site::{MIB, Rig};

const VOLUME: &str = "lost";
const BLOCK: usize = 65536;
const PATIENCE: Duration = Duration::from_secs(30);

/// A file system in memory that is too small for the pool on it, and can grow.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Result<Small> {
        fs::create_dir_all(&at)?;
        tool("mount", &["-t", "tmpfs", "-o", "size=64m", "small"], &at)?;
        Ok(Small(at))
    }

    fn grow(&self) -> Result<()> {
        tool("mount", &["-o", "remount,size=512m"], &self.0)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        if let Err(error) = tool("umount", &["-l"], &self.0) {
            eprintln!("{error:#}");
        }
    }
}

fn tool(name: &str, words: &[&str], at: &Path) -> Result<()> {
    let done = Command::new(name).args(words).arg(at).output().with_context(|| name.to_owned())?;
    ensure!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// Writes until the pool fails. Whoever asks then waits, so this waits for nobody.
fn write_until_it_fails(mut nbd: Nbd) {
    thread::spawn(move || {
        let bytes = vec![7; BLOCK];
        let mut blocks = 0..2048u64;
        while let Some(block) = blocks.next()
            && nbd.write(block * BLOCK as u64, &bytes, false).is_ok()
        {}
    });
}

fn wait_noted(state: &Path) -> Result<()> {
    let begun = Instant::now();
    let noted = || fs::read_to_string(state.join("failures")).unwrap_or_default();
    while noted().trim().is_empty() {
        ensure!(begun.elapsed() < PATIENCE, "that the pool failed was not noted");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[test]
fn a_device_that_failed_cannot_prove_that_it_lost_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can mount a file system that fails");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("failed_pool");
    let mut rig = Rig::start(&folder, &[256 * MIB], Network::loopback()).unwrap();
    let (pool, state) = (rig.pool(1), rig.folder().join("state-1"));
    rig.stop(1).unwrap();
    let small = Small::mount(rig.folder().join("small")).unwrap();
    let moved = small.0.join("pool");
    tool("cp", &["--sparse=always", pool.to_str().unwrap()], &moved).unwrap();
    fs::remove_file(&pool).unwrap();
    symlink(&moved, &pool).unwrap();
    rig.restart(1).unwrap();

    let operator = rig.operator().unwrap();
    operator.create(VOLUME, 128 * MIB, u32::try_from(BLOCK).unwrap(), &[1]).unwrap();
    let at = rig.finder(VOLUME).unwrap()().unwrap();
    write_until_it_fails(Nbd::connect(at, VOLUME, Box::new(|| true)).unwrap());
    wait_noted(&state).unwrap();

    rig.kill9(1);
    small.grow().unwrap();
    rig.restart(1).unwrap();
    let took = operator
        .wait_for(VOLUME, "the loss to be told", PATIENCE, |status| {
            status.stages.is_some_and(|stages| stages.plain_refused)
        })
        .unwrap();
    println!("told {took:.1?} after the start");
    rig.stop(1).unwrap();
}
