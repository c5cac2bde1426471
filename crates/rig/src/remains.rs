//! What attachments could leave on this machine: mounts, loop devices, processes and sockets.
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};

#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    Mount(PathBuf),
    Loop(PathBuf),
    Process(u32),
    Socket(PathBuf),
}

/// Everything of a folder.
pub fn below(folder: &Path) -> Result<Vec<Left>> {
    let mut left: Vec<Left> = processes(folder)?.into_iter().map(Left::Process).collect();
    left.extend(mounts(folder)?.into_iter().map(Left::Mount));
    left.extend(loops(folder)?.into_iter().map(Left::Loop));
    left.extend(sockets(folder)?.into_iter().map(Left::Socket));
    Ok(left)
}

/// The later ones first: they may be on top of earlier ones.
fn mounts(folder: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let places = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut ours: Vec<PathBuf> = places.filter(|at| at.starts_with(folder)).collect();
    ours.reverse();
    Ok(ours)
}

/// What the kernel calls the file of an attachment when it cannot tell any more where that was.
const LOST: &str = "/volume";

fn loops(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut ours = Vec::new();
    for device in fs::read_dir("/sys/block")? {
        let device = device?;
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        // One whose mount is gone was somebody's: nobody may leave it.
        let is_left = |file: String| {
            let file = Path::new(file.trim_end());
            file.starts_with(folder) || file == Path::new(LOST)
        };
        if file.is_ok_and(is_left) {
            ours.push(Path::new("/dev").join(device.file_name()));
        }
    }
    Ok(ours)
}

/// Processes of attachments whose record is below the folder.
fn processes(folder: &Path) -> Result<Vec<u32>> {
    let mut ours = Vec::new();
    for process in fs::read_dir("/proc")? {
        let process = process?;
        let number = process.file_name().to_str().and_then(|name| name.parse().ok());
        // One that has ended meanwhile is not left.
        let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let is_attachment = words.contains(&&b"attachment"[..]);
        let of_folder = words
            .iter()
            .any(|word| Path::new(std::ffi::OsStr::from_bytes(word)).starts_with(folder));
        if let Some(number) = number.filter(|_| is_attachment && of_folder) {
            ours.push(number);
        }
    }
    Ok(ours)
}

fn sockets(folder: &Path) -> Result<Vec<PathBuf>> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_socket() {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

/// Takes away what a test leaves, however it ends, and what a killed one left before.
#[derive(Debug)]
pub struct Sweep {
    folder: PathBuf,
    done: bool,
}

impl Sweep {
    pub fn over(folder: &Path) -> Sweep {
        Sweep { folder: folder.into(), done: false }
    }

    /// Somebody has looked: nothing is left to be taken away.
    pub fn is_clean(&mut self) {
        self.done = true;
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let left = sweep(&self.folder).and_then(|()| below(&self.folder));
        // The driver's own socket goes with its process.
        match left.map(|left| left.into_iter().filter(|it| !matches!(it, Left::Socket(_)))) {
            Ok(left) => left.for_each(|it| eprintln!("could not be taken away: {it:?}")),
            Err(error) => eprintln!("not everything could be taken away: {error:#}"),
        }
    }
}

/// Processes first: without them devices fail at once, and nobody waits for a target that is gone.
pub fn sweep(folder: &Path) -> Result<()> {
    for process in processes(folder)? {
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // The only error is that it is gone already.
            let _ = kill_process(process, Signal::KILL);
        }
    }
    // Without the mount of its file, the name of a device's file says nothing of the folder.
    let devices = loops(folder)?;
    for at in mounts(folder)? {
        unmount(&at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?;
    }
    for device in devices {
        Command::new("losetup").arg("-d").arg(&device).status()?;
    }
    Ok(())
}
