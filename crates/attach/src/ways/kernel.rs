//! Which of the ways this kernel has, and why not the better ones.
use std::path::Path;
use std::process::{Command, Stdio};

use super::Way;
use crate::loops;

/// A way, and the reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub way: Way,
    pub why: String,
}

/// The first way that `there` does not object to, or the one that is wanted. The error has all objections.
pub fn choose(
    wanted: Option<Way>,
    mut there: impl FnMut(Way) -> Result<(), String>,
) -> Result<Choice, String> {
    let mut objections = Vec::new();
    for way in Way::ALL {
        if wanted.is_some_and(|wanted| wanted != way) {
            continue;
        }
        match there(way) {
            Ok(()) => {
                let mut why = if wanted.is_some() { "it was asked for" } else { "" }.to_owned();
                if wanted.is_none() {
                    objections.push(format!("{} is there", way.name()));
                    why = objections.join("; ");
                }
                return Ok(Choice { way, why });
            }
            Err(objection) => objections.push(format!("no {}: {objection}", way.name())),
        }
    }
    Err(objections.join("; "))
}

/// Whether this machine has what a way needs; otherwise what is missing.
pub fn there(way: Way) -> Result<(), String> {
    match way {
        Way::Iscsi => {
            tool("iscsiadm")?;
            tool("iscsid")?;
            module("iscsi_tcp")
        }
        Way::Nbd => module("nbd"),
        Way::Fuse => {
            if !Path::new("/dev/fuse").exists() {
                return Err("there is no /dev/fuse".into());
            }
            loops::there().map_err(|error| error.to_string())
        }
    }
}

fn tool(name: &str) -> Result<(), String> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).any(|folder| folder.join(name).is_file());
    if found { Ok(()) } else { Err(format!("the program {name} is not installed")) }
}

/// Loaded, or loaded now.
fn module(name: &str) -> Result<(), String> {
    let is_there = || Path::new("/sys/module").join(name).exists();
    if is_there() {
        return Ok(());
    }
    let mut load = Command::new("modprobe");
    load.arg("--quiet").arg(name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Whether it could be run or not: what counts is whether the module is there.
    let _ = load.status();
    if is_there() { Ok(()) } else { Err(format!("the kernel has no module {name}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_way_that_is_there_is_taken() {
        let chosen = choose(None, |_| Ok(())).expect("all are there");
        assert_eq!((chosen.way, &*chosen.why), (Way::Iscsi, "iscsi is there"));
        let only_fuse = |way| if way == Way::Fuse { Ok(()) } else { Err("no module".into()) };
        let chosen = choose(None, only_fuse).expect("one is there");
        let why = "no iscsi: no module; no nbd: no module; fuse is there";
        assert_eq!((chosen.way, &*chosen.why), (Way::Fuse, why));
    }

    #[test]
    fn what_is_wanted_is_taken_or_nothing() {
        let chosen = choose(Some(Way::Nbd), |_| Ok(())).expect("all are there");
        assert_eq!((chosen.way, &*chosen.why), (Way::Nbd, "it was asked for"));
        let refused = choose(Some(Way::Nbd), |_| Err("no module".into())).expect_err("not there");
        assert_eq!(refused, "no nbd: no module");
        assert!(
            choose(None, |_| Err("no module".into())).is_err_and(|all| all.contains("no fuse"))
        );
    }
}
