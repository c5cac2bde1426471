//! Where servers and their files are while they are measured: a folder that is gone afterwards, with
//! every process that has its number in it, however the run ends.
use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Deref;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
use block::ByteLen;

use super::content::Content;
use super::procs;
use crate::place;

const MEMORY: &str = "/dev/shm";

/// Reads until nobody holds the other end of the pipe, then ends and removes what is left. It is
/// not in the group of the bench, so that Ctrl-C does not reach it.
const AFTER: &str = "cat >/dev/null; for f in \"$0\"/*.pid \"$0\"/*/*.pid; do \
     [ -f \"$f\" ] && kill -s KILL -- -$(cat \"$f\"); done 2>/dev/null; sleep 0.1; rm -rf \"$0\"";

pub struct Arena {
    folder: PathBuf,
    guard: Child,
    pipe: Option<ChildStdin>,
}

impl Arena {
    pub fn open(asked: Option<&Path>) -> Result<Arena> {
        let base = asked.unwrap_or(Path::new(MEMORY));
        let folder = base.join(format!("pollux-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        let mut guard = Command::new("sh")
            .args(["-c", AFTER])
            .arg(&folder)
            .stdin(Stdio::piped())
            .current_dir("/")
            .process_group(0)
            .spawn()
            .context("starting sh")?;
        let pipe = guard.stdin.take();
        Ok(Arena { folder, guard, pipe })
    }

    /// A folder of its own for a server.
    pub fn room(&self, name: &str) -> Result<Room> {
        let room = self.folder.join(name);
        fs::create_dir_all(&room)?;
        Ok(Room(room))
    }

    /// Refuses what would not fit: a machine whose memory is full measures nothing.
    pub fn need(&self, bytes: u64) -> Result<()> {
        let room = rustix::fs::statvfs(&self.folder)?;
        let mut free = room.f_bavail * room.f_frsize;
        if place::file_system(&self.folder)? == "tmpfs" {
            free = free.min(procs::memory_available()?);
        }
        let (free, bytes) = (ByteLen(free), ByteLen(bytes));
        ensure!(free >= bytes, "{} has {free}, and this needs {bytes}", self.folder.display());
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        drop(self.pipe.take());
        let _ = self.guard.wait();
    }
}

/// A folder that goes with its owner, since what is measured next needs the space.
#[derive(Debug)]
pub struct Room(PathBuf);

impl Deref for Room {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // What cannot be removed now is tried again when the run ends.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file that holds what a measured volume holds.
pub fn filled_file(path: &Path, size: u64, content: &Content) -> Result<()> {
    const PIECE: usize = 1 << 20;
    let mut file = fs::File::create(path)?;
    for offset in (0..size).step_by(PIECE) {
        std::io::Write::write_all(&mut file, content.at(offset, PIECE))
            .with_context(|| format!("filling {}", path.display()))?;
    }
    Ok(())
}

/// An address that nobody listens on.
pub fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A program of the system. Those of administrators are not in everybody's path.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let found = folders.into_iter().map(|folder| folder.join(name)).find(|file| file.is_file());
    found.with_context(|| format!("{name} is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left() {
        let arena = Arena::open(Some(&env::temp_dir())).unwrap();
        let room = arena.room("one").unwrap();
        let mut child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        fs::write(room.join("sleep.pid"), child.id().to_string()).unwrap();
        filled_file(&room.join("file"), 2 << 20, &Content::new()).unwrap();
        let folder = arena.folder().to_owned();
        std::mem::forget(room);
        drop(arena);
        assert!(!folder.exists());
        assert!(!child.wait().unwrap().success());
    }
}
