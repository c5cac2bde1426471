//! What goes wrong, and how the protocol says it: one place for all error numbers.
use std::borrow::Cow;

use block::ByteOffset;
use thiserror::Error;

use super::wire::option_reply;
use crate::ask::AskError;
use crate::export::OpenError;

/// Why a connection was closed before its client wanted it. For the log: by then the protocol has
/// no way to tell the client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error(
        "the client set handshake flags {flags:#010x}, and we offered 0x3: it does not follow the protocol"
    )]
    ClientFlags { flags: u32 },
    #[error(
        "an option began with {found:#018x}: this is no NBD client, or the stream is out of step"
    )]
    OptionMagic { found: u64 },
    #[error("the export name has {len} bytes, 4096 are the most")]
    ExportNameTooLong { len: u32 },
    #[error("the export name cannot be used: {reason}")]
    ExportName { reason: Cow<'static, str> },
    #[error("after extended headers were agreed on, the client has to use NBD_OPT_GO")]
    ExportNameWithExtendedHeaders,
    #[error("the volume {name:?} was refused to a client that cannot be told why: {reason}")]
    Refused { name: String, reason: OpenError },
    #[error(
        "the client proved itself for another export than {name:?}, and cannot be told why that is refused"
    )]
    ProvedOther { name: String },
    #[error("the server is shutting down, and the client cannot be told otherwise")]
    ShuttingDown,
    #[error(
        "a request began with {found:#010x} instead of {expected:#010x}: the stream is out of step"
    )]
    RequestMagic { found: u32, expected: u32 },
    #[error("a request announced {len} bytes of payload: at most 32 MiB are taken")]
    PayloadTooLong { len: u64 },
    #[error("the client was not held back: more than {max} bytes came while none were wanted")]
    Flooded { max: usize },
}

/// The error numbers that the protocol has. They are not those of any system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    NotPermitted = 1,
    Io = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    ShuttingDown = 108,
}

impl Errno {
    pub fn code(self) -> u32 {
        self as u32
    }
}

/// Why a request failed, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub errno: Errno,
    /// Only clients with structured replies see it.
    pub message: Cow<'static, str>,
    /// The place of the trouble, where that is known better than the request says.
    pub at: Option<ByteOffset>,
}

impl Refusal {
    pub fn new(errno: Errno, message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal { errno, message: message.into(), at: None }
    }

    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Refusal {
        Refusal::new(Errno::Invalid, message)
    }
}

impl From<AskError> for Refusal {
    fn from(error: AskError) -> Refusal {
        let (errno, at) = match &error {
            AskError::OutOfRange => (Errno::Invalid, None),
            AskError::NoSpace => (Errno::NoSpace, None),
            AskError::Damaged { offset } => (Errno::Io, Some(*offset)),
            AskError::NoQuorum { .. } | AskError::UnflushedWritesLost => (Errno::Io, None),
            // There is no number for "try again". ENOMEM comes near, but the protocol asks servers
            // not to send it, and a client would look for the want in its own memory.
            AskError::Busy => (Errno::Io, None),
            // Whatever became of it, it may be repeated over another connection.
            AskError::Superseded | AskError::Stopped => (Errno::ShuttingDown, None),
        };
        Refusal { errno, message: error.to_string().into(), at }
    }
}

/// Why an option failed, as its client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionRefusal {
    /// Of [`option_reply`].
    pub kind: u32,
    pub message: Cow<'static, str>,
}

impl OptionRefusal {
    pub fn new(kind: u32, message: impl Into<Cow<'static, str>>) -> OptionRefusal {
        OptionRefusal { kind, message: message.into() }
    }

    pub fn invalid(message: impl Into<Cow<'static, str>>) -> OptionRefusal {
        OptionRefusal::new(option_reply::ERR_INVALID, message)
    }

    pub fn cut() -> OptionRefusal {
        OptionRefusal::invalid("the option ends within a field: its lengths do not agree")
    }

    pub fn too_long() -> OptionRefusal {
        OptionRefusal::new(option_reply::ERR_TOO_BIG, "options have at most 64 KiB of data")
    }

    pub fn shutting_down() -> OptionRefusal {
        OptionRefusal::new(option_reply::ERR_SHUTDOWN, "the server is shutting down")
    }

    /// Who said hello is told apart what it can do something about; others would not know our numbers.
    pub fn of_open(error: &OpenError, said_hello: bool) -> OptionRefusal {
        let kind = match error {
            OpenError::UnflushedWritesLost | OpenError::OldStage if said_hello => {
                option_reply::ERR_STAGE_LOST
            }
            OpenError::OlderConnection if said_hello => option_reply::ERR_OLDER_CONNECTION,
            // The protocol's "not available" covers these; there is no "not yet". A client that is denied gives up,
            // while there may be room for it later.
            OpenError::Unknown | OpenError::NotReady { .. } | OpenError::TooMany { .. } => {
                option_reply::ERR_UNKNOWN
            }
            OpenError::Denied
            | OpenError::Unnamed
            | OpenError::UnflushedWritesLost
            | OpenError::OldStage
            | OpenError::OlderConnection => option_reply::ERR_POLICY,
        };
        OptionRefusal::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trouble_of_the_volume_has_its_number() {
        let offset = ByteOffset(4096);
        let rows = [
            (AskError::OutOfRange, 22, None),
            (AskError::NoQuorum { reason: "two of three are down".into() }, 5, None),
            (AskError::NoSpace, 28, None),
            (AskError::Damaged { offset }, 5, Some(offset)),
            (AskError::Superseded, 108, None),
            (AskError::UnflushedWritesLost, 5, None),
            (AskError::Busy, 5, None),
            (AskError::Stopped, 108, None),
        ];
        for (error, code, at) in rows {
            let message = error.to_string();
            let refusal = Refusal::from(error);
            assert_eq!((refusal.errno.code(), refusal.at), (code, at), "{message}");
            assert_eq!(refusal.message, message);
        }
    }

    #[test]
    fn every_trouble_of_opening_has_its_reply() {
        use option_reply::*;
        let rows = [
            (OpenError::Unknown, ERR_UNKNOWN, ERR_UNKNOWN),
            (OpenError::NotReady { reason: "no quorum".into() }, ERR_UNKNOWN, ERR_UNKNOWN),
            (OpenError::Denied, ERR_POLICY, ERR_POLICY),
            (OpenError::Unnamed, ERR_POLICY, ERR_POLICY),
            (OpenError::TooMany { what: "the volume", max: 7 }, ERR_UNKNOWN, ERR_UNKNOWN),
            (OpenError::UnflushedWritesLost, ERR_POLICY, ERR_STAGE_LOST),
            (OpenError::OldStage, ERR_POLICY, ERR_STAGE_LOST),
            (OpenError::OlderConnection, ERR_POLICY, ERR_OLDER_CONNECTION),
        ];
        for (error, plain, named) in rows {
            for (kind, said_hello) in [(plain, false), (named, true)] {
                let expected = OptionRefusal::new(kind, error.to_string());
                assert_eq!(OptionRefusal::of_open(&error, said_hello), expected);
            }
        }
    }
}
