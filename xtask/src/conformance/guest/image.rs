//! What the guest starts from: a kernel, and an archive with all that it needs in memory.
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::command;
use super::host::Host;
use super::packages::Packages;
use super::script;
use crate::conformance::{site, tools};

/// What the kernel has not built in. Those that they need come with them.
const MODULES: [&str; 7] =
    ["virtio_pci", "virtio_net", "sd_mod", "iscsi_tcp", "nbd", "xfs", "btrfs"];

const HOST_PROGRAMS: [&str; 10] = [
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "blkid",
    "e2fsck",
    "resize2fs",
    "xfs_growfs",
    "xfs_repair",
    "fstrim",
    "btrfs",
];

const CLIENT_PROGRAMS: [&str; 2] = ["iscsid", "iscsiadm"];

const FOLDERS: [&str; 12] = [
    "bin",
    "dev",
    "etc/iscsi",
    "lib",
    "lib64",
    "modules",
    "mnt",
    "proc",
    "run/lock/iscsi",
    "site",
    "sys",
    "var/lib/iscsi",
];

pub struct Image {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
}

struct Tree<'a> {
    top: PathBuf,
    packages: &'a Packages,
}

pub fn make(packages: &Packages, host: &Host, folder: &Path) -> Result<Image> {
    let tree = Tree { top: folder.join("tree"), packages };
    for folder in FOLDERS {
        fs::create_dir_all(tree.top.join(folder))?;
    }
    tree.add_busybox()?;
    tree.add_pollux()?;
    for name in HOST_PROGRAMS {
        let program = tools::find(name).with_context(|| format!("there is no {name}"))?;
        tree.add_program(&program)?;
    }
    for name in CLIENT_PROGRAMS {
        let find = |folder| packages.find(&format!("{folder}/{name}"));
        let program = find("sbin").or_else(|| find("usr/sbin"));
        tree.add_program(&program.with_context(|| format!("no package has {name}"))?)?;
    }
    tree.add_modules()?;
    tree.add_settings(host)?;
    tree.add_text("init", script::INIT)?;
    let initramfs = folder.join("initramfs");
    tree.pack(&initramfs)?;
    Ok(Image { kernel: packages.kernel()?, initramfs })
}

impl Tree<'_> {
    fn add_text(&self, path: &str, text: &str) -> Result<()> {
        let path = self.top.join(path);
        fs::write(&path, text)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?)
    }

    fn add_file(&self, from: &Path, to: &str) -> Result<()> {
        let copied = fs::copy(from, self.top.join(to));
        copied.with_context(|| format!("copying {}", from.display())).map(drop)
    }

    fn add_busybox(&self) -> Result<()> {
        let busybox = tools::find("busybox").context("there is no busybox")?;
        self.add_program(&busybox)?;
        for applet in command(Command::new(&busybox).arg("--list"))?.lines() {
            if applet != "busybox" {
                symlink("busybox", self.top.join("bin").join(applet))?;
            }
        }
        Ok(())
    }

    /// Without the names that only a debugger reads, which are a third of it.
    fn add_pollux(&self) -> Result<()> {
        let place = self.top.join("bin/pollux");
        command(Command::new("strip").arg("-o").arg(&place).arg(site::binary()))?;
        self.add_libraries(&place)
    }

    /// In place of the applet of busybox, if there is one of that name.
    fn add_program(&self, program: &Path) -> Result<()> {
        let name = program.file_name().context("a program has a name")?;
        let place = self.top.join("bin").join(name);
        if place.is_symlink() {
            fs::remove_file(&place)?;
        }
        fs::copy(program, &place).with_context(|| format!("copying {}", program.display()))?;
        self.add_libraries(program)
    }

    /// All of them in one folder, where the loader looks anyway.
    fn add_libraries(&self, program: &Path) -> Result<()> {
        let mut ldd = Command::new("ldd");
        ldd.arg(program).env("LD_LIBRARY_PATH", self.packages.libraries()).env("LC_ALL", "C");
        let libraries = match command(&mut ldd) {
            Err(error) if error.to_string().contains("not a dynamic executable") => return Ok(()),
            libraries => libraries?,
        };
        for line in libraries.lines() {
            ensure!(!line.contains("not found"), "{} lacks {}", program.display(), line.trim());
            let Some(path) = line.split_whitespace().find(|word| word.starts_with('/')) else {
                continue;
            };
            let name = path.rsplit('/').next().unwrap_or(path);
            let folder = if path.starts_with("/lib64/") { "lib64" } else { "lib" };
            self.add_file(Path::new(path), &format!("{folder}/{name}"))?;
        }
        Ok(())
    }

    /// With the order in which they are loaded.
    fn add_modules(&self) -> Result<()> {
        let mut order = String::new();
        for module in self.packages.modules_in_order(&MODULES)? {
            let name = module.file_name().context("a module has a name")?.to_string_lossy();
            self.add_file(&module, &format!("modules/{name}"))?;
            order += &format!("{name}\n");
        }
        self.add_text("modules/order", &order)
    }

    fn add_settings(&self, host: &Host) -> Result<()> {
        let iscsid = self.packages.find("etc/iscsi/iscsid.conf");
        self.add_file(&iscsid.context("open-iscsi has no iscsid.conf")?, "etc/iscsi/iscsid.conf")?;
        let initiator = "InitiatorName=iqn.2026-11.io.pollux:guest\n";
        self.add_text("etc/iscsi/initiatorname.iscsi", initiator)?;
        self.add_file(Path::new("/etc/mke2fs.conf"), "etc/mke2fs.conf")?;
        self.add_text("etc/passwd", "root:x:0:0:root:/:/bin/sh\n")?;
        self.add_file(&host.token(), "site/token")?;
        self.add_file(&host.authority()?, "site/ca.crt")?;
        self.add_text("site/api", host.api())
    }

    fn pack(&self, archive: &Path) -> Result<()> {
        let script = "set -o pipefail; find . | cpio -o -H newc -R 0:0 --quiet | gzip -1 > \"$0\"";
        let mut pack = Command::new("bash");
        pack.args(["-c", script]).arg(archive).current_dir(&self.top);
        command(&mut pack).map(drop)
    }
}
