//! Nothing that a program wrote is dropped when its volume leaves this machine.
//!
//! The kernel unmounts a file system also if it could not write all of it, and tells nobody. So everything is written
//! first, and a volume whose writes do not arrive stays mounted. Each request waits for a target that is away as long as
//! the volume's class allows (P6); what fails then the kernel has dropped, and does not report a second time. That is
//! noted in the attachment's folder, so that asking again does not hide it. Only a person gives such writes up. Where
//! all writes arrived and only the last flush failed, nothing is lost, and asking again is enough.
//!
//! What the kernel does not tell, the attachment's process knows: it counts the writes that fail. One that fails from
//! before the sync until after the unmount is lost, whatever the kernel says of either. So is any earlier one if a
//! driver was killed meanwhile, which may have been told and could not say so.
//!
//! An attachment that has ended for good (P8), or whose process was killed, has nothing that could still be written:
//! its IO has failed and its condition says so. It can be taken away without further questions, and the log tells.
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

use tracing::warn;

use super::{Claim, HostError};
use crate::filesystem::Kind;
use crate::mounts::Mount;
use crate::orders::{self, Health, Order};
use crate::record::Record;
use crate::sync::{self, Mark, Notes, SyncError};
use crate::ways::{self, Way, WayError};

/// Beyond what requests wait themselves: the last ones may have been submitted late.
const MARGIN: Duration = Duration::from_secs(5);
/// Orchestrators give a call up after some two minutes, and until then nobody else can do anything with the volume.
const WAIT_MAX: Duration = Duration::from_secs(90);

/// What becomes of writes that are buffered here and cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unwritten {
    /// Then nothing is taken away.
    Keep,
    /// They are lost: a person said so.
    Drop,
}

impl Claim {
    /// Takes a mount of this volume away, with everything written.
    pub(super) fn unmount_written(
        &self,
        mounted: &Mount,
        unmount: impl FnOnce() -> Result<(), HostError>,
    ) -> Result<(), HostError> {
        let Some(record) = self.folder.read()? else { return unmount() };
        if Kind::named(&mounted.kind).is_none() || record.read_only {
            return unmount();
        }
        self.has_lost_nothing(&record)?;
        let before = self.ask_writes(&record);
        if before.are_beyond_saving {
            warn!(
                volume = record.volume,
                "the attachment is lost: what was buffered and not written is lost with it"
            );
            return unmount();
        }
        self.write_back(&record, mounted)?;
        // While the mount still stays.
        self.no_write_failed(&record, &before, &self.ask_writes(&record))?;
        let mark = Mark::set(&self.folder.unsettled());
        unmount()?;
        let after = self.ask_writes(&record);
        self.no_write_failed(&record, &before, &after)?;
        // A process that has not answered yet is asked again before the device is given back.
        if before.failed.is_some()
            && after.failed.is_none()
            && !after.are_beyond_saving
            && let Some(mark) = mark
        {
            mark.leave();
        }
        Ok(())
    }

    fn write_back(&self, record: &Record, mounted: &Mount) -> Result<(), HostError> {
        let wait = WAIT_MAX.min(Duration::from_millis(record.patience_ms) + MARGIN);
        let at = HostError::system(mounted.at.display().to_string());
        let folder = File::open(&mounted.at).map_err(at)?;
        let all_of_it = move || Ok(rustix::fs::syncfs(&folder)?);
        let orders = self.folder.orders();
        // A process that does not see the writes, or does not say, is no proof that all of them arrived.
        let is_lost = move || match orders::tell(&orders, Order::Status) {
            Ok(status) => status.failed_writes.is_none_or(|count| count > 0),
            Err(_) => true,
        };
        let unsettled = Some(self.folder.unsettled());
        let notes = Notes { lost: self.folder.unwritten(), unsettled };
        let written = sync::within(wait, notes, all_of_it, is_lost);
        written.map_err(|error| match error {
            SyncError::Lost(_) | SyncError::Late(_) | SyncError::NotBegun(_) => {
                self.unwritten(record, error.to_string())
            }
            SyncError::Failed(_) => {
                let (device, reason) = (self.first_device(), error.to_string());
                WayError::NotDurable { device, reason }.into()
            }
        })
    }

    /// A sync that succeeds does not report these: the kernel reports a failure once, perhaps to another process, and a
    /// write may fail only after the sync.
    fn no_write_failed(
        &self,
        record: &Record,
        before: &Writes,
        after: &Writes,
    ) -> Result<(), HostError> {
        match (before.failed, after.failed) {
            (Some(before), Some(after)) if after > before => {
                let count = after - before;
                let reason = format!("{count} writes failed while the volume was unmounted");
                Err(self.note_loss(record, reason))
            }
            _ => Ok(()),
        }
    }

    /// Nothing that the kernel had in memory was lost earlier.
    pub(super) fn has_lost_nothing(&self, record: &Record) -> Result<(), HostError> {
        match fs::read_to_string(self.folder.unwritten()) {
            Ok(reason) => Err(self.unwritten(record, reason)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.settle(record),
            Err(error) => {
                let what = self.folder.unwritten().display().to_string();
                Err(HostError::System { what, error })
            }
        }
    }

    /// A driver that was killed during a sync or unmount may have received the kernel's only report of a loss. So after
    /// such a kill every write that ever failed counts as lost. Otherwise it does not: the program that wrote it may have
    /// got the error, or the file system may have written it again.
    fn settle(&self, record: &Record) -> Result<(), HostError> {
        let mark = self.folder.unsettled();
        if !Mark::is_left_at(&mark) {
            return Ok(());
        }
        let writes = self.ask_writes(record);
        match writes.failed {
            Some(count) if count > 0 && !writes.are_beyond_saving => {
                let reason = format!("{count} writes failed, and an unmount was cut off");
                return Err(self.note_loss(record, reason));
            }
            // It has not answered, and may the next time.
            None if record.way != Way::Iscsi && !writes.are_beyond_saving => return Ok(()),
            _ => {}
        }
        let what = mark.display().to_string();
        fs::remove_file(&mark).map_err(HostError::system(what))
    }

    /// The note makes every later attempt fail too, until the writes are given up by force.
    fn note_loss(&self, record: &Record, reason: String) -> HostError {
        sync::write_note(&self.folder.unwritten(), &reason);
        self.unwritten(record, reason)
    }

    pub(super) fn unwritten(&self, record: &Record, reason: String) -> HostError {
        let (volume, device) = (record.volume.clone(), self.first_device());
        HostError::Unwritten { volume, device, reason }
    }

    fn first_device(&self) -> PathBuf {
        ways::devices(&self.folder).into_iter().next().unwrap_or_default()
    }

    fn ask_writes(&self, record: &Record) -> Writes {
        let status = orders::tell(&self.folder.orders(), Order::Status);
        // The kernel's own session of iSCSI outlives the process; of the others nothing is left.
        let are_beyond_saving = match (record.way, &status) {
            (Way::Iscsi, _) | (_, Err(orders::OrderError::Slow)) => false,
            (_, Err(_)) => true,
            (_, Ok(status)) => {
                matches!(status.health, Health::Ended { .. } | Health::Denied { .. })
            }
        };
        Writes { failed: status.ok().and_then(|status| status.failed_writes), are_beyond_saving }
    }
}

/// What the attachment's process says of the writes that came to it.
struct Writes {
    /// Since the attachment began; `None`: the process does not see them, or does not answer.
    failed: Option<u64>,
    /// Nothing that is written now can arrive.
    are_beyond_saving: bool,
}

#[cfg(test)]
mod tests;
