//! What the ways that have a link of their own share.
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{WRITE_BACK_MAX, WayError};
use crate::link::{Failure, Link, State, Work};
use crate::orders::Health;
use crate::record::Folder;

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
    let written = match is_there {
        true => super::write_back(device, folder, until, is_lost),
        false => Ok(()),
    };
    match written.and_then(|()| flush(link, device, until)) {
        Err(WayError::Unwritten { .. } | WayError::NotDurable { .. }) if is_over(link) => Ok(()),
        result => result,
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
