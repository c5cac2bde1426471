//! Memory for the data of writes and of reads, per session.
//!
//! A write takes its whole buffer when it comes, so that its data lands where it stays. Once the
//! bound is reached, writes get room for what comes unasked (the window and the first burst bound
//! that), wait in a queue for the rest, and are asked for the rest of their data when they have it.
use std::collections::VecDeque;

use crate::ask::Buffers;
use crate::scsi::words::TaskId;

use super::task::{Gather, Room};

#[derive(Debug)]
pub struct Budget {
    max: usize,
    /// Whole buffers, with writes that wait for data and with those that the unit has.
    whole: usize,
    parts: usize,
    /// Writes that wait for a whole buffer, in order.
    pub starved: VecDeque<TaskId>,
}

impl Budget {
    pub fn new(max: usize) -> Budget {
        Budget { max, whole: 0, parts: 0, starved: VecDeque::new() }
    }

    pub fn is_exceeded(&self) -> bool {
        self.whole + self.parts > self.max
    }

    /// Whether another buffer of this length is within the bound. One always is.
    pub fn has_room(&self, len: usize) -> bool {
        self.whole == 0 || self.whole + len <= self.max
    }

    /// Room for a write of `len` bytes, of which so many may come unasked.
    pub fn take(&mut self, len: usize, unasked: usize, buffers: &mut dyn Buffers) -> Room {
        let is_free = self.starved.is_empty() && self.has_room(len);
        if is_free || (unasked > 0 && unasked >= len) {
            self.whole += len;
            return Room::Full(buffers.take(len));
        }
        if unasked == 0 {
            return Room::None;
        }
        self.parts += unasked;
        Room::Part(buffers.take(unasked))
    }

    /// Gives a starved write its whole buffer.
    pub fn grow(&mut self, gather: &mut Gather, len: usize, buffers: &mut dyn Buffers) {
        if let Room::Part(part) = &gather.room {
            self.parts -= part.len();
        }
        self.whole += len;
        gather.grow(buffers.take(len));
    }

    /// A write that waited for data is over.
    pub fn release(&mut self, room: &Room) {
        match room {
            Room::None => {}
            Room::Part(buf) => self.parts -= buf.len(),
            Room::Full(buf) => self.release_whole(buf.len()),
        }
    }

    /// A write that the unit had is over.
    pub fn release_whole(&mut self, len: usize) {
        self.whole -= len;
    }
}

/// Memory for the data of reads: of those that the unit has, and of answers that are not sent.
///
/// A command that finds no room waits, and all behind it do, so that they keep their order. What makes
/// room is an initiator that reads.
#[derive(Debug)]
pub struct ReadBudget {
    max: usize,
    /// Of commands that the unit has.
    given: usize,
    /// Of answers, as far as is known: the owner tells when some are sent.
    unsent: usize,
    /// Commands that wait to be given to the unit, in order.
    pub waiting: VecDeque<TaskId>,
}

impl ReadBudget {
    pub fn new(max: usize) -> ReadBudget {
        ReadBudget { max, given: 0, unsent: 0, waiting: VecDeque::new() }
    }

    pub fn has_room(&self, len: usize) -> bool {
        len == 0 || self.given + self.unsent + len <= self.max
    }

    pub fn give(&mut self, len: usize) {
        self.given += len;
    }

    /// A command that the unit had is over.
    pub fn release(&mut self, len: usize) {
        self.given -= len;
    }

    pub fn answered(&mut self, len: usize) {
        self.unsent += len;
    }

    /// So much waits to be sent.
    pub fn unsent(&mut self, bytes: usize) {
        self.unsent = bytes;
    }

    /// Whether to be told of what is sent: there may be less than is known.
    pub fn watches_unsent(&self) -> bool {
        self.unsent > self.max / 4
    }
}
