//! Programs of others that the suites need, from the packages of the system or by the proxy of Go.
use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// Downloading and building take nearly all of it, the first time.
pub const GO_SECONDS: u64 = 300;

/// A program and the Debian package that has it.
pub type Tool = (&'static str, &'static str);

pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Installs what is missing, where that is possible.
pub fn install(tools: &[Tool], log: &str) -> Result<()> {
    let missing = |tools: &[Tool]| -> Vec<&'static str> {
        let absent = tools.iter().filter(|(program, _)| find(program).is_none());
        absent.map(|(_, package)| *package).collect()
    };
    let packages = missing(tools);
    if packages.is_empty() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("these packages are needed, and there is no apt-get: {}", packages.join(" "));
    }
    let list = packages.join(" ");
    println!("installing {list}");
    // The list of packages may be older than the packages.
    let install = format!("-y -q install {list}");
    let words =
        |words: &str| shell::program("apt-get", words).env("DEBIAN_FRONTEND", "noninteractive");
    if !words(&install).run(log)?.exited_well {
        words("-q update").run(log)?;
        words(&install).run(log)?;
    }
    match missing(tools).as_slice() {
        [] => Ok(()),
        left => bail!("these packages could not be installed: {}", left.join(" ")),
    }
}

/// Builds a program of this version, once, and tells where it is.
pub fn install_go(module: &str, version: &str, log: &str) -> Result<PathBuf> {
    let name = module.rsplit('/').next().unwrap_or(module);
    let folder = shell::target().join(format!("conformance/tools/{name}-{version}"));
    let program = folder.join(name);
    if !program.is_file() {
        let install = format!("{GO_SECONDS} go install -buildvcs=false {module}@{version}");
        let install = shell::program("timeout", &install).env("GOBIN", folder.display());
        ensure!(install.run(log)?.exited_well, "{module} could not be installed");
    }
    program.is_file().then_some(program).with_context(|| format!("{module} has no {name}"))
}
