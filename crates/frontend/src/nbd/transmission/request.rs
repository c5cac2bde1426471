//! A request as it arrives, and what is to be done about it.
use block::{ByteLen, ByteOffset, LOGICAL_SECTOR};

use super::reply::Echo;
use super::under_way::Expects;
use crate::ask::{Ask, Zeroing};
use crate::nbd::errors::{Errno, ProtocolError, Refusal};
use crate::nbd::limits::PAYLOAD_MAX;
use crate::nbd::session::{Heads, Session, Style};
use crate::nbd::wire::{command, command_flag as flag, u16_at, u32_at, u64_at};

#[derive(Clone, Copy, Debug)]
pub struct Request {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: ByteOffset,
    pub len: ByteLen,
}

/// What a request that nothing is wrong with comes to.
#[derive(Debug)]
pub enum Plan {
    /// No requests follow.
    Disconnect,
    /// Nothing has to be done for it.
    Done,
    Ask {
        ask: Ask,
        expects: Expects,
    },
    /// Its payload comes first.
    Write {
        fua: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Read,
    Write,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
}

impl Request {
    pub fn parse(head: &[u8], style: Style) -> Result<Request, ProtocolError> {
        let (found, expected) = (u32_at(head, 0), style.request_magic());
        if found != expected {
            return Err(ProtocolError::RequestMagic { found, expected });
        }
        let len = match style.is_extended() {
            true => u64_at(head, 24),
            false => u64::from(u32_at(head, 24)),
        };
        Ok(Request {
            flags: u16_at(head, 4),
            command: u16_at(head, 6),
            cookie: u64_at(head, 8),
            offset: ByteOffset(u64_at(head, 16)),
            len: ByteLen(len),
        })
    }

    pub fn echo(&self) -> Echo {
        Echo { cookie: self.cookie, offset: self.offset }
    }

    /// Bytes that follow the head, whether the request is in order or not.
    ///
    /// Too many are an error of the stream only with extended heads, as the protocol asks: 64 bits
    /// can announce more than anybody will ever send. With 32 bits they are skipped.
    pub fn payload(&self, style: Style) -> Result<u64, ProtocolError> {
        let follows = match style.is_extended() {
            true => self.has(flag::PAYLOAD_LEN),
            false => self.command == command::WRITE,
        };
        match follows {
            true if style.is_extended() && self.is_oversized() => {
                Err(ProtocolError::PayloadTooLong { len: self.len.0 })
            }
            true => Ok(self.len.0),
            false => Ok(0),
        }
    }

    /// What to do, or why not.
    pub fn judge(&self, session: &Session, stopping: bool) -> Result<Plan, Refusal> {
        if self.command == command::DISC {
            return Ok(Plan::Disconnect);
        }
        if stopping {
            return Err(Refusal::new(Errno::ShuttingDown, "the server is shutting down"));
        }
        let command = self.command()?;
        self.check_flags(command, session.style)?;
        if session.read_only && command.writes() {
            return Err(Refusal::new(Errno::NotPermitted, "the export is read-only"));
        }
        // The range of a flush is reserved.
        if command != Command::Flush {
            self.check_range(command, session.size)?;
        }
        self.check_payload(command, session.style)?;
        self.plan(command, session)
    }

    fn plan(&self, command: Command, session: &Session) -> Result<Plan, Refusal> {
        let (offset, len) = (self.offset, self.len);
        let fua = self.has(flag::FUA);
        let zero =
            |how| Plan::Ask { ask: Ask::Zero { offset, len, how, fua }, expects: Expects::Done };
        Ok(match command {
            Command::Flush => Plan::Ask { ask: Ask::Flush, expects: Expects::Done },
            Command::BlockStatus => self.status_plan(session)?,
            // The protocol leaves it open what an empty range means; nothing is wrong with it.
            _ if len.0 == 0 => Plan::Done,
            Command::Read => Plan::Ask { ask: Ask::Read { offset, len }, expects: Expects::Read },
            Command::Write => Plan::Write { fua },
            Command::Trim => zero(Zeroing::Discard),
            Command::WriteZeroes if self.has(flag::NO_HOLE) => zero(Zeroing::Zeroes),
            Command::WriteZeroes => zero(Zeroing::Discard),
            // A hint that may be left alone.
            Command::Cache => Plan::Done,
        })
    }

    fn status_plan(&self, session: &Session) -> Result<Plan, Refusal> {
        let Style::Chunked(heads) = session.style else {
            return Err(Refusal::invalid("block status needs structured replies"));
        };
        if !session.allocation {
            return Err(Refusal::invalid("base:allocation was not chosen for this export"));
        }
        if self.len.0 == 0 {
            return Err(Refusal::invalid("an empty range has no block status"));
        }
        Ok(Plan::Ask {
            ask: Ask::Extents { offset: self.offset, len: self.len },
            expects: Expects::Extents { heads, one: self.has(flag::REQ_ONE) },
        })
    }

    fn command(&self) -> Result<Command, Refusal> {
        Ok(match self.command {
            command::READ => Command::Read,
            command::WRITE => Command::Write,
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim,
            command::CACHE => Command::Cache,
            command::WRITE_ZEROES => Command::WriteZeroes,
            command::BLOCK_STATUS => Command::BlockStatus,
            command::RESIZE => {
                return Err(Refusal::invalid("a volume is not resized by its clients"));
            }
            unknown => return Err(Refusal::invalid(format!("unknown command {unknown}"))),
        })
    }

    fn check_flags(&self, command: Command, style: Style) -> Result<(), Refusal> {
        // Valid with every command, by the protocol; it means nothing where nothing is written.
        let mut allowed = flag::FUA;
        allowed |= match (command, style) {
            (Command::Read, Style::Chunked(_)) => flag::DF,
            (Command::Write, Style::Chunked(Heads::Extended)) => flag::PAYLOAD_LEN,
            (Command::WriteZeroes, _) => flag::NO_HOLE | flag::FAST_ZERO,
            (Command::BlockStatus, _) => flag::REQ_ONE,
            (Command::Read | Command::Write, _) => 0,
            (Command::Flush | Command::Trim | Command::Cache, _) => 0,
        };
        let wrong = self.flags & !allowed;
        if wrong != 0 {
            return Err(Refusal::invalid(format!("flags {wrong:#x} do not go with this command")));
        }
        if command == Command::Write && style.is_extended() && !self.has(flag::PAYLOAD_LEN) {
            return Err(Refusal::invalid("a write has to announce its payload"));
        }
        Ok(())
    }

    fn check_range(&self, command: Command, size: ByteLen) -> Result<(), Refusal> {
        let is_aligned = |number: u64| number.is_multiple_of(LOGICAL_SECTOR);
        if !is_aligned(self.offset.0) || !is_aligned(self.len.0) {
            let message = "offset and length have to be multiples of 512 bytes";
            return Err(Refusal::invalid(message));
        }
        if self.offset.end(self.len).is_some_and(|end| end.0 <= size.0) {
            return Ok(());
        }
        let errno = match command {
            Command::Write | Command::WriteZeroes => Errno::NoSpace,
            Command::Read | Command::Trim | Command::Cache => Errno::Invalid,
            Command::BlockStatus | Command::Flush => Errno::Invalid,
        };
        Err(Refusal::new(errno, format!("the range ends beyond the export's {} bytes", size.0)))
    }

    /// The protocol has EOVERFLOW only for clients that know structured replies.
    fn check_payload(&self, command: Command, style: Style) -> Result<(), Refusal> {
        let errno = match (command, style) {
            (Command::Read, Style::Chunked(_)) => Errno::Overflow,
            (Command::Read, Style::Simple) | (Command::Write, _) => Errno::Invalid,
            (Command::Flush | Command::Trim | Command::Cache, _) => return Ok(()),
            (Command::WriteZeroes | Command::BlockStatus, _) => return Ok(()),
        };
        match self.is_oversized() {
            false => Ok(()),
            true => Err(Refusal::new(errno, "at most 32 MiB are read or written at a time")),
        }
    }

    fn is_oversized(&self) -> bool {
        self.len.0 > u64::from(PAYLOAD_MAX)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

impl Command {
    fn writes(self) -> bool {
        match self {
            Command::Write | Command::Trim | Command::WriteZeroes => true,
            Command::Read | Command::Flush | Command::Cache | Command::BlockStatus => false,
        }
    }
}
