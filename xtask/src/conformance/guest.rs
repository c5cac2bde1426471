//! A guest with a kernel of Debian, whose own initiator and NBD client have volumes of a site outside of it.
//!
//! Nothing of it needs a kernel module here: `qemu` runs without KVM. Site and guest live in namespaces of their
//! own, which the kernel takes away with their first process, whatever happened: [`run`] calls this program once
//! more in there, [`inside`]. What the guest does is in `guest/init.sh`.
mod host;
mod image;
mod machine;
mod packages;
mod script;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use super::site::{self, Site};
use super::tools::{self, Tool};
use crate::shell;
use crate::totals::Totals;
use host::Host;
use packages::Packages;

const TOOLS: [Tool; 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("cpio", "cpio"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
];

/// Three times what it takes on two cores that others use too.
const SECONDS_MAX: u64 = 300;

const NAMESPACES: &str = "--net --mount --pid --fork --kill-child --mount-proc --";

/// The volumes, each with what the guest has it by. They are small: the guest formats and trims all of them.
const VOLUMES: [&str; 2] = ["over-iscsi", "over-nbd"];
const VOLUME_SIZE: &str = "320M";

pub fn run(log: &str) -> Result<Totals> {
    let packages = match prepare(log) {
        Ok(packages) => packages,
        Err(missing) => {
            println!("SKIPPED: no kernel attached anything, since there is no guest: {missing:#}");
            return Ok(Totals { skipped: 1, ..Totals::default() });
        }
    };
    packages.unpack(log)?;
    let scratch = folder().join("run");
    fs::create_dir_all(&scratch).with_context(|| format!("making {}", scratch.display()))?;
    // A build may have replaced this program since it was started: then its own path leads nowhere.
    let myself = folder().join("xtask");
    fs::copy("/proc/self/exe", &myself).with_context(|| format!("making {}", myself.display()))?;
    // Whoever ends this process, with Ctrl-C or without mercy, ends everything behind it.
    let words = format!("--pdeathsig KILL unshare {NAMESPACES} timeout -s KILL {SECONDS_MAX}");
    let ran = shell::program("setpriv", &words)
        .arg(&myself.display().to_string())
        .arg("conformance")
        .arg("guest")
        .arg("--inside")
        .env("TMPDIR", scratch.display())
        .run(log)?;
    Totals::of_summary(&ran.stdout).context("the run did not come to its end")
}

/// Everything that others provide; an error says what this machine lacks.
fn prepare(log: &str) -> Result<Packages> {
    ensure!(cfg!(target_arch = "x86_64"), "it is made for x86_64");
    let mut probe = Command::new("unshare");
    let script = "mount -t tmpfs none /mnt && ip link set lo up";
    let probe = probe.args(NAMESPACES.split(' ')).args(["sh", "-c", script]);
    let probe = probe.output().context("unshare")?;
    let said = String::from_utf8_lossy(&probe.stderr);
    ensure!(probe.status.success(), "namespaces need root: {}", said.trim());
    tools::install(&TOOLS, log)?;
    Packages::fetch(&folder().join("packages"), log)
}

fn folder() -> PathBuf {
    shell::target().join("conformance/guest")
}

/// What runs in the namespaces. Its last line is read by [`run`].
pub fn inside() -> Result<ExitCode> {
    let scratch = env::temp_dir();
    ensure!(scratch == folder().join("run"), "this is called by `cargo xtask conformance guest`");
    // In memory, so that nothing is left of pools and images, however it ends.
    command(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&scratch))?;
    command(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    for address in site::addresses() {
        command(Command::new("ip").args(["addr", "add", &address, "dev", "lo"]))?;
    }
    let (site, api) = Site::start_reachable("guest")?;
    site.wait_for_nodes(&api)?;
    let mut host = Host::new(site, api);
    let told = attend(&mut host, &scratch);
    let totals = told.and_then(|told| script::judge(&told));
    if !totals.as_ref().is_ok_and(|totals| totals.failed == 0) {
        host.show_logs();
        machine::show_console()?;
    }
    println!("{}", totals?);
    Ok(ExitCode::SUCCESS)
}

/// Starts the guest and does as it asks, until it ends; what it told.
fn attend(host: &mut Host, scratch: &Path) -> Result<Vec<script::Outcome>> {
    for volume in VOLUMES {
        host.create(volume, VOLUME_SIZE)?;
    }
    let packages = Packages::unpacked(&folder().join("packages"))?;
    let image = image::make(&packages, host, &scratch.join("image"))?;
    machine::run(&image, host)
}

fn command(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
