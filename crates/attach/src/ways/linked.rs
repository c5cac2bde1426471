//! What the ways that have a link of their own share.
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{WRITE_BACK_MAX, WayError};
use crate::link::{Failure, Link, State, Work};
use crate::orders::Health;
use crate::record::Folder;
use crate::sync;

/// How long somebody who wants a volume waits until it is reached for the first time.
pub const REACH_MAX: Duration = Duration::from_secs(20);

pub fn health(link: &Link) -> Health {
    match link.state() {
        State::Up { target } => Health::Up { target },
        State::Away { since, reason } => Health::Away { since_ms: since_ms(since), reason },
        State::Denied { reason } => Health::Denied { reason },
        State::Ended { reason } => Health::Ended { reason },
    }
}

/// When that was, for people.
fn since_ms(since: Instant) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.saturating_sub(since.elapsed()).as_millis()).unwrap_or(u64::MAX)
}

/// Everything that was written is durable. An attachment that has ended, or that is not let in any more, has nothing
/// that could be made so, and nothing to wait for.
pub fn write_back(
    link: &Arc<Link>,
    folder: &Folder,
    device: &Path,
    is_there: bool,
) -> Result<(), WayError> {
    if is_over(link) {
        return Ok(());
    }
    let until = Instant::now() + WRITE_BACK_MAX;
    let asked = Arc::clone(link);
    let is_lost = move || asked.failed_writes() > 0;
    let write = || {
        if is_there {
            super::write_back(device, folder, until, is_lost)?;
        }
        flush(link, device, until)
    };
    match no_write_fails(|| link.failed_writes(), folder, device, write) {
        Err(WayError::Unwritten { .. } | WayError::NotDurable { .. }) if is_over(link) => Ok(()),
        result => result,
    }
}

/// What fails while everything is written is lost, also if the kernel says that all went well: it tells a failure once,
/// and perhaps told it to somebody else.
fn no_write_fails(
    failed_writes: impl Fn() -> u64,
    folder: &Folder,
    device: &Path,
    write: impl FnOnce() -> Result<(), WayError>,
) -> Result<(), WayError> {
    let before = failed_writes();
    let written = write();
    // First, whatever became of the rest: the next attempt begins with another count.
    match failed_writes().saturating_sub(before) {
        0 => written,
        count => {
            let reason = format!("{count} writes failed while the device was closed");
            sync::write_note(&folder.unwritten(), &reason);
            Err(WayError::Unwritten { device: device.to_owned(), reason })
        }
    }
}

fn flush(link: &Link, of: &Path, until: Instant) -> Result<(), WayError> {
    let (done, result) = mpsc::channel();
    let answer = move |flushed: Result<&[u8], Failure>| {
        // Nobody waits any more: whoever asked is gone.
        let _ = done.send(flushed.map(drop));
    };
    link.submit(Work::Flush, Box::new(answer));
    let wait = until.saturating_duration_since(Instant::now());
    let flushed = result.recv_timeout(wait).unwrap_or(Err(Failure::TooLate));
    // The target has it, and can be asked again.
    flushed.map_err(|failure| WayError::NotDurable {
        device: of.to_owned(),
        reason: failure.to_string(),
    })
}

/// Nothing that is written now will ever arrive, as far as can be told.
pub fn is_over(link: &Link) -> bool {
    matches!(link.state(), State::Ended { .. } | State::Denied { .. })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The kernel tells nobody that it dropped something when a device is closed.
    #[test]
    fn a_write_that_fails_while_a_device_is_closed_is_lost_and_noted() {
        let path = std::env::temp_dir().join(format!("pollux-linked-{}", std::process::id()));
        // Of an earlier run.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a folder");
        let (folder, device) = (Folder(path.clone()), Path::new("/dev/pollux-test"));
        // Those before were told to whoever wrote.
        let failed = Cell::new(3);
        let close = |write: &dyn Fn() -> Result<(), WayError>| {
            no_write_fails(|| failed.get(), &folder, device, write)
        };
        let not_durable =
            || Err(WayError::NotDurable { device: device.to_owned(), reason: "late".into() });
        close(&|| Ok(())).expect("nothing failed");
        let error = close(&not_durable).expect_err("it can be asked for again");
        assert!(matches!(error, WayError::NotDurable { .. }), "{error}");
        assert!(!folder.unwritten().exists());
        for written in [&|| Ok(()), &not_durable] as [&dyn Fn() -> Result<(), WayError>; 2] {
            let lost = close(&|| {
                failed.set(failed.get() + 1);
                written()
            });
            assert!(matches!(lost, Err(WayError::Unwritten { .. })), "{lost:?}");
            std::fs::remove_file(folder.unwritten()).expect("it is noted");
        }
        std::fs::remove_dir_all(&path).expect("it is there");
    }
}
