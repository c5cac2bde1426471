//! Nodes as machines that can lose their power: a disk with a cache, and a kernel that boots anew.
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rig::random::Random;
use rig::site::Rig;

use crate::volatile::Volatile;

/// A mount namespace in which the kernel's boot is told by a file of ours. It is there as long as its process,
/// which ends with the pipe to it.
struct Kernel {
    process: Child,
    boot: PathBuf,
}

impl Kernel {
    fn new(boot: PathBuf, random: &mut Random) -> Result<Kernel> {
        fs::write(&boot, boot_id(random))?;
        let script =
            "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && echo ready && exec cat";
        let mut process = Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(&boot)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare")?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let kernel = Kernel { process, boot };
        ensure!(line.trim() == "ready", "no namespace of its own");
        Ok(kernel)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The only error is that it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// As the kernel writes it.
fn boot_id(random: &mut Random) -> String {
    let id = format!("{:016x}{:016x}", random.draw(), random.draw());
    let parts = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]];
    format!("{}\n", parts.join("-"))
}

/// All nodes of a rig, by their numbers.
pub struct Machines {
    // Dropped in this order: a namespace keeps the mounts of disks.
    kernels: Vec<Kernel>,
    disks: Vec<Volatile>,
    random: Random,
}

impl Machines {
    /// Moves the nodes of a rig onto such machines.
    pub fn of(rig: &mut Rig) -> Result<Machines> {
        let mut random = Random::new(1);
        let ids: Vec<u64> = rig.ids().collect();
        let mut disks = Vec::new();
        for id in &ids {
            rig.stop(*id)?;
            disks.push(moved(&rig.pool(*id), &rig.folder().join(format!("disk-{id}")))?);
        }
        let mut kernels = Vec::new();
        for id in &ids {
            let kernel = Kernel::new(rig.folder().join(format!("boot-{id}")), &mut random)?;
            let namespace = format!("--mount=/proc/{}/ns/mnt", kernel.process.id());
            rig.node(*id).run_by(&["nsenter", &namespace]);
            kernels.push(kernel);
            rig.restart(*id)?;
        }
        Ok(Machines { kernels, disks, random })
    }

    /// The power of these is gone, all at once, and comes back. How many blocks were lost.
    pub fn lose_power(&mut self, rig: &mut Rig, ids: &[u64]) -> Result<usize> {
        ids.iter().for_each(|id| rig.kill9(*id));
        let mut all = 0;
        for id in ids {
            let at = usize::try_from(*id)? - 1;
            let lost = self.disks[at].lose();
            rig.note(&format!("node {id} lost its power, and {lost} blocks"));
            fs::write(&self.kernels[at].boot, boot_id(&mut self.random))?;
            all += lost;
        }
        ids.iter().try_for_each(|id| rig.restart(*id))?;
        Ok(all)
    }
}

fn moved(pool: &Path, folder: &Path) -> Result<Volatile> {
    let below = folder.with_extension("below");
    fs::rename(pool, &below)?;
    let disk = Volatile::serve(&below, folder).context("a disk by FUSE")?;
    symlink(&disk.path, pool)?;
    Ok(disk)
}
