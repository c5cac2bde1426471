//! What there is of attachments on this machine, as the kernel tells it.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

/// Of one folder: everything at or below it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// In the order in which they were made.
    pub mounts: Vec<PathBuf>,
    pub loops: Vec<PathBuf>,
    pub processes: Vec<i32>,
    /// Of attachments.
    pub entries: Vec<PathBuf>,
}

impl Left {
    /// `state` is where the driver keeps its attachments, below the folder.
    pub fn below(folder: &Path, state: &Path) -> Result<Left> {
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let mounts = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let mounts = mounts.filter(|at| at.starts_with(folder)).collect();
        let entries = fs::read_dir(state).into_iter().flatten().flatten();
        let entries = entries.map(|entry| entry.path()).collect();
        let (loops, processes) = (loops(folder), processes(folder));
        Ok(Left { mounts, loops, processes, entries })
    }

    /// For the machine's sake, when a test has failed.
    pub fn sweep(folder: &Path, state: &Path) -> Result<()> {
        let left = Left::below(folder, state)?;
        for at in left.mounts.iter().rev() {
            Command::new("umount").arg("--lazy").arg(at).status()?;
        }
        left.processes.iter().for_each(|pid| kill9(*pid));
        for device in left.loops {
            Command::new("losetup").arg("--detach").arg(device).status()?;
        }
        for entry in left.entries {
            let _ =
                if entry.is_dir() { fs::remove_dir_all(&entry) } else { fs::remove_file(&entry) };
        }
        Ok(())
    }
}

pub fn kill9(pid: i32) {
    // The only error is that it has ended.
    let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::KILL));
}

fn loops(folder: &Path) -> Vec<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let of_folder = devices.filter(|device| {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        let file = file.unwrap_or_default();
        // One whose mount is gone has no folder any more, and was somebody's all the same.
        file.trim_end() == "/volume" || Path::new(file.trim_end()).starts_with(folder)
    });
    of_folder.map(|device| Path::new("/dev").join(device.file_name())).collect()
}

/// Processes of attachments, and whatever else has this folder in its words, but for driver and site.
fn processes(folder: &Path) -> Vec<i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_attachment = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        words.contains(" serve attachment ") && words.contains(&folder.display().to_string())
    };
    pids.filter(is_attachment).collect()
}
