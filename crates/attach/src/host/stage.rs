//! Staging: the volume's file system at one place of the machine.
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

use super::claim::number;
use super::{Claim, HostError, Permit, Unwritten, resolved};
use crate::filesystem::{self, Found, Kind};
use crate::mounts;
use crate::orders::Status;

/// Writes that were given up fail within moments.
const LET_GO_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How it is to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage<'a> {
    pub path: &'a Path,
    /// Made if the volume is blank.
    pub kind: Kind,
    pub read_only: bool,
    /// As `mount -o` has them.
    pub options: Vec<String>,
}

impl Claim {
    /// Mounts an attached volume, with a file system that is made if the site permits it.
    pub fn stage(
        &self,
        status: &Status,
        wanted: &Stage,
        permit: &dyn Permit,
    ) -> Result<(), HostError> {
        let device = Path::new(&status.device);
        let wanted = &Stage { path: &resolved(wanted.path), ..wanted.clone() };
        let at = wanted.path;
        if !fs::symlink_metadata(at).is_ok_and(|there| there.is_dir()) {
            let problem = "it is no folder; whoever stages makes one first";
            return Err(HostError::Path { field: "staging_target_path", path: at.into(), problem });
        }
        if self.is_staged(device, wanted)? {
            return Ok(());
        }
        self.is_no_device()?;
        let (kind, uuid) = file_system(device, wanted, permit)?;
        if kind != wanted.kind {
            let found = kind.name().to_owned();
            return Err(HostError::Foreign { found, wanted: wanted.kind.name() });
        }
        if !wanted.read_only {
            filesystem::check(device, kind)?;
        }
        let mut options = wanted.options.clone();
        options.extend(beside_twins(kind, &uuid)?);
        let mounted = mounts::mount_device(device, at, kind.name(), wanted.read_only, &options);
        mounted.map_err(|error| match error.raw_os_error() {
            Some(libc::EINVAL) if !wanted.options.is_empty() => {
                HostError::Options { kind: kind.name(), options: wanted.options.join(",") }
            }
            // Words for: this is no file system, or one that cannot be read.
            Some(libc::EINVAL | libc::EUCLEAN | libc::EBADMSG) => {
                filesystem::damaged(device, kind, &error.to_string()).into()
            }
            _ => HostError::System { what: format!("mounting at {}", at.display()), error },
        })
    }

    /// As a device it is nowhere in particular; but whoever wants that must not get a mount.
    pub fn stage_device(&self, at: &Path) -> Result<(), HostError> {
        let at = &resolved(at);
        match self.ours_at(at)? {
            None => Ok(()),
            Some(_) => Err(HostError::Different { path: at.into(), difference: "it is mounted" }),
        }
    }

    /// Somebody who has it as a device writes to it as he likes.
    fn is_no_device(&self) -> Result<(), HostError> {
        let mut mounts = self.mounts()?.into_iter();
        match mounts.find(|mount| Kind::named(&mount.kind).is_none()) {
            None => Ok(()),
            Some(mount) => Err(HostError::Different { path: mount.at, difference: "as a device" }),
        }
    }

    fn is_staged(&self, device: &Path, wanted: &Stage) -> Result<bool, HostError> {
        let path = wanted.path;
        let mounted = mounts::at(path).map_err(HostError::system("the table of mounts"))?;
        let Some(mounted) = mounted else { return Ok(false) };
        if !is_of(&mounted, device) {
            return Err(HostError::Occupied { path: path.into(), by: mounted.source });
        }
        let different = |difference| Err(HostError::Different { path: path.into(), difference });
        if mounted.kind != wanted.kind.name() {
            return different("with another file system");
        }
        if mounted.read_only != wanted.read_only {
            return different("one is for reading only");
        }
        Ok(true)
    }

    /// Takes it from there. Nothing there is no error; somebody else's mount is left alone.
    fn unstage(&self, at: &Path, unwritten: Unwritten) -> Result<(), HostError> {
        let at = &resolved(at);
        let failed = || HostError::system(format!("unmounting {}", at.display()));
        while let Some(mounted) = mounts::at(at).map_err(failed())? {
            let ours = self.mounts()?;
            if !ours.contains(&mounted) {
                return Err(HostError::Occupied { path: at.into(), by: mounted.source });
            }
            match unwritten {
                Unwritten::Keep => self.unmount_written(&mounted, || unmount(at))?,
                Unwritten::Drop => unmount_at_last(at)?,
            }
        }
        Ok(())
    }

    /// Takes it from there and gives the device back, unless somebody else has it still, or something that was
    /// written does not arrive.
    pub fn unstage_and_detach(&self, at: &Path) -> Result<(), HostError> {
        let at = &resolved(at);
        let used: Vec<_> = self.used()?.into_iter().filter(|used| used != at).collect();
        if !used.is_empty() {
            return Err(HostError::Used { used });
        }
        self.unstage(at, Unwritten::Keep)?;
        self.detach()
    }

    /// Away from wherever it is, and the device too.
    pub fn unmount_and_detach(&self, unwritten: Unwritten) -> Result<(), HostError> {
        if unwritten == Unwritten::Drop {
            self.abandon()?;
        }
        // The last one that was mounted first: others may be within it.
        while let Some(mounted) = self.mounts()?.pop() {
            self.unstage(&mounted.at, unwritten)?;
        }
        self.detach_with(unwritten)
    }

    /// What is mounted at a path, if it is this volume.
    pub(super) fn ours_at(&self, path: &Path) -> Result<Option<mounts::Mount>, HostError> {
        let mounted = mounts::at(path).map_err(HostError::system("the table of mounts"))?;
        let ours = self.mounts()?;
        match mounted {
            Some(mounted) if !ours.contains(&mounted) => {
                Err(HostError::Occupied { path: path.into(), by: mounted.source })
            }
            mounted => Ok(mounted),
        }
    }
}

/// What is on it, after it was made if need be. Nothing is written without permission.
fn file_system(
    device: &Path,
    wanted: &Stage,
    permit: &dyn Permit,
) -> Result<(Kind, String), HostError> {
    let foreign = |found: String| HostError::Foreign { found, wanted: wanted.kind.name() };
    let unfinished = permit.is_unfinished()?;
    match filesystem::look(device)? {
        // No mkfs of ours leaves this, whatever the site says.
        Found::Other { what } => return Err(foreign(what)),
        // Parts of it may be missing where a mkfs was cut off.
        Found::FileSystem { kind, uuid } if !unfinished => return Ok((kind, uuid)),
        Found::Unclear { what } if !unfinished => return Err(foreign(what)),
        Found::FileSystem { .. } | Found::Unclear { .. } | Found::Nothing => {}
    }
    if wanted.read_only {
        return Err(HostError::BlankReadOnly);
    }
    permit.begin(wanted.kind)?;
    // Of a mkfs that was cut off, perhaps of another kind.
    if unfinished {
        filesystem::discard(device)?;
    }
    if let Err(error) = filesystem::make(device, wanted.kind) {
        // A tool that is missing or refuses leaves a blank volume, which others may use again. If that fails too,
        // or a tool of a killed driver is still at it, the site keeps the mark.
        let _ = filesystem::discard(device).map(|()| permit.finish());
        return Err(error.into());
    }
    let made = match filesystem::look(device)? {
        Found::FileSystem { kind, uuid } => (kind, uuid),
        other => {
            let words = format!("right after it was made it looks like {other:?}");
            return Err(filesystem::damaged(device, wanted.kind, &words).into());
        }
    };
    permit.finish()?;
    Ok(made)
}

/// A mount of ours.
pub(super) fn unmount(at: &Path) -> Result<(), HostError> {
    mounts::unmount_at(at).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => HostError::Worked { path: at.into() },
        _ => HostError::System { what: format!("unmounting {}", at.display()), error },
    })
}

/// A mount that is given up. Whoever waited for its writes has it open until these have failed.
fn unmount_at_last(at: &Path) -> Result<(), HostError> {
    let begun = Instant::now();
    loop {
        match unmount(at) {
            Err(HostError::Worked { .. }) if begun.elapsed() < LET_GO_MAX => {
                thread::sleep(LOOK_EVERY);
            }
            result => return result,
        }
    }
}

/// Btrfs has numbers of its own for its mounts: it is told by its source.
pub(super) fn is_of(mount: &mounts::Mount, device: &Path) -> bool {
    number(device).is_some_and(|number| number == mount.device)
        || Path::new(&mount.source) == device
}

/// Options that a file system needs beside another one with the same id: a clone, as a rule.
fn beside_twins(kind: Kind, uuid: &str) -> Result<Option<String>, HostError> {
    match kind {
        Kind::Ext4 => Ok(None),
        // It only refuses the second one without; the id is in nothing but its messages.
        Kind::Xfs => Ok(Some("nouuid".into())),
        Kind::Btrfs => {
            let twin = Path::new("/sys/fs/btrfs").join(uuid);
            let can = Path::new("/sys/fs/btrfs/features/temp_fsid").exists();
            match uuid.is_empty() || !twin.exists() || can {
                true => Ok(None),
                false => {
                    let why = "it has no temp_fsid".to_owned();
                    Err(HostError::Twin { uuid: uuid.into(), why })
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
