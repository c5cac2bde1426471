//! One write as the device holds it: where it goes, and what it says.
use std::ops::Range;

use crate::rng::mixed;

use super::image::{PAGE_BYTES, SLOT_BYTES, SLOT_LEN, pages_of, place};

#[derive(Clone)]
pub(super) enum Content {
    /// Copied from the submitter, who takes its buffer back once the write has completed.
    Bytes(Box<[u8]>),
    /// What a trimmed range reads as: made up when asked for, since a trim may be of any length.
    Trimmed { salt: u64 },
}

#[derive(Clone)]
pub(super) struct Write {
    /// Its place in the order of submission.
    pub(super) no: u64,
    pub(super) at: u64,
    pub(super) len: u64,
    /// The device's clock when the write reached it.
    pub(super) kicked_at: u64,
    pub(super) content: Content,
}

impl Write {
    pub(super) fn pages(&self) -> Range<u64> {
        pages_of(self.at, self.len)
    }

    /// What this write says about a slot that it covers.
    pub(super) fn copy_slot(&self, page: u64, slot: usize, into: &mut [u8]) {
        let at = page * PAGE_BYTES + slot as u64 * SLOT_BYTES;
        match &self.content {
            Content::Bytes(bytes) => {
                let from = place(at - self.at);
                into.copy_from_slice(&bytes[from..from + SLOT_LEN]);
            }
            // Whole pages of zeros among pages of garbage: both are what real devices give.
            Content::Trimmed { salt } if mixed(salt ^ page) & 1 == 0 => into.fill(0),
            Content::Trimmed { salt } => garbage(salt ^ at, into),
        }
    }

    pub(super) fn flip(&mut self, at: u64, mask: u8) {
        if let Content::Bytes(bytes) = &mut self.content {
            bytes[place(at - self.at)] ^= mask;
        }
    }
}

fn garbage(seed: u64, into: &mut [u8]) {
    for (i, word) in into.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&mixed(seed.wrapping_add(i as u64)).to_le_bytes());
    }
}
