//! Nothing that a program wrote is dropped when its volume leaves this machine.
//!
//! The kernel unmounts a file system also if it could not write all of it, and tells nobody. So everything is written
//! first, and a volume whose writes do not arrive stays mounted. Each request waits for a target that is away as long as
//! the volume's class allows (P6); what fails then the kernel has dropped, and does not report a second time. That is
//! noted in the attachment's folder, so that asking again does not hide it. Only a person gives such writes up. Where
//! all writes arrived and only the last flush failed, nothing is lost, and asking again is enough.
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
use crate::sync::{self, SyncError};
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
    /// Before a mount of this volume is taken away.
    pub(super) fn write_back(&self, mounted: &Mount) -> Result<(), HostError> {
        let Some(record) = self.folder.read()? else { return Ok(()) };
        if Kind::named(&mounted.kind).is_none() || record.read_only {
            return Ok(());
        }
        self.has_lost_nothing(&record)?;
        if self.is_beyond_saving(&record) {
            warn!(
                volume = record.volume,
                "the attachment is lost: what was buffered and not written is lost with it"
            );
            return Ok(());
        }
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
        let written = sync::within(wait, self.folder.unwritten(), all_of_it, is_lost);
        written.map_err(|error| match error {
            SyncError::Lost(_) | SyncError::Late(_) => self.unwritten(&record, error.to_string()),
            SyncError::Failed(_) => {
                let (device, reason) = (self.first_device(), error.to_string());
                WayError::NotDurable { device, reason }.into()
            }
        })
    }

    /// Nothing that the kernel had in memory was lost earlier.
    pub(super) fn has_lost_nothing(&self, record: &Record) -> Result<(), HostError> {
        match fs::read_to_string(self.folder.unwritten()) {
            Ok(reason) => Err(self.unwritten(record, reason)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => {
                let what = self.folder.unwritten().display().to_string();
                Err(HostError::System { what, error })
            }
        }
    }

    pub(super) fn unwritten(&self, record: &Record, reason: String) -> HostError {
        let (volume, device) = (record.volume.clone(), self.first_device());
        HostError::Unwritten { volume, device, reason }
    }

    fn first_device(&self) -> PathBuf {
        ways::devices(&self.folder).into_iter().next().unwrap_or_default()
    }

    /// The kernel's own session of iSCSI outlives the process; of the others nothing is left.
    fn is_beyond_saving(&self, record: &Record) -> bool {
        match (record.way, orders::tell(&self.folder.orders(), Order::Status)) {
            (Way::Iscsi, _) | (_, Err(orders::OrderError::Slow)) => false,
            (_, Err(_)) => true,
            (_, Ok(status)) => {
                matches!(status.health, Health::Ended { .. } | Health::Denied { .. })
            }
        }
    }
}
