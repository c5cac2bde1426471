//! Volumes as front ends know them: by name, with a size, and with a stage number behind the name.
use block::ByteLen;
use thiserror::Error;

/// What stands between a volume's name and the number of the stage that a login belongs to.
const STAGE_MARK: &str = ":stage.";

/// A volume as it is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    pub name: String,
    pub uid: [u8; 16],
    pub size: ByteLen,
    /// The logical block of the disk that clients see: 512 bytes to 4 KiB.
    pub block: ByteLen,
    /// What the store keeps as one: writes of less are merged with what is there.
    pub granule: ByteLen,
    pub read_only: bool,
}

/// Why a volume cannot be opened by a client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    #[error("there is no volume of this name here")]
    Unknown,
    #[error("the volume is not served yet: {reason}")]
    NotReady { reason: String },
    #[error("this client may not use the volume")]
    Denied,
    #[error(
        "the volume is for machines that it is attached to, that are on its list of initiators or that know its secret, and this client of NBD does not say who it is: \
         use a client that does, log in by iSCSI, or come over the node's own socket"
    )]
    Unnamed,
    #[error("acknowledged writes may have been lost since this stage; stage the volume anew")]
    UnflushedWritesLost,
    #[error("the volume was detached from this machine since this stage; stage the volume anew")]
    OldStage,
    #[error("{what} has as many connections as it may have ({max}): close some of them")]
    TooMany { what: &'static str, max: usize },
    #[error("a newer connection of this client is known")]
    OlderConnection,
}

/// Splits a name as a client gives it: `volume` or `volume:stage.7`.
pub fn split_stage(name: &str) -> (&str, Option<u64>) {
    let split = name.rsplit_once(STAGE_MARK);
    match split.and_then(|(name, number)| Some((name, parse(number)?))) {
        Some((name, stage)) => (name, Some(stage)),
        None => (name, None),
    }
}

/// Digits alone: what a number's parser takes beside them is no number of ours.
fn parse(number: &str) -> Option<u64> {
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

pub fn with_stage(name: &str, stage: u64) -> String {
    format!("{name}{STAGE_MARK}{stage}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_told_from_the_name() {
        assert_eq!(split_stage(&with_stage("db", 7)), ("db", Some(7)));
        assert_eq!(split_stage("db"), ("db", None));
        for odd in ["db:stage.", "db:stage.+7", "db:stage.7x", "db:stage.99999999999999999999"] {
            assert_eq!(split_stage(odd), (odd, None));
        }
        assert_eq!(split_stage("a:stage.1:stage.2"), ("a:stage.1", Some(2)));
    }
}
