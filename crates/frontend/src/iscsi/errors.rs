//! Why a connection is closed, for the log; and what its initiator is told.
use thiserror::Error;

use crate::export::OpenError;

/// Why a connection is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    #[error("the initiator broke the protocol: {0}")]
    Protocol(#[from] ProtocolError),
    #[error("the login was refused: {0}")]
    Refused(#[from] LoginError),
    #[error("the login was not finished in time")]
    LoginTimeout,
    #[error("nothing was heard for too long")]
    Silent,
    #[error("a discovery session took too long")]
    DiscoveryTimeout,
    #[error("too many discovery sessions are open, and this is the oldest of its address")]
    DiscoveryCrowded,
    #[error("the same initiator port logged in anew")]
    Replaced,
    #[error("the target is going away, and the initiator did not log out")]
    Drained,
    #[error("the target was reset")]
    ColdReset,
    #[error("the initiator may not use the volume any more, or not as before")]
    Expelled,
}

/// What an initiator must not do once it is logged in. At this level of error recovery the
/// session ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    #[error("the digest of a header is wrong")]
    HeaderDigest,
    #[error("a data segment of {len} bytes, with {max} allowed")]
    SegmentTooLong { len: usize, max: usize },
    #[error("an additional header segment that does not end where its header does")]
    BrokenAhs,
    #[error("a login request within a session")]
    LoginInSession,
    #[error("data for task {itt:#x} which has all its data")]
    UnexpectedData { itt: u32 },
    #[error("data for task {itt:#x} with transfer tag {ttt:#x}, whose turn it is not")]
    WrongTransferTag { itt: u32, ttt: u32 },
    #[error("data for task {itt:#x} at offset {found}, {expected} is next")]
    WrongOffset { itt: u32, found: u32, expected: u32 },
    #[error("{missing} bytes are missing at the end of a burst for task {itt:#x}")]
    ShortBurst { itt: u32, missing: u32 },
    #[error("more data for task {itt:#x} than was asked for")]
    LongBurst { itt: u32 },
}

impl ProtocolError {
    /// What the initiator is told before it is cut off. A header that cannot be trusted is not
    /// sent back.
    pub(super) fn reject(&self) -> Option<RejectReason> {
        match self {
            ProtocolError::HeaderDigest => None,
            ProtocolError::SegmentTooLong { .. } | ProtocolError::BrokenAhs => {
                Some(RejectReason::InvalidField)
            }
            ProtocolError::LoginInSession
            | ProtocolError::UnexpectedData { .. }
            | ProtocolError::WrongTransferTag { .. }
            | ProtocolError::WrongOffset { .. }
            | ProtocolError::ShortBurst { .. }
            | ProtocolError::LongBurst { .. } => Some(RejectReason::ProtocolError),
        }
    }
}

/// Reasons of a Reject PDU that we have a use for (RFC 7143, 11.17.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectReason {
    DataDigest,
    Snack,
    ProtocolError,
    NotSupported,
    TooManyImmediate,
    TaskInProgress,
    InvalidField,
}

impl RejectReason {
    pub fn code(self) -> u8 {
        match self {
            RejectReason::DataDigest => 0x02,
            RejectReason::Snack => 0x03,
            RejectReason::ProtocolError => 0x04,
            RejectReason::NotSupported => 0x05,
            RejectReason::TooManyImmediate => 0x06,
            RejectReason::TaskInProgress => 0x07,
            RejectReason::InvalidField => 0x09,
        }
    }
}

/// What is wrong with text.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    #[error("text that is not UTF-8")]
    NotUtf8,
    #[error("text without an equals sign")]
    NoValue,
    #[error("a key that is empty, too long, or has strange letters")]
    BadKey,
    #[error("more keys than any negotiation has")]
    TooManyKeys,
}

/// Why a login is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginError {
    #[error("a request with opcode {opcode:#04x} where a login has to come first")]
    NotALogin { opcode: u8 },
    #[error("a data segment of {len} bytes, with {max} allowed")]
    SegmentTooLong { len: usize, max: usize },
    #[error("an additional header segment that does not end where its header does")]
    BrokenAhs,
    #[error("more bytes before the last request was answered")]
    OutOfTurn,
    #[error("version {min} of the protocol at least; there is only 0")]
    Version { min: u8 },
    #[error("stages that do not follow one another")]
    BadStages,
    #[error("{key} is not what it was at the beginning")]
    Changed { key: &'static str },
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("more text than a login needs")]
    TooMuchText,
    #[error("{key} is missing")]
    Missing { key: &'static str },
    #[error("{key} has a value that cannot be")]
    BadValue { key: &'static str },
    #[error("{key} was negotiated before")]
    Repeated { key: &'static str },
    #[error("{key} has no place here")]
    OutOfPlace { key: String },
    #[error("the initiator does not show who it is")]
    NotAuthenticated,
    #[error("no method of authentication, or no algorithm, is known to both")]
    NoCommonMethod,
    #[error("a wrong name or secret")]
    WrongSecret,
    #[error("our own challenge came back")]
    Reflected,
    #[error("the initiator asks who we are, and nobody told us")]
    NoMutualSecret,
    #[error("there is no session {tsih:#x} of this initiator to connect to")]
    NoSuchSession { tsih: u16 },
    #[error("a session has one connection")]
    SecondConnection,
    #[error("a connection is not taken over: log in with a new session")]
    NoReinstatement,
    #[error("too many sessions are open")]
    TooManySessions,
    #[error("too many sessions are open at the target: at most {max}")]
    TooManyAtTarget { max: usize },
    #[error("too many sessions are open from the initiator's address: at most {max}")]
    TooManyFromAddress { max: usize },
    #[error("the target is going away")]
    Draining,
    #[error(transparent)]
    Target(OpenError),
}

impl LoginError {
    /// Class and detail of the status that the initiator gets (RFC 7143, 11.13.5).
    pub fn status(&self) -> [u8; 2] {
        match self {
            LoginError::NotALogin { .. } | LoginError::OutOfTurn => [2, 0x0b],
            LoginError::SegmentTooLong { .. }
            | LoginError::BrokenAhs
            | LoginError::BadStages
            | LoginError::Changed { .. }
            | LoginError::Text(_)
            | LoginError::TooMuchText
            | LoginError::BadValue { .. }
            | LoginError::Repeated { .. }
            | LoginError::OutOfPlace { .. } => [2, 0x00],
            LoginError::NotAuthenticated
            | LoginError::NoCommonMethod
            | LoginError::WrongSecret
            | LoginError::Reflected
            | LoginError::NoMutualSecret => [2, 0x01],
            LoginError::Version { .. } => [2, 0x05],
            LoginError::SecondConnection => [2, 0x06],
            LoginError::Missing { .. } => [2, 0x07],
            LoginError::NoReinstatement => [2, 0x08],
            LoginError::NoSuchSession { .. } => [2, 0x0a],
            LoginError::Draining => [3, 0x01],
            LoginError::TooManySessions
            | LoginError::TooManyAtTarget { .. }
            | LoginError::TooManyFromAddress { .. } => [3, 0x02],
            LoginError::Target(error) => match error {
                OpenError::Denied | OpenError::Unnamed | OpenError::OlderConnection => [2, 0x02],
                OpenError::Unknown => [2, 0x03],
                // Gone for good: what comes back is another stage.
                OpenError::UnflushedWritesLost | OpenError::OldStage => [2, 0x04],
                OpenError::NotReady { .. } => [3, 0x01],
                OpenError::TooMany { .. } => [3, 0x02],
            },
        }
    }
}
