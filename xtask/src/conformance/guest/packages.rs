//! Packages of Debian that are unpacked and not installed: a kernel, and clients whose daemons nobody wants here.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::command;
use crate::shell;

/// It depends on the package that has the kernel of the day.
const KERNEL: &str = "linux-image-cloud-amd64";

/// Programs, and those of their libraries that a machine may lack.
const CLIENTS: [&str; 6] =
    ["open-iscsi", "libisns0", "libkmod2", "libopeniscsiusr", "libnl-3-200", "libnl-genl-3-200"];

/// The names of the folders that the run goes by.
const LIST: &str = "list";

pub struct Packages {
    folder: PathBuf,
    /// Each is the name of a package with its version, and of the folder that has its files.
    names: Vec<String>,
}

impl Packages {
    /// Has every package in the folder, as the archive has it today.
    pub fn fetch(folder: &Path, log: &str) -> Result<Packages> {
        let files = match archive_files() {
            Ok(files) => files,
            Err(_) => {
                shell::program("apt-get", "-q update").run(log)?;
                archive_files()?
            }
        };
        for file in &files {
            let name = stem(file)?;
            if !folder.join(name).is_dir() && !folder.join(file).is_file() {
                let package = name.split('_').next().unwrap_or(name);
                fs::create_dir_all(folder)?;
                command(apt("apt-get").arg("download").arg(package).current_dir(folder))?;
            }
        }
        let names = files.iter().map(|file| stem(file).map(str::to_owned));
        Ok(Packages { folder: folder.to_owned(), names: names.collect::<Result<_>>()? })
    }

    /// Unpacks what is not there yet, and forgets older versions.
    pub fn unpack(&self, log: &str) -> Result<()> {
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            let is_known = self.names.iter().any(|name| path.ends_with(name));
            if path.is_dir() && !is_known {
                fs::remove_dir_all(&path)?;
            }
        }
        for name in &self.names {
            let (place, package) =
                (self.folder.join(name), self.folder.join(format!("{name}.deb")));
            if place.is_dir() {
                continue;
            }
            let half = self.folder.join("half");
            let unpack = shell::program("dpkg-deb", "-x").arg(&package.display().to_string());
            let unpacked = unpack.arg(&half.display().to_string()).run(log)?.exited_well;
            ensure!(unpacked, "{} could not be unpacked", package.display());
            fs::rename(&half, &place)?;
            fs::remove_file(&package)?;
        }
        self.index_modules()?;
        Ok(fs::write(self.folder.join(LIST), self.names.join("\n"))?)
    }

    /// What [`Packages::unpack`] left.
    pub fn unpacked(folder: &Path) -> Result<Packages> {
        let list = fs::read_to_string(folder.join(LIST)).context("the list of packages")?;
        Ok(Packages { folder: folder.to_owned(), names: list.lines().map(str::to_owned).collect() })
    }

    fn index_modules(&self) -> Result<()> {
        let modules = self.modules()?;
        if modules.join("modules.dep").is_file() {
            return Ok(());
        }
        let release = modules.file_name().context("modules lie in a folder")?;
        let top = modules.ancestors().nth(3).context("modules lie three folders deep")?;
        command(Command::new("busybox").args(["depmod", "-b"]).arg(top).arg(release)).map(drop)
    }

    /// A file of any of the packages.
    pub fn find(&self, file: &str) -> Option<PathBuf> {
        let places = self.names.iter().map(|name| self.folder.join(name).join(file));
        places.into_iter().find(|place| place.exists())
    }

    /// The one file in a folder of any of the packages whose name begins so.
    fn find_beginning(&self, folder: &str, beginning: &str) -> Result<PathBuf> {
        let folder = self.find(folder).with_context(|| format!("no package has {folder}"))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(beginning) {
                return Ok(entry.path());
            }
        }
        bail!("{} has no {beginning}", folder.display())
    }

    pub fn kernel(&self) -> Result<PathBuf> {
        self.find_beginning("boot", "vmlinuz")
    }

    /// The folder with the modules of the kernel.
    fn modules(&self) -> Result<PathBuf> {
        let top =
            if self.find("usr/lib/modules").is_some() { "usr/lib/modules" } else { "lib/modules" };
        self.find_beginning(top, "")
    }

    /// The modules of these names and those that they need, each behind those.
    pub fn modules_in_order(&self, names: &[&str]) -> Result<Vec<PathBuf>> {
        let folder = self.modules()?;
        let dependencies = fs::read_to_string(folder.join("modules.dep"))?;
        let modules = in_order(&dependencies, names)?;
        Ok(modules.iter().map(|module| folder.join(module)).collect())
    }

    /// Where libraries are looked for before the machine's own.
    pub fn libraries(&self) -> String {
        let folders = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib", "lib"];
        let places = self.names.iter().flat_map(|name| {
            folders
                .iter()
                .map(move |folder| self.folder.join(name).join(folder).display().to_string())
        });
        places.collect::<Vec<String>>().join(":")
    }
}

fn apt(program: &str) -> Command {
    let mut apt = Command::new(program);
    // Its own user may not write where builds go.
    apt.args(["-q", "-o", "APT::Sandbox::User=root"]).env("LC_ALL", "C");
    apt
}

/// The file of every package that is needed, by name and version.
fn archive_files() -> Result<Vec<String>> {
    let depends = command(apt("apt-cache").args(["depends", KERNEL]))?;
    let kernel = depends.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    let kernel = kernel.with_context(|| format!("the archive has no {KERNEL}"))?;
    let wanted =
        apt("apt-get").args(["download", "--print-uris", kernel]).args(CLIENTS).output()?;
    let said = String::from_utf8_lossy(&wanted.stderr).into_owned();
    ensure!(wanted.status.success(), "apt-get download: {}", said.trim());
    let lines = String::from_utf8_lossy(&wanted.stdout).into_owned();
    let files: Vec<String> =
        lines.lines().filter_map(|line| Some(line.split(' ').nth(1)?.to_owned())).collect();
    ensure!(files.len() == CLIENTS.len() + 1, "the archive has not all packages: {files:?}");
    Ok(files)
}

fn stem(file: &str) -> Result<&str> {
    file.strip_suffix(".deb").with_context(|| format!("{file} is no package"))
}

/// What `depmod` wrote: a module, and behind a colon those that it needs.
fn in_order(dependencies: &str, names: &[&str]) -> Result<Vec<String>> {
    let lines = dependencies.lines().filter_map(|line| line.split_once(':'));
    let needs: BTreeMap<&str, Vec<&str>> =
        lines.map(|(module, needs)| (module, needs.split_whitespace().collect())).collect();
    let mut order = Vec::new();
    for name in names {
        let file = |module: &&&str| module.rsplit('/').next() == Some(&format!("{name}.ko"));
        let module = needs.keys().find(file);
        let module = module.with_context(|| format!("the kernel has no module {name}"))?;
        add(module, &needs, &mut order);
    }
    Ok(order.into_iter().map(str::to_owned).collect())
}

fn add<'a>(module: &'a str, needs: &BTreeMap<&'a str, Vec<&'a str>>, order: &mut Vec<&'a str>) {
    if order.contains(&module) {
        return;
    }
    for needed in needs.get(module).into_iter().flatten() {
        add(needed, needs, order);
    }
    order.push(module);
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPENDENCIES: &str = "kernel/a/iscsi_tcp.ko: kernel/a/libiscsi_tcp.ko kernel/a/libiscsi.ko\n\
                                kernel/a/libiscsi_tcp.ko: kernel/a/libiscsi.ko\n\
                                kernel/a/libiscsi.ko:\n";

    #[test]
    fn a_module_comes_behind_all_that_it_needs_and_once() {
        let order = in_order(DEPENDENCIES, &["libiscsi_tcp", "iscsi_tcp"]).unwrap();
        let expected =
            ["libiscsi", "libiscsi_tcp", "iscsi_tcp"].map(|name| format!("kernel/a/{name}.ko"));
        assert_eq!(order, expected);
        assert!(in_order(DEPENDENCIES, &["iscsi"]).is_err());
    }
}
