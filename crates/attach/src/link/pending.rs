//! Requests that have no answer yet.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{ByteLen, ByteOffset};
use thiserror::Error;

use super::wire::Frame;

/// What can be asked of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    Read {
        at: ByteOffset,
        len: ByteLen,
    },
    Write {
        at: ByteOffset,
        data: Vec<u8>,
    },
    Flush,
    /// It reads as zeros afterwards, and its space is given back.
    Discard {
        at: ByteOffset,
        len: ByteLen,
    },
    /// It reads as zeros afterwards.
    Zero {
        at: ByteOffset,
        len: ByteLen,
    },
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    #[error("the target answered with error {0}")]
    Target(u32),
    #[error("nobody answered for as long as the volume's class allows")]
    TooLate,
    #[error("this attachment of the volume has ended")]
    Ended,
}

impl Failure {
    /// The error number that a program sees.
    pub fn errno(self) -> i32 {
        match self {
            // Those of the protocol, which are Linux' own. With a number that the kernel does not take for an error it
            // would drop the whole answer, and whoever asked would wait for ever.
            Failure::Target(number) => match number {
                1 => libc::EPERM,
                12 => libc::ENOMEM,
                22 => libc::EINVAL,
                28 => libc::ENOSPC,
                75 => libc::EOVERFLOW,
                95 => libc::EOPNOTSUPP,
                _ => libc::EIO,
            },
            Failure::TooLate | Failure::Ended => libc::EIO,
        }
    }
}

/// Called with what was read; with nothing for all else.
pub type Answer = Box<dyn FnOnce(Result<&[u8], Failure>) + Send>;

struct Entry {
    work: Arc<Work>,
    /// `None`: it was given up. The target may still reply to it, on this connection.
    answer: Option<Answer>,
    since: Instant,
}

impl Entry {
    /// Somebody waits for something to be written.
    fn is_write(&self) -> bool {
        self.answer.is_some() && matches!(*self.work, Work::Write { .. } | Work::Zero { .. })
    }
}

/// By the numbers that replies tell, which rise: the order in which they came.
pub struct Pending {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    patience: Duration,
    /// Writes that were answered with an error.
    failed_writes: u64,
}

impl Pending {
    pub fn new(patience: Duration) -> Pending {
        Pending { entries: BTreeMap::new(), next: 1, patience, failed_writes: 0 }
    }

    pub fn add(&mut self, work: Work, answer: Answer, now: Instant) -> Frame {
        let (cookie, work) = (self.next, Arc::new(work));
        self.next += 1;
        let frame = Frame::new(cookie, Arc::clone(&work));
        self.entries.insert(cookie, Entry { work, answer: Some(answer), since: now });
        frame
    }

    /// How many bytes follow the reply to this request if it went well; `None`: it is none of ours.
    pub fn awaited(&self, cookie: u64) -> Option<ByteLen> {
        self.entries.get(&cookie).map(|entry| match *entry.work {
            Work::Read { len, .. } => len,
            _ => ByteLen(0),
        })
    }

    pub fn take(&mut self, cookie: u64) -> Option<Answer> {
        self.entries.remove(&cookie).and_then(|entry| entry.answer)
    }

    /// The same for one that failed.
    pub fn take_failed(&mut self, cookie: u64) -> Option<Answer> {
        self.failed_writes += u64::from(self.entries.get(&cookie).is_some_and(Entry::is_write));
        self.take(cookie)
    }

    /// Whatever was not written may be lost: the kernel asks for it once. A flush that failed loses nothing.
    pub fn failed_writes(&self) -> u64 {
        self.failed_writes
    }

    /// For a new connection: all that somebody waits for, in the order in which they came.
    pub fn frames(&mut self) -> Vec<Frame> {
        self.entries.retain(|_, entry| entry.answer.is_some());
        let frame = |(cookie, entry): (&u64, &Entry)| Frame::new(*cookie, Arc::clone(&entry.work));
        self.entries.iter().map(frame).collect()
    }

    pub fn take_all(&mut self) -> Vec<Answer> {
        let all = std::mem::take(&mut self.entries);
        self.failed_writes += all.values().filter(|entry| entry.is_write()).count() as u64;
        all.into_values().filter_map(|entry| entry.answer).collect()
    }

    /// Those that have waited too long.
    pub fn take_late(&mut self, now: Instant) -> Vec<Answer> {
        let patience = self.patience;
        let is_late = |entry: &Entry| now.saturating_duration_since(entry.since) > patience;
        let late = self.entries.values_mut().take_while(|entry| is_late(entry));
        let failed_writes = &mut self.failed_writes;
        let give_up = |entry: &mut Entry| {
            *failed_writes += u64::from(entry.is_write());
            // Nobody will send it again, and a target that is away for hours would fill the memory.
            if let Work::Write { .. } = *entry.work {
                entry.work = Arc::new(Work::Flush);
            }
            entry.answer.take()
        };
        late.filter_map(give_up).collect()
    }

    /// Since when the oldest one waits.
    pub fn oldest(&self) -> Option<Instant> {
        self.entries.values().find(|entry| entry.answer.is_some()).map(|entry| entry.since)
    }
}

#[cfg(test)]
mod tests;
