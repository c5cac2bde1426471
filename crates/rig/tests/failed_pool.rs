//! A device that fails: what its pool acknowledged without a flush may be lost, though the machine runs
//! on, and no replica goes on as if it were not (P8).
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
#[path = "power_loss/volatile.rs"]
#[allow(dead_code, reason = "tests of lost power use the rest")]
mod volatile;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rig::links::Network;
use rig::nbd::Nbd;
use rig::operator::Operator;
use rig::site::{MIB, Rig};
use volatile::Volatile;

const VOLUME: &str = "lost";
const BLOCK: usize = 65536;
const PATIENCE: Duration = Duration::from_secs(30);

/// A node whose pool lies on a device that fails when it is told to, and a volume of one replica there.
struct Failing {
    rig: Rig,
    operator: Operator,
    // Behind the processes that use it.
    device: Volatile,
}

impl Failing {
    /// `None` where the test cannot run.
    fn start(name: &str) -> Option<Failing> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            eprintln!("SKIPPED: only root can mount a file system that fails, and that needs FUSE");
            return None;
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // Of a run that was killed. Where there is none, there is nothing to unmount.
        let _ = tool("umount", &["-l"], &folder.join("device"));
        let mut rig = Rig::start(&folder, &[64 * MIB], Network::loopback()).unwrap();
        rig.stop(1).unwrap();
        let (pool, below) = (rig.pool(1), folder.join("below"));
        fs::rename(&pool, &below).unwrap();
        let device = Volatile::serve(&below, &folder.join("device")).unwrap();
        symlink(&device.path, &pool).unwrap();
        rig.restart(1).unwrap();
        let operator = rig.operator().unwrap();
        operator.create(VOLUME, 16 * MIB, u32::try_from(BLOCK).unwrap(), &[1]).unwrap();
        Some(Failing { rig, operator, device })
    }

    fn nbd(&self) -> Nbd {
        let at = self.rig.finder(VOLUME).unwrap()().unwrap();
        Nbd::connect(at, VOLUME, Box::new(|| true)).unwrap()
    }

    /// Acknowledged, and not flushed: the replica has marked itself dirty before.
    fn write(&self) -> Nbd {
        let mut nbd = self.nbd();
        for block in 0..8 {
            nbd.write(block * BLOCK as u64, &vec![7; BLOCK], false).unwrap();
        }
        nbd
    }

    /// Writes, and has the device fail while the pool is served.
    fn fail_serving(&mut self) {
        let mut nbd = self.write();
        let logged = self.rig.node(1).logged();
        self.device.fail_next_flush();
        // Whoever asks now waits, so nothing waits for the answer.
        thread::spawn(move || nbd.flush());
        self.rig.node(1).wait_log(logged, &["the pool has failed"], PATIENCE).unwrap();
    }

    fn expect_told(&mut self) {
        self.rig.restart(1).unwrap();
        let took = self
            .operator
            .wait_for(VOLUME, "the loss to be told", PATIENCE, |status| {
                status.stages.is_some_and(|stages| stages.plain_refused)
            })
            .unwrap();
        println!("told {took:.1?} after the start");
        self.rig.stop(1).unwrap();
    }

    fn device(&self) -> PathBuf {
        self.rig.folder().join("device")
    }

    fn state(&self) -> PathBuf {
        self.rig.folder().join("state-1")
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        // A test that failed may leave a process that still has its file open, for which an ordinary
        // unmount would wait.
        if thread::panicking() {
            self.rig.kill9(1);
            let _ = tool("umount", &["-l"], &self.device());
        }
    }
}

#[test]
fn a_device_that_failed_cannot_prove_that_it_lost_nothing() {
    let Some(mut failing) = Failing::start("failed_pool") else { return };
    failing.fail_serving();
    failing.rig.kill9(1);
    failing.expect_told();
}

/// The kernel tells the error of a flush once: the start behind the one that failed finds nothing wrong.
#[test]
fn a_flush_that_fails_while_a_pool_opens_is_not_forgotten() {
    let Some(mut failing) = Failing::start("failed_open") else { return };
    drop(failing.write());
    failing.rig.kill9(1);
    failing.device.fail_next_flush();
    let begun = Instant::now();
    let error = loop {
        let error = failing.rig.restart(1).expect_err("its flush failed").to_string();
        // On a busy machine the file of a killed process takes long to be given back.
        if !error.contains("in use by another process") || begun.elapsed() > PATIENCE {
            break error;
        }
    };
    assert!(error.contains("flush"), "it says why: {error}");
    assert!(failing.device.has_failed());
    failing.expect_told();
}

#[test]
fn a_flush_that_fails_while_a_node_stops_is_not_forgotten() {
    let Some(mut failing) = Failing::start("failed_stop") else { return };
    drop(failing.write());
    failing.device.fail_next_flush();
    // It may say so by how it ends, or not; it has to remember.
    let _ = failing.rig.stop(1);
    assert!(failing.device.has_failed());
    failing.expect_told();
}

/// Neither the pool nor the state folder takes a byte when the device fails.
#[test]
fn a_full_state_folder_does_not_forget_a_failure() {
    let Some(mut failing) = Failing::start("failed_full") else { return };
    failing.rig.stop(1).unwrap();
    let small = Small::mount(failing.state()).unwrap();
    failing.rig.restart(1).unwrap();
    small.fill().unwrap();
    failing.fail_serving();
    failing.rig.kill9(1);
    let noted = fs::read_to_string(failing.state().join("failures")).unwrap();
    assert!(!noted.trim().is_empty(), "its space was taken beforehand");
    small.empty().unwrap();
    failing.expect_told();
}

/// A small file system in memory over a folder, with what was in the folder.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Result<Small> {
        let kept = at.with_extension("kept");
        fs::rename(&at, &kept)?;
        fs::create_dir_all(&at)?;
        tool("mount", &["-t", "tmpfs", "-o", "size=256k", "small"], &at)?;
        let small = Small(at);
        let from = format!("{}/.", kept.display());
        tool("cp", &["-a", &from], &small.0)?;
        Ok(small)
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    fn fill(&self) -> Result<()> {
        let filled = fs::write(self.filler(), vec![1; 1 << 20]);
        ensure!(filled.is_err(), "it is larger than it should be");
        Ok(())
    }

    fn empty(&self) -> Result<()> {
        Ok(fs::remove_file(self.filler())?)
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
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{name}: {said}");
    Ok(())
}
