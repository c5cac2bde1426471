//! What is mounted where, as the kernel says, and changes of it.
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::{fs, str};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};

const TABLE: &str = "/proc/self/mountinfo";

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of what is mounted.
    pub device: String,
    /// What of it: `/`, or a folder or file within.
    pub root: PathBuf,
    pub at: PathBuf,
    /// Here, or everywhere.
    pub read_only: bool,
    /// The file system itself takes no writes: it was mounted so, or has found an error.
    pub is_shut: bool,
    /// Of this mount, not of its file system.
    pub options: String,
    pub kind: String,
    pub source: String,
}

/// All of them, the later ones above the earlier ones.
pub fn all() -> io::Result<Vec<Mount>> {
    let table = fs::read(TABLE)?;
    let lines = table.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| parse(line).ok_or_else(|| strange(line))).collect()
}

fn strange(line: &[u8]) -> io::Error {
    io::Error::other(format!("{TABLE} has a line of its own: {}", String::from_utf8_lossy(line)))
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?);
    let root = unescaped(fields.next()?);
    let at = unescaped(fields.next()?);
    let of_mount = text(fields.next()?);
    fields.by_ref().find(|field| *field == b"-")?;
    let kind = text(fields.next()?);
    let source = text(fields.next()?);
    let of_super = text(fields.next()?);
    let says_ro = |options: &str| options.split(',').any(|option| option == "ro");
    let is_shut = says_ro(&of_super);
    let read_only = says_ro(&of_mount) || is_shut;
    let (root, at, options) = (root.into(), at.into(), of_mount);
    Some(Mount { device, root, at, read_only, is_shut, options, kind, source })
}

/// Of somebody else's mount it may be anything; ours are plain.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Spaces and the like are told in octal.
fn unescaped(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, behind)) = rest.split_first() {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal =
            octal.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    OsString::from_vec(plain)
}

/// What is on top there; `None`: nothing is mounted.
pub fn at(path: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rfind(|mount| mount.at == path))
}

pub fn is_mount_point(path: &Path) -> io::Result<bool> {
    Ok(at(path)?.is_some())
}

/// A file system of a device, with options as `mount -o` has them.
pub fn mount_device(
    device: &Path,
    path: &Path,
    kind: &str,
    read_only: bool,
    options: &[String],
) -> io::Result<()> {
    let (mut flags, of_kind) = split(options);
    flags.set(MountFlags::RDONLY, read_only);
    // What the kernel would say of a zero byte, if that could be told to it.
    let options = std::ffi::CString::new(of_kind).map_err(|_| rustix::io::Errno::INVAL)?;
    Ok(mount(device, path, kind, flags, &*options)?)
}

/// Options that are the kernel's own are numbers; the rest is for the file system.
fn split(options: &[String]) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut rest = Vec::new();
    for option in options.iter().flat_map(|options| options.split(',')) {
        match option {
            "" | "defaults" | "rw" | "ro" => {}
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "nodev" => flags |= MountFlags::NODEV,
            "noexec" => flags |= MountFlags::NOEXEC,
            "nosuid" => flags |= MountFlags::NOSUID,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            other => rest.push(other),
        }
    }
    (flags, rest.join(","))
}

/// The same thing at another place too.
pub fn bind(from: &Path, to: &Path, read_only: bool) -> io::Result<()> {
    mount_bind(from, to)?;
    if read_only {
        // A bind takes no options of its own when it is made, and all of them when they are changed.
        let done = at(to).and_then(|bound| {
            let (kept, _) = split(&[bound.map(|bound| bound.options).unwrap_or_default()]);
            let flags = kept | MountFlags::BIND | MountFlags::RDONLY;
            mount_remount(to, flags, c"").map_err(io::Error::from)
        });
        if let Err(error) = done {
            unmount_lazily(to)?;
            return Err(error);
        }
    }
    Ok(())
}

/// Fails with `ResourceBusy` while somebody works in it.
pub fn unmount_at(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::NOFOLLOW)?)
}

/// Out of sight at once, and a FUSE file system answers everything with an error from now on.
pub fn abort(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}

/// Out of sight at once; whoever works in it goes on.
pub fn unmount_lazily(path: &Path) -> io::Result<()> {
    Ok(unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW)?)
}

#[cfg(test)]
mod tests;
