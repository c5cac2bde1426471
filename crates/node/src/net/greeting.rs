//! The first words on a connection between peers: which replica is meant, and whether it is here.
//!
//! ```text
//! call, 48 bytes                      answer, 8 bytes and a reason
//!  0  u32  magic "PLXC"                0  u32  magic "PLXA"
//!  4  u16  version                     4  u16  version
//!  6  u16  zero                        6  u16  0: go on; otherwise length of the reason, UTF-8
//!  8  u64  node that calls
//! 16  16   uid of the volume
//! 32  u64  replica
//! 40  u64  zero
//! ```
//!
//! Invariants: magic and version keep their places in every version; another version is refused
//! with a reason that names both. After an answer of 0 frames follow, in both directions. Whoever begins
//! with something else is known by its first bytes, however few they are.
use replication::words::{NodeId, ReplicaId, VolumeUid};
use thiserror::Error;

pub const VERSION: u16 = 1;
pub const CALL_LEN: usize = 48;
pub const ANSWER_LEN: usize = 8;
pub const REASON_MAX: usize = 400;

const CALL: [u8; 4] = *b"PLXC";
const ANSWER: [u8; 4] = *b"PLXA";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub from: NodeId,
    pub volume: VolumeUid,
    pub replica: ReplicaId,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Stranger {
    #[error("this is no peer: its first bytes are not those of the peer protocol")]
    NoPeer,
    #[error(
        "it speaks TLS, and this node does not: both sides have to be started with --tls, or neither"
    )]
    Secured,
    #[error("the peer speaks version {theirs} of the protocol, and this node version {VERSION}")]
    Version { theirs: u16 },
    #[error("the peer refuses: {reason}")]
    Refused { reason: String },
}

impl Call {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(CALL_LEN);
        bytes.extend_from_slice(&CALL);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&self.from.0.to_le_bytes());
        bytes.extend_from_slice(&self.volume.0);
        bytes.extend_from_slice(&self.replica.0.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes
    }

    /// As much as is there of a call, which may be none.
    pub fn check_begin(bytes: &[u8]) -> Result<(), Stranger> {
        check_begin(bytes, CALL)
    }

    pub fn from_bytes(bytes: &[u8; CALL_LEN]) -> Result<Call, Stranger> {
        check_head(bytes, CALL)?;
        let number =
            |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("the call is longer"));
        let volume = VolumeUid(*bytes[16..].first_chunk().expect("the call is longer"));
        if bytes[6..8] != [0; 2] || number(40) != 0 {
            return Err(Stranger::NoPeer);
        }
        Ok(Call { from: NodeId(number(8)), volume, replica: ReplicaId(number(32)) })
    }
}

/// A record of TLS begins with its kind and the version; handshakes and alerts are what comes first.
fn is_tls(bytes: &[u8]) -> bool {
    matches!(bytes, [21 | 22, 3, ..])
}

fn check_begin(bytes: &[u8], magic: [u8; 4]) -> Result<(), Stranger> {
    let have = bytes.len().min(magic.len());
    match bytes[..have] == magic[..have] {
        true => Ok(()),
        false if is_tls(bytes) => Err(Stranger::Secured),
        // The first byte of a record alone may still become one.
        false if matches!(bytes, [21 | 22]) => Ok(()),
        false => Err(Stranger::NoPeer),
    }
}

fn check_head(bytes: &[u8], magic: [u8; 4]) -> Result<(), Stranger> {
    check_begin(bytes, magic)?;
    match u16::from_le_bytes([bytes[4], bytes[5]]) {
        VERSION => Ok(()),
        theirs => Err(Stranger::Version { theirs }),
    }
}

/// `None`: go on.
pub fn answer(refusal: Option<&str>) -> Vec<u8> {
    let reason = refusal.map_or("", |reason| &reason[..reason.floor_char_boundary(REASON_MAX)]);
    let len = u16::try_from(reason.len()).expect("a reason is short");
    let mut bytes = ANSWER.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(reason.as_bytes());
    bytes
}

/// The greeting as it arrives at whoever called.
#[derive(Debug, Default)]
pub struct Answered {
    bytes: Vec<u8>,
}

impl Answered {
    /// How many of the bytes belonged to the answer, once all of it is there.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Option<usize>, Stranger> {
        let before = self.bytes.len();
        let want = |have: &[u8]| match have.first_chunk::<ANSWER_LEN>() {
            Some(head) => ANSWER_LEN + usize::from(u16::from_le_bytes([head[6], head[7]])),
            None => ANSWER_LEN,
        };
        let mut used = 0;
        while self.bytes.len() < want(&self.bytes) && used < bytes.len() {
            self.bytes.push(bytes[used]);
            used += 1;
            check_begin(&self.bytes, ANSWER)?;
            if self.bytes.len() == ANSWER_LEN {
                check_head(&self.bytes, ANSWER)?;
                if want(&self.bytes) > ANSWER_LEN + REASON_MAX {
                    return Err(Stranger::NoPeer);
                }
            }
        }
        if self.bytes.len() < want(&self.bytes) {
            return Ok(None);
        }
        debug_assert_eq!(self.bytes.len(), before + used);
        match &self.bytes[ANSWER_LEN..] {
            [] => Ok(Some(used)),
            reason => Err(Stranger::Refused { reason: String::from_utf8_lossy(reason).into() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call { from: NodeId(7), volume: VolumeUid([3; 16]), replica: ReplicaId(9) }
    }

    #[test]
    fn a_call_comes_back_as_it_was() {
        let bytes: [u8; CALL_LEN] = call().to_bytes().try_into().unwrap();
        assert_eq!(Call::from_bytes(&bytes), Ok(call()));
        let mut other = bytes;
        other[4] = 9;
        assert_eq!(Call::from_bytes(&other), Err(Stranger::Version { theirs: 9 }));
        for at in [0, 6, 47] {
            let mut other = bytes;
            other[at] ^= 0x80;
            assert_eq!(Call::from_bytes(&other), Err(Stranger::NoPeer));
        }
    }

    #[test]
    fn an_answer_may_come_in_pieces_and_with_frames_behind_it() {
        let mut yes = answer(None);
        yes.extend_from_slice(b"frame");
        assert_eq!(Answered::default().receive(&yes), Ok(Some(8)));
        let no = answer(Some("no such replica"));
        let mut answered = Answered::default();
        for byte in &no[..no.len() - 1] {
            assert_eq!(answered.receive(&[*byte]), Ok(None));
        }
        let reason = "no such replica".to_string();
        assert_eq!(answered.receive(&no[no.len() - 1..]), Err(Stranger::Refused { reason }));
        assert_eq!(Answered::default().receive(b"HTTP/1.1"), Err(Stranger::NoPeer));
    }

    /// Protects from waiting for more of what was never begun.
    #[test]
    fn strangers_are_known_by_their_first_bytes() {
        let alert = [21, 3, 3, 0, 2, 2, 40];
        assert_eq!(Answered::default().receive(&alert), Err(Stranger::Secured));
        let mut answered = Answered::default();
        assert_eq!(answered.receive(&alert[..1]), Ok(None));
        assert_eq!(answered.receive(&alert[1..]), Err(Stranger::Secured));
        assert_eq!(Call::check_begin(&[22, 3, 1]), Err(Stranger::Secured));
        assert_eq!(Call::check_begin(b"GET"), Err(Stranger::NoPeer));
        assert_eq!(Call::check_begin(b"PL"), Ok(()));
    }
}
