//! Volumes as file trees of this machine, by the driver's socket: what is written there outlives the node that
//! serves and the driver, is in snapshots, and leaves nothing behind when it is taken away.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by its line")]
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use control::api::types::Volume;
use rig::api::Api;
use rig::csi::{Access, Claim};
use rig::files::{FileLoad, Files};
use rig::plugin::{Plugin, missing};
use rig::site::{MIB, node_name};

const PATIENCE: Duration = Duration::from_secs(60);
/// Btrfs and XFS want no less than 300 MiB.
const SIZE: u64 = 384 * MIB;
const LARGER: u64 = 512 * MIB;
const POOL: u64 = 1024 * MIB;
/// What is deleted to see that its space comes back.
const BULK: u64 = 96 * MIB;
/// An idle pool has made its checkpoint within this time, and told of it.
const QUIET: Duration = Duration::from_secs(6);

struct Mounted {
    plugin: Plugin,
    api: Api,
    claim: Claim,
    load: FileLoad,
}

fn live(kind: &'static str) {
    if let Some(missing) = missing(&[&format!("mkfs.{kind}"), "losetup", "fstrim", "blkid"]) {
        eprintln!("SKIPPED: mounts of {kind}: {missing}");
        return;
    }
    let begun = Instant::now();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mounts-{kind}"));
    let plugin = Plugin::start(&folder, &[POOL; 3], &["--away-after", "3"]).unwrap();
    let api = plugin.rig.api().unwrap();
    let claim = plugin.claim("data", SIZE, Access::Mount(kind), None).unwrap();
    plugin.bring(&claim).unwrap();
    let files = Files { folder: claim.target.join("files"), seed: 7 };
    let load = FileLoad::start(files).unwrap();
    let mut mounted = Mounted { plugin, api, claim, load };
    mounted.troubles().unwrap();
    mounted.the_end().unwrap();
    mounted.plugin.end().unwrap();
    println!("{kind}: {:.1?}", begun.elapsed());
}

impl Mounted {
    fn troubles(&mut self) -> Result<()> {
        self.load.go_on(50, PATIENCE)?;
        self.the_node_dies()?;
        self.the_driver_dies()?;
        self.a_snapshot()?;
        self.it_grows()
    }

    fn the_end(&mut self) -> Result<()> {
        let index = self.load.rest()?;
        let files = self.load.files();
        files.check_all(&index)?;
        self.space_comes_back()?;
        self.plugin.take_away(&self.claim)?;
        self.plugin.bring(&self.claim).context("a second time")?;
        files.check_all(&index).context("staged anew")?;
        self.plugin.remove(&self.claim)
    }

    fn volume(&self) -> Result<Volume> {
        Ok(self.api.ask(async |client| client.volume(&self.claim.id).await)?)
    }

    /// The one that serves: the load waits until somebody else does, and goes on.
    fn the_node_dies(&mut self) -> Result<()> {
        let target = self.volume()?.target.context("it is served")?.node;
        let ids = self.plugin.rig.ids();
        let holder = ids.into_iter().find(|id| node_name(*id) == target).context("a node")?;
        self.plugin.rig.note(&format!("node {holder}, which serves, is killed"));
        self.plugin.rig.kill9(holder);
        let moved = |volume: &Volume| {
            volume.target.as_ref().is_some_and(|it| it.serving && it.node != target)
        };
        self.api.wait_volume(&self.claim.id, "the target to move", PATIENCE, moved)?;
        let took = self.load.go_on(50, PATIENCE)?;
        self.plugin.rig.note(&format!("50 files {took:.1?} after the target moved"));
        self.plugin.rig.restart(holder)?;
        self.api.wait_healthy(&self.claim.id, PATIENCE)?;
        Ok(())
    }

    fn the_driver_dies(&mut self) -> Result<()> {
        self.plugin.rig.note("the driver is killed");
        self.plugin.kill9();
        self.load.go_on(50, PATIENCE)?;
        self.plugin.restart()?;
        let stats = self.plugin.csi.stats(&self.claim)?;
        let condition = stats.volume_condition.context("a condition")?;
        ensure!(!condition.abnormal, "{condition:?}");
        ensure!(stats.usage.iter().all(|usage| usage.total >= usage.used), "{:?}", stats.usage);
        self.plugin.bring(&self.claim).context("once more")?;
        self.load.go_on(20, PATIENCE)?;
        Ok(())
    }

    /// Of the volume under load, beside which it is mounted.
    fn a_snapshot(&mut self) -> Result<()> {
        let known = Files { folder: self.claim.target.join("known"), seed: 11 };
        fs::create_dir(&known.folder)?;
        let index = (0..10).map(|number| Ok((known.write(number)?, number)));
        let index = index.collect::<Result<_>>()?;
        File::open(&self.claim.target)?.sync_all()?;
        let csi = &self.plugin.csi;
        let snapshot = csi.insist(PATIENCE, |csi| csi.snapshot(&self.claim, "moment"))?;
        self.load.go_on(20, PATIENCE)?;
        let copy = self.plugin.claim("copy", SIZE, self.claim.access, Some(&snapshot))?;
        self.plugin.bring(&copy)?;
        let there = Files { folder: copy.target.join("known"), ..known.clone() };
        there.check_all(&index).context("in the snapshot")?;
        known.check_all(&index).context("beside the snapshot")?;
        ensure!(there.write(20).is_ok(), "the copy is a volume like any other");
        self.load.go_on(20, PATIENCE)?;
        self.plugin.remove(&copy)?;
        csi.insist(PATIENCE, |csi| csi.delete_snapshot(&snapshot))?;
        Ok(())
    }

    fn it_grows(&mut self) -> Result<()> {
        if self.claim.access == Access::Mount("ext4") && !may_grow_ext4()? {
            eprintln!("SKIPPED: a mounted ext4 grows only for somebody with CAP_SYS_RESOURCE");
            return Ok(());
        }
        let total = || -> Result<u64> {
            let of = rustix::fs::statvfs(&self.claim.target)?;
            Ok(of.f_blocks * of.f_frsize)
        };
        let before = total()?;
        self.plugin.csi.insist(PATIENCE, |csi| csi.expand(&self.claim, LARGER))?;
        let after = total()?;
        let gained = after.saturating_sub(before);
        ensure!(gained > (LARGER - SIZE) * 3 / 4, "{before} bytes became {after}");
        self.load.go_on(20, PATIENCE)?;
        Ok(())
    }

    fn free(&self) -> Result<u64> {
        let pools = self.api.ask(async |client| client.pools().await)?.items;
        Ok(pools.iter().map(|pool| pool.free).sum())
    }

    /// What is free once pools have tidied up, and the site has heard of it.
    fn settled(&self) -> Result<u64> {
        let begun = Instant::now();
        let (mut free, mut since) = (self.free()?, begun);
        while since.elapsed() < QUIET {
            ensure!(begun.elapsed() < PATIENCE, "what is free changes again and again");
            std::thread::sleep(Duration::from_millis(250));
            let now = self.free()?;
            if now != free {
                (free, since) = (now, Instant::now());
            }
        }
        Ok(free)
    }

    /// Nobody else writes meanwhile.
    fn space_comes_back(&self) -> Result<()> {
        let bulk = self.claim.target.join("bulk");
        fill(&bulk, BULK)?;
        let full = self.settled()?;
        fs::remove_file(&bulk)?;
        // A transaction that is not committed yet still has the file's space.
        rustix::fs::syncfs(File::open(&self.claim.target)?)?;
        trim(&self.claim.target)?;
        let (begun, most) = (Instant::now(), full + 3 * BULK * 3 / 4);
        while self.free()? < most {
            ensure!(begun.elapsed() < PATIENCE, "{full} bytes were free, and {} are", self.free()?);
            std::thread::sleep(Duration::from_millis(250));
        }
        self.plugin.rig.note(&format!("space came back within {:.1?}", begun.elapsed()));
        Ok(())
    }
}

fn fill(path: &Path, len: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let bytes: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
    (0..len / MIB).try_for_each(|_| file.write_all(&bytes))?;
    Ok(file.sync_all()?)
}

/// The kernel asks for more than being root.
fn may_grow_ext4() -> Result<bool> {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status")?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = u64::from_str_radix(effective.context("a process has them")?.trim(), 16)?;
    Ok(effective & CAP_SYS_RESOURCE != 0)
}

/// `fstrim` on something that is no mount would trim what is below.
fn trim(at: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let is_mount = table.lines().any(|line| line.split(' ').nth(4).map(Path::new) == Some(at));
    ensure!(is_mount, "{} is no mount", at.display());
    let done = Command::new("fstrim").arg("-v").arg(at).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    print!("{}", String::from_utf8_lossy(&done.stdout));
    Ok(())
}

#[test]
fn ext4_is_mounted() {
    live("ext4");
}

#[test]
fn xfs_is_mounted() {
    live("xfs");
}

#[test]
fn btrfs_is_mounted() {
    live("btrfs");
}
