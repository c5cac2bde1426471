//! What lies on a link: messages as bytes, which may have been changed on their way.
use replication::message::{
    ForReplica, ForTarget, Malformed, decode_to_replica, decode_to_target, encode_to_replica,
    encode_to_target,
};

use crate::Rng;

/// A message as its sender gave it to the link.
#[derive(Clone, Debug)]
pub enum Parcel {
    ToReplica(ForReplica),
    ToTarget(ForTarget),
}

/// One frame on its way.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    to_replica: bool,
}

impl Parcel {
    pub fn pack(&self) -> Frame {
        match self {
            Parcel::ToReplica(message) => {
                Frame { bytes: encode_to_replica(message).to_bytes(), to_replica: true }
            }
            Parcel::ToTarget(message) => {
                Frame { bytes: encode_to_target(message).to_bytes(), to_replica: false }
            }
        }
    }
}

impl Frame {
    pub fn is_to_replica(&self) -> bool {
        self.to_replica
    }

    /// Turns bits of one byte over.
    pub fn corrupt(&mut self, rng: &mut Rng) {
        if !self.bytes.is_empty() {
            let at = rng.index(self.bytes.len());
            self.bytes[at] ^= 1 << rng.below(8);
        }
    }

    pub fn unpack(&self) -> Result<Parcel, Malformed> {
        match self.to_replica {
            true => decode_to_replica(&self.bytes).map(Parcel::ToReplica),
            false => decode_to_target(&self.bytes).map(Parcel::ToTarget),
        }
    }
}
