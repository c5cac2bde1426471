//! One operation at a time for each volume of this machine, and what there is of the volume.
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use rustix::fs::{FlockOperation, flock};

use super::stage::is_of;
use super::{Host, HostError, Unwritten};
use crate::mounts::{self, Mount};
use crate::orders::{self, Health, Order, Status};
use crate::record::{Folder, Record};
use crate::ways::{self, WayError};

/// An attachment's process that was told to stop ends within moments, unless it is in the middle of a login.
const END_MAX: Duration = Duration::from_secs(45);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Held as long as something is done with the volume.
pub struct Claim {
    pub(super) host: Host,
    pub(super) uid: String,
    pub(super) folder: Folder,
    /// The lock goes with the descriptor, also when this process is killed.
    _lock: File,
}

/// What this machine has of a volume.
#[derive(Clone, Debug)]
pub enum Current {
    Nothing,
    Live(Box<(Record, Status)>),
}

impl Claim {
    pub(super) fn new(host: &Host, uid: &str) -> Result<Claim, HostError> {
        // It becomes the name of a file.
        if uid.is_empty() || !uid.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(HostError::NotAttached { uid: uid.into() });
        }
        let failed = HostError::system(format!("the folder {}", host.state.display()));
        let lock = lock(&host.state, uid).map_err(failed)?;
        let lock = lock.ok_or_else(|| HostError::Busy { uid: uid.into() })?;
        // The kernel tells of files and mounts without links.
        let failed = HostError::system(format!("the folder {}", host.state.display()));
        let state = host.state.canonicalize().map_err(failed)?;
        let folder = Folder::of(&state, uid);
        let host = Host { state, program: host.program.clone() };
        Ok(Claim { host, uid: uid.into(), folder, _lock: lock })
    }

    /// What there is. Remains that nobody uses are removed; an attachment that has ended and is still used is
    /// an error: whoever uses it has to leave before there can be a fresh one (P8).
    pub fn current(&self) -> Result<Current, HostError> {
        let Some(record) = self.folder.read()? else {
            self.forget()?;
            return Ok(Current::Nothing);
        };
        let lost = match self.ask() {
            Ok(status) => match &status.health {
                Health::Denied { reason } | Health::Ended { reason } => reason.clone(),
                Health::Up { .. } | Health::Away { .. } => {
                    return Ok(Current::Live(Box::new((record, status))));
                }
            },
            Err(error) => error.to_string(),
        };
        let used = self.used()?;
        if !used.is_empty() {
            return Err(HostError::Lost { volume: record.volume, reason: lost, used });
        }
        self.give_back(Unwritten::Keep)?;
        Ok(Current::Nothing)
    }

    /// One that lives; otherwise an error.
    pub fn live(&self) -> Result<(Record, Status), HostError> {
        match self.current()? {
            Current::Live(live) => Ok(*live),
            Current::Nothing => Err(HostError::NotAttached { uid: self.uid.clone() }),
        }
    }

    fn ask(&self) -> Result<Status, orders::OrderError> {
        // Somebody else's process may still be starting: it does not listen yet, but it has its lock.
        let begun = Instant::now();
        loop {
            match orders::tell(&self.folder.orders(), Order::Status) {
                Err(orders::OrderError::Gone(_))
                    if is_running(&self.folder) && begun.elapsed() < END_MAX =>
                {
                    thread::sleep(LOOK_EVERY);
                }
                answer => return answer,
            }
        }
    }

    /// Mounts of this volume's device, and of its device file.
    pub(super) fn mounts(&self) -> Result<Vec<Mount>, HostError> {
        let devices = ways::devices(&self.folder);
        let all = mounts::all().map_err(HostError::system("the table of mounts"))?;
        let is_ours = |mount: &Mount| {
            devices.iter().any(|device| is_of(mount, device) || is_file_of(mount, device))
        };
        Ok(all.into_iter().filter(is_ours).collect())
    }

    pub(super) fn used(&self) -> Result<Vec<PathBuf>, HostError> {
        Ok(self.mounts()?.into_iter().map(|mount| mount.at).collect())
    }

    /// Gives the device back, flushed. Fails while somebody uses it. Nothing to do is no error.
    pub fn detach(&self) -> Result<(), HostError> {
        self.detach_with(Unwritten::Keep)
    }

    pub(super) fn detach_with(&self, unwritten: Unwritten) -> Result<(), HostError> {
        if self.folder.read()?.is_none() {
            return self.forget();
        }
        let used = self.used()?;
        if !used.is_empty() {
            return Err(HostError::Used { used });
        }
        self.give_back(unwritten)
    }

    /// Nothing is written any more, and whatever waits for that fails. Done too if no process is there.
    pub(super) fn abandon(&self) -> Result<(), HostError> {
        if !is_running(&self.folder) {
            return Ok(());
        }
        match orders::tell(&self.folder.orders(), Order::Abandon) {
            Ok(_) => Ok(()),
            // It hears nothing: then its file fails, if it has one.
            Err(orders::OrderError::Gone(_) | orders::OrderError::Slow) => self.let_go(),
            Err(error) => Err(error.into()),
        }
    }

    /// A folder without a record: somebody was killed before anything was done, or after all was undone.
    fn forget(&self) -> Result<(), HostError> {
        Ok(self.folder.remove()?)
    }

    /// The process first; what it leaves, or one that was killed left, afterwards.
    fn give_back(&self, unwritten: Unwritten) -> Result<(), HostError> {
        let record = self.folder.read()?;
        if let (Some(record), Unwritten::Keep) = (&record, unwritten) {
            self.has_lost_nothing(record)?;
        }
        let lost = |reason: String| match &record {
            Some(record) => self.unwritten(record, reason),
            None => HostError::Order(orders::OrderError::Unwritten(reason)),
        };
        if is_running(&self.folder) {
            // One that is just beginning hears nothing yet; whatever it answers, it is to stop.
            let _ = self.ask();
            match orders::tell(&self.folder.orders(), Order::Stop) {
                Ok(_) => {}
                Err(orders::OrderError::Gone(_)) => self.let_go()?,
                Err(orders::OrderError::Unwritten(reason)) => return Err(lost(reason)),
                Err(error) => return Err(error.into()),
            }
            self.await_end()?;
        }
        if let Some(record) = &record {
            ways::clean(record, &self.folder, unwritten).map_err(|error| match error {
                WayError::Unwritten { reason, .. } => lost(reason),
                error => error.into(),
            })?;
        }
        Ok(self.folder.remove()?)
    }

    /// A process that was killed while it had its own file open may wait for itself, and never end: what it waits
    /// for fails then. Nobody uses the device.
    pub(super) fn let_go(&self) -> Result<(), HostError> {
        let at = self.folder.fuse();
        let failed = || HostError::system(format!("unmounting {}", at.display()));
        match mounts::is_mount_point(&at).map_err(failed())? {
            true => mounts::abort(&at).map_err(failed()),
            false => Ok(()),
        }
    }

    fn await_end(&self) -> Result<(), HostError> {
        let begun = Instant::now();
        while is_running(&self.folder) {
            if begun.elapsed() > END_MAX {
                let error = io::ErrorKind::TimedOut.into();
                return Err(HostError::System {
                    what: "the attachment's process goes on".into(),
                    error,
                });
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.folder.0.exists() {
            // Still held: whoever comes now makes a new one, and who has opened this one finds that it is gone.
            // One that stays is an empty file.
            let _ = fs::remove_file(lock_path(&self.host.state, &self.uid));
        }
    }
}

fn lock_path(state: &Path, uid: &str) -> PathBuf {
    state.join(format!("{uid}.lock"))
}

/// `None`: somebody else has it.
fn lock(state: &Path, uid: &str) -> io::Result<Option<File>> {
    fs::create_dir_all(state)?;
    let path = lock_path(state, uid);
    loop {
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Whoever had it may have removed it: then it is nobody's lock.
        if fs::metadata(&path)
            .is_ok_and(|now| file.metadata().is_ok_and(|ours| now.ino() == ours.ino()))
        {
            return Ok(Some(file));
        }
    }
}

/// Whether an attachment's process is there: it has this lock as long as it lives.
pub(super) fn is_running(folder: &Folder) -> bool {
    let Ok(file) = File::open(folder.process_lock()) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// `major:minor`, as the table of mounts has it.
pub(super) fn number(device: &Path) -> Option<String> {
    let of = fs::metadata(device).ok()?.rdev();
    Some(format!("{}:{}", rustix::fs::major(of), rustix::fs::minor(of)))
}

/// A bind of the device's own file: what is mounted is the file system of `/dev`, and of it this file. By its name
/// first: a mount of somebody else's whose server does not answer must not be touched.
fn is_file_of(mount: &Mount, device: &Path) -> bool {
    let ours = number(device);
    mount.root.file_name() == device.file_name() && ours.is_some() && number(&mount.at) == ours
}
