//! A journal slot: one batch of records, written with one IO.
//!
//! Invariants:
//! - A slot is 1 to 4 blocks of 4 KiB; its number is that of its first block, counted from the
//!   birth of the pool, so number / journal size is its lap and no two slots share a number within
//!   a session.
//! - It never wraps around the end of the journal.
//! - `durable` says through which slot a device flush had completed when this slot was sealed.
//!   Replay takes a mismatch above the highest such number for the end, one below it for damage.
use thiserror::Error;

use super::codec::{Malformed, Reader, Writer};
use crate::limits::{JOURNAL_BLOCK, SLOT_BLOCKS_MAX};
use crate::units::{Checksum, Session, Slot};

pub const SLOT_HEADER: usize = 64;
const MAGIC: u32 = u32::from_le_bytes(*b"PLXJ");
const SLOT_VERSION: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    pub pool: u64,
    pub session: Session,
    pub slot: Slot,
    pub durable: Slot,
    pub blocks: u64,
    pub payload: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SlotProblem {
    #[error("no slot of this pool")]
    Foreign,
    #[error("its checksum does not match its bytes")]
    Checksum,
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

/// Writes header and checksum around a payload that is there already.
pub fn encode(bytes: &mut [u8], header: &SlotHeader) {
    assert_eq!(bytes.len() as u64, header.blocks * JOURNAL_BLOCK as u64, "a slot is whole blocks");
    let mut w = Writer::new(bytes);
    w.skip_to(8);
    w.number(4, u64::from(MAGIC));
    w.number(2, SLOT_VERSION);
    w.number(2, header.blocks);
    w.number(8, header.pool);
    w.number(8, header.session.0);
    w.number(8, header.slot.0);
    w.number(8, header.durable.0);
    w.number(4, header.payload as u64);
    let sum = Checksum::of(&bytes[8..]);
    Writer::new(bytes).number(8, sum.0);
}

/// Reads a slot at the start of `bytes`, which may be longer than it.
pub fn decode(bytes: &[u8], pool: u64) -> Result<SlotHeader, SlotProblem> {
    let mut r = Reader::new(bytes);
    let sum = r.number(8, "slot")?;
    if r.number(4, "magic")? != u64::from(MAGIC) || r.number(2, "version")? != SLOT_VERSION {
        return Err(SlotProblem::Foreign);
    }
    let blocks = r.number(2, "blocks")?;
    let len = usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(JOURNAL_BLOCK);
    if blocks == 0 || blocks > SLOT_BLOCKS_MAX as u64 || len > bytes.len() {
        return Err(SlotProblem::Malformed(r.malformed("blocks")));
    }
    if Checksum::of(&bytes[8..len]).0 != sum {
        return Err(SlotProblem::Checksum);
    }
    let found_pool = r.number(8, "pool")?;
    let header = SlotHeader {
        pool: found_pool,
        session: Session(r.number(8, "session")?),
        slot: Slot(r.number(8, "slot")?),
        durable: Slot(r.number(8, "durable")?),
        blocks,
        payload: r.length(4, "payload")?,
    };
    if found_pool != pool {
        return Err(SlotProblem::Foreign);
    }
    if header.payload > len - SLOT_HEADER {
        return Err(SlotProblem::Malformed(r.malformed("payload")));
    }
    Ok(header)
}
