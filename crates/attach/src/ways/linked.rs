//! What the ways that have a link of their own share.
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::WayError;
use crate::link::{Failure, Link, State, Work};
use crate::orders::Health;

/// How long somebody who wants a volume waits until it is reached for the first time.
pub const REACH_MAX: Duration = Duration::from_secs(20);

/// Shorter than whoever gave the order waits for its answer.
const FLUSH_MAX: Duration = Duration::from_secs(60);

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
pub fn flush(link: &Link) -> Result<(), WayError> {
    if is_over(link) {
        return Ok(());
    }
    let (done, result) = mpsc::channel();
    let answer = move |flushed: Result<&[u8], Failure>| {
        // Nobody waits any more: whoever asked is gone.
        let _ = done.send(flushed.map(drop));
    };
    link.submit(Work::Flush, Box::new(answer));
    match result.recv_timeout(FLUSH_MAX).unwrap_or(Err(Failure::TooLate)) {
        Ok(()) => Ok(()),
        Err(_) if is_over(link) => Ok(()),
        Err(failure) => Err(WayError::Unflushed(failure)),
    }
}

/// Nothing that is written now will ever arrive, as far as can be told.
pub fn is_over(link: &Link) -> bool {
    matches!(link.state(), State::Ended { .. } | State::Denied { .. })
}
