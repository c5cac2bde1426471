//! Power is lost under a live mount (P8): where too many replicas lost it, what was acknowledged and not flushed
//! may be gone, and nobody goes on as if it were not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
mod machines;
mod raw;
#[allow(dead_code, reason = "other tests use the rest of it")]
mod volatile;

use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use control::api::types::Volume;
use rig::csi::{Access, Claim};
use rig::files::{FileLoad, Files};
use rig::plugin::{Plugin, missing};
use rig::site::MIB;
use tonic::Code;

use machines::Machines;
use raw::RawLoad;

const PATIENCE: Duration = Duration::from_secs(60);
/// Well below the second after which a replica that has nothing to do flushes by itself.
const UNFLUSHED: Duration = Duration::from_millis(200);
const LOST: &str = "UnflushedWritesLost";

/// One at a time: machines have tables of mounts of their own, which begin as a copy of everything that is mounted at
/// that moment, and what is in a copy is in use.
static ALONE: Mutex<()> = Mutex::new(());

struct Power {
    plugin: Plugin,
    machines: Machines,
    tree: Claim,
    device: Claim,
    files: FileLoad,
    raw: RawLoad,
    /// Goes last.
    _alone: MutexGuard<'static, ()>,
}

fn started(name: &str) -> Option<Power> {
    if let Some(missing) = missing(&["mkfs.ext4", "losetup", "unshare", "nsenter"]) {
        eprintln!("SKIPPED: {name}: {missing}");
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut plugin = Plugin::start(&folder, &[512 * MIB; 3], &["--away-after", "3"]).unwrap();
    let machines = Machines::of(&mut plugin.rig).unwrap();
    let tree = plugin.claim("tree", 128 * MIB, Access::Mount("ext4"), None).unwrap();
    let device = plugin.claim("device", 16 * MIB, Access::Block, None).unwrap();
    plugin.bring(&tree).unwrap();
    plugin.bring(&device).unwrap();
    raw::write_flushed(&device.target).unwrap();
    let files = FileLoad::start(Files { folder: tree.target.join("files"), seed: 3 }).unwrap();
    let raw = RawLoad::start(&device.target).unwrap();
    let mut power = Power { plugin, machines, tree, device, files, raw, _alone: alone };
    power.files.go_on(30, PATIENCE).unwrap();
    Some(power)
}

impl Power {
    fn reason(&self, claim: &Claim) -> Result<String> {
        let api = self.plugin.rig.api()?;
        Ok(api.ask(async |client| client.volume(&claim.id).await)?.state.reason)
    }

    /// What was acknowledged may be lost: nobody who was attached gets on.
    fn is_held(&mut self) -> Result<()> {
        let api = self.plugin.rig.api()?;
        let held = |volume: &Volume| volume.state.reason == LOST;
        for claim in [&self.tree, &self.device] {
            api.wait_volume(&claim.id, LOST, PATIENCE, held)?;
        }
        let refused = self.files.failure(PATIENCE)?;
        ensure!(refused.downcast_ref::<io::Error>().is_some(), "no error of a device: {refused:?}");
        let refused = self.raw.failure(PATIENCE)?;
        ensure!(refused.downcast_ref::<io::Error>().is_some(), "no error of a device: {refused:?}");
        ensure!(raw::check_flushed(&self.device.target).is_err(), "the old device can be read");
        for claim in [&self.tree, &self.device] {
            let again = self.plugin.csi.stage(claim).err().context("it is used still")?;
            ensure!(again.code() == Code::FailedPrecondition, "{again:?}");
            let says_what_to_do = again.message().contains("unmount it");
            ensure!(says_what_to_do, "{again:?}");
        }
        Ok(())
    }

    /// What was flushed is there for whoever comes anew.
    fn is_back(&self) -> Result<()> {
        for claim in [&self.tree, &self.device] {
            self.plugin.take_away(claim)?;
            self.plugin.bring(claim)?;
        }
        raw::check_flushed(&self.device.target)?;
        let files = self.files.files();
        files.check_all(&self.files.index())?;
        files.write(u64::MAX).context("it can be written again").map(drop)
    }

    fn end(mut self) -> Result<()> {
        for claim in [&self.tree, &self.device] {
            self.plugin.remove(claim)?;
        }
        let ids: Vec<u64> = self.plugin.rig.ids().collect();
        ids.iter().try_for_each(|id| self.plugin.rig.stop(*id))?;
        drop(self.machines);
        self.plugin.end()
    }
}

fn too_many(name: &str, ids: &[u64]) {
    let begun = Instant::now();
    let Some(mut power) = started(name) else { return };
    // Every flush of a file makes the whole pool durable; the device's writer never flushes, and goes on.
    power.files.hold(PATIENCE).unwrap();
    std::thread::sleep(UNFLUSHED);
    let lost = power.machines.lose_power(&mut power.plugin.rig, ids).unwrap();
    power.files.let_go();
    assert!(lost > 0, "something was to be lost");
    power.is_held().unwrap();
    power.is_back().unwrap();
    power.end().unwrap();
    println!("{name}: {:.1?}", begun.elapsed());
}

#[test]
fn two_of_three_lose_their_power() {
    too_many("power_loss_of_two", &[1, 2]);
}

#[test]
fn all_lose_their_power() {
    too_many("power_loss_of_all", &[1, 2, 3]);
}

/// Protects from a hold that is always there.
#[test]
fn one_of_three_loses_its_power() {
    let begun = Instant::now();
    let Some(mut power) = started("power_loss_of_one") else { return };
    power.machines.lose_power(&mut power.plugin.rig, &[1]).unwrap();
    power.files.go_on(50, PATIENCE).unwrap();
    let api = power.plugin.rig.api().unwrap();
    for claim in [&power.tree, &power.device] {
        api.wait_healthy(&claim.id, PATIENCE).unwrap();
        assert_ne!(power.reason(claim).unwrap(), LOST);
    }
    power.files.go_on(20, PATIENCE).unwrap();
    power.raw.rest().unwrap();
    let index = power.files.rest().unwrap();
    power.files.files().check_all(&index).unwrap();
    power.end().unwrap();
    println!("one of three: {:.1?}", begun.elapsed());
}
