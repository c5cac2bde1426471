//! The process of one attachment. It outlives whoever started it, and ends when it is told to.
use std::fs;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use frontend::export::with_stage;
use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use tracing::{error, info, warn};

use crate::calls;
use crate::link::{Identity, Plan, Whereabouts};
use crate::orders::{self, Order, Reply, Status};
use crate::record::{Folder, Record, RecordError};
use crate::ways::{self, Attached, WayError};

#[derive(Debug, Error)]
pub enum ProcessError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{} has no record of an attachment", .0.display())]
    NoRecord(std::path::PathBuf),
    #[error(transparent)]
    Way(#[from] WayError),
    #[error("the site cannot be asked who serves the volume: {0}")]
    Site(String),
    #[error("another process has this attachment: {0}")]
    Lock(io::Error),
    #[error("the socket for orders cannot be made: {0}")]
    Orders(io::Error),
}

/// Connections of a stage have numbers of their own, above those of all earlier stages.
const NUMBERS_OF_A_STAGE: u32 = 32;

/// Attaches, then obeys until it is told to stop.
pub fn run(
    folder: &Path,
    whereabouts: impl FnOnce(&Record) -> Result<Box<dyn Whereabouts>, String>,
) -> Result<(), ProcessError> {
    let folder = Folder(folder.to_owned());
    let _lock = lock(&folder, rustix::stdio::stdin()).map_err(ProcessError::Lock)?;
    let record = folder.read()?.ok_or_else(|| ProcessError::NoRecord(folder.0.clone()))?;
    // Whoever kills the group of the plugin does not mean this process.
    if let Err(error) = rustix::process::setsid() {
        // It leads a group already, which was made for it.
        info!(%error, "no session of its own");
    }
    for missing in calls::stand_under_writeback() {
        warn!(missing, "when memory is short, this process may have to wait for itself");
    }
    let plan = Plan {
        identity: identity(&record),
        whereabouts: whereabouts(&record).map_err(ProcessError::Site)?,
        patience: Duration::from_millis(record.patience_ms),
    };
    let mut attached = ways::attach(&record, &folder, plan)?;
    let listener = listen(&folder.orders()).map_err(ProcessError::Orders)?;
    info!(volume = record.volume, device = %attached.device().display(), way = record.way.name(), "attached");
    obey(&listener, &record, &mut *attached);
    Ok(())
}

/// Until this process ends. Whoever started it has locked the file already, and handed it over as its input.
fn lock(folder: &Folder, input: BorrowedFd<'_>) -> io::Result<fs::File> {
    let file = fs::File::from(input.try_clone_to_owned()?);
    let (handed, wanted) = (file.metadata()?, fs::metadata(folder.process_lock())?);
    if (handed.dev(), handed.ino()) != (wanted.dev(), wanted.ino()) {
        return Err(io::Error::other("its lock was not handed over"));
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

fn identity(record: &Record) -> Identity {
    Identity {
        initiator: record.initiator.clone(),
        export: with_stage(&record.volume, record.stage),
        client: 1,
        number: AtomicU64::new(record.stage << NUMBERS_OF_A_STAGE),
        secret: record.secret.clone(),
    }
}

fn listen(socket: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(socket)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn obey(listener: &UnixListener, record: &Record, attached: &mut dyn Attached) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, perhaps: the volume is served all the same.
                error!(%error, "nobody can give orders at this moment");
                std::thread::sleep(Duration::from_secs(1));
                continue;
            }
        };
        let mut closed = false;
        let answered = orders::answer(stream, |order| {
            let done = match order {
                Order::Status => Ok(()),
                Order::Resize => attached.resize(),
                Order::Stop => attached.close().inspect(|()| closed = true),
                Order::Abandon => {
                    warn!("whatever is not written yet is given up");
                    attached.abandon();
                    Ok(())
                }
            };
            match done {
                Ok(()) => Reply::Done(status(record, attached)),
                Err(WayError::Unwritten { reason, .. }) => Reply::Unwritten(reason),
                Err(error @ WayError::NotDurable { .. }) => Reply::NotDurable(error.to_string()),
                Err(error) => Reply::Failed(error.to_string()),
            }
        });
        if let Err(error) = answered {
            warn!(%error, "an order was not understood, or nobody waited for its answer");
        }
        if closed {
            return;
        }
    }
}

fn status(record: &Record, attached: &dyn Attached) -> Status {
    Status {
        device: attached.device().display().to_string(),
        way: record.way,
        why: record.why.clone(),
        stage: record.stage,
        size: attached.size(),
        health: attached.health(),
        process: std::process::id(),
        failed_writes: attached.failed_writes(),
    }
}
