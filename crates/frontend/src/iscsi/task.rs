//! A SCSI command from its header to its response, and the data that comes for it.
//!
//! Data comes in bursts: at most one that was not asked for, then one per R2T. Within a burst the
//! PDUs are numbered from zero and their offsets have no gaps; bursts are in order too. A command
//! whose data is wrong takes all bursts that are on their way before it is answered, so that no
//! data arrives for a tag that is free.
use std::collections::VecDeque;

use block::{Buf, Data};

use crate::scsi::words::{Attribute, Response, Status, TaskId};

use super::errors::ProtocolError;
use super::events::ManageId;
use super::pdu::{NO_TAG, Order};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    None,
    In,
    Out,
}

#[derive(Debug)]
pub struct Task {
    pub id: TaskId,
    pub lun: u64,
    pub cdb: [u8; 16],
    pub attribute: Attribute,
    pub order: Order,
    pub direction: Direction,
    /// What the initiator expects to be transferred.
    pub expected: u32,
    pub state: State,
    /// The function that is about to end this task. It goes on only if that fails.
    pub aborting: Option<ManageId>,
    /// R2Ts that were sent.
    pub r2ts: u32,
}

impl Task {
    /// Bytes that the initiator is ready to take.
    pub fn room_in(&self) -> u32 {
        if self.direction == Direction::In { self.expected } else { 0 }
    }
}

#[derive(Debug)]
pub enum State {
    Gathering(Gather),
    /// The unit has it.
    Given,
    /// It was answered while it was being aborted.
    Answered(Response),
}

/// Memory for the data of a write.
#[derive(Debug)]
pub enum Room {
    None,
    /// For what comes unasked only: there was not enough for more.
    Part(Buf),
    Full(Buf),
}

/// Why a command is not given to the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    NotSupported,
    TooLong,
    UnexpectedData,
    WrongAmount,
    /// It was broken on its way, or did not arrive.
    DataLost,
}

impl Failure {
    /// Sense key, additional code and its qualifier.
    fn sense(self) -> (u8, u8, u8) {
        match self {
            Failure::NotSupported => (0x05, 0x20, 0x00),
            Failure::TooLong => (0x05, 0x24, 0x00),
            Failure::UnexpectedData => (0x0b, 0x0c, 0x0c),
            Failure::WrongAmount => (0x0b, 0x0c, 0x0d),
            Failure::DataLost => (0x0b, 0x47, 0x05),
        }
    }

    pub fn response(self) -> Response {
        let (key, code, qualifier) = self.sense();
        let mut sense = vec![0; 18];
        sense[0] = 0x70;
        sense[2] = key;
        sense[7] = 10;
        sense[12] = code;
        sense[13] = qualifier;
        Response { status: Status::CheckCondition, sense, data_in: Vec::new(), took_out: 0 }
    }
}

/// PDUs of data that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    pub ttt: u32,
    pub offset: u32,
    pub len: u32,
    got: u32,
    data_sn: u32,
}

impl Burst {
    pub fn new(ttt: u32, offset: u32, len: u32) -> Burst {
        Burst { ttt, offset, len, got: 0, data_sn: 0 }
    }
}

/// The fields of a data PDU that say where it belongs.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub itt: u32,
    pub ttt: u32,
    pub data_sn: u32,
    pub offset: u32,
    pub len: u32,
}

/// A command that waits for its turn, or for its data.
#[derive(Debug)]
pub struct Gather {
    /// All commands before this one are here.
    pub has_turn: bool,
    /// It is complete, and waits until there is memory for what it reads.
    pub is_held: bool,
    pub room: Room,
    pub failure: Option<Failure>,
    /// Length of all the data.
    len: u32,
    /// Data up to here is there or was asked for.
    asked: u32,
    unasked: Option<Burst>,
    bursts: VecDeque<Burst>,
}

impl Gather {
    /// `first` bytes come with the command; `unasked` tells up to where more may come without
    /// being asked for.
    pub fn new(len: u32, first: u32, unasked: Option<u32>) -> Gather {
        Gather {
            has_turn: false,
            is_held: false,
            room: Room::None,
            failure: None,
            len,
            asked: first,
            unasked: unasked.map(|end| Burst::new(NO_TAG, first, end.saturating_sub(first))),
            bursts: VecDeque::new(),
        }
    }

    /// Whether data is on its way.
    pub fn awaits(&self) -> bool {
        self.unasked.is_some() || !self.bursts.is_empty()
    }

    /// Whether it needs more memory than it has.
    pub fn is_starved(&self) -> bool {
        self.len > 0 && self.failure.is_none() && !matches!(self.room, Room::Full(_))
    }

    /// Judges a data PDU by its header. False is data that nobody wants.
    pub fn incoming(&mut self, pdu: Arrival) -> Result<bool, ProtocolError> {
        let itt = pdu.itt;
        let is_unasked = pdu.ttt == NO_TAG;
        let burst = if is_unasked { self.unasked } else { self.bursts.front().copied() };
        let burst = burst.ok_or(ProtocolError::UnexpectedData { itt })?;
        if burst.ttt != pdu.ttt {
            return Err(ProtocolError::WrongTransferTag { itt, ttt: pdu.ttt });
        }
        if self.failure.is_some() {
            return Ok(false);
        }
        // A number that is not the next means that data was lost on its way.
        if pdu.data_sn != burst.data_sn {
            self.failure = Some(Failure::DataLost);
            return Ok(false);
        }
        let expected = burst.offset + burst.got;
        if pdu.offset != expected {
            return Err(ProtocolError::WrongOffset { itt, found: pdu.offset, expected });
        }
        match (pdu.len <= burst.len - burst.got, is_unasked) {
            (true, _) => Ok(true),
            (false, true) => {
                self.failure = Some(Failure::WrongAmount);
                Ok(false)
            }
            (false, false) => Err(ProtocolError::LongBurst { itt }),
        }
    }

    /// A data PDU is there, all of it.
    pub fn arrived(
        &mut self,
        itt: u32,
        ttt: u32,
        len: u32,
        is_last: bool,
    ) -> Result<(), ProtocolError> {
        let burst = if ttt == NO_TAG { self.unasked.as_mut() } else { self.bursts.front_mut() };
        let Some(burst) = burst else { return Ok(()) };
        burst.data_sn = burst.data_sn.wrapping_add(1);
        burst.got = burst.got.saturating_add(len).min(burst.len);
        let burst = *burst;
        if !is_last {
            return Ok(());
        }
        if ttt == NO_TAG {
            self.unasked = None;
            self.asked = burst.offset + burst.got;
            return Ok(());
        }
        self.bursts.pop_front();
        let missing = burst.len - burst.got;
        match missing > 0 && self.failure.is_none() {
            true => Err(ProtocolError::ShortBurst { itt, missing }),
            false => Ok(()),
        }
    }

    /// Whether it is time to ask for another burst.
    pub fn may_ask(&self, bursts_max: u32) -> bool {
        self.has_turn
            && self.failure.is_none()
            && self.unasked.is_none()
            && matches!(self.room, Room::Full(_))
            && self.bursts.len() < bursts_max as usize
            && self.asked < self.len
    }

    /// The next burst is asked for under this tag.
    pub fn ask(&mut self, burst_max: u32, ttt: u32) -> Burst {
        let burst = Burst::new(ttt, self.asked, burst_max.min(self.len - self.asked));
        self.asked += burst.len;
        self.bursts.push_back(burst);
        burst
    }

    /// Whether there is nothing more to wait for.
    pub fn is_done(&self) -> bool {
        let has_all = self.failure.is_some() || self.asked == self.len;
        self.has_turn && !self.awaits() && has_all
    }

    /// Room for all the data; what is there already moves.
    pub fn grow(&mut self, mut full: Buf) {
        if let Room::Part(part) = &self.room {
            full[..part.len()].copy_from_slice(part);
        }
        self.room = Room::Full(full);
    }

    /// Where the data from `offset` on belongs.
    pub fn place(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        match &mut self.room {
            _ if self.failure.is_some() => None,
            Room::None => None,
            Room::Part(buf) | Room::Full(buf) => buf.get_mut(offset..offset + len),
        }
    }

    /// All the data of a command that is given to the unit.
    pub fn take(&mut self, empty: &Data) -> Data {
        match std::mem::replace(&mut self.room, Room::None) {
            Room::Full(buf) => buf.into_data(),
            Room::None | Room::Part(_) => empty.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
