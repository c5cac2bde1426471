//! What was read against what it must be.
use block::{Buf, ByteLen, Disk};

use super::{At, Batch, Damage, Expect, Item, Part, Scrub};
use crate::format::{PagePtr, Superblock, decode_slot, verify_page};
use crate::limits::JOURNAL_BLOCK;
use crate::pool::scrub::owners::Tracing;
use crate::pool::{Pool, Purpose};
use crate::units::{Checksum, Slot, to_usize};

impl<D: Disk> Pool<D> {
    /// A whole batch was read.
    pub(super) fn judge(&mut self, scrub: &mut Scrub) {
        let Some(batch) = scrub.batch.take() else { return };
        let superblocks =
            matches!(batch.next, At::Journal(_)) && matches!(scrub.at, At::Superblocks);
        if batch.epoch != self.superblock.epoch
            || superblocks && self.job.as_ref().is_some_and(|job| job.is_ending())
        {
            // Places may have been given to others meanwhile: the same again.
            return;
        }
        let Batch { items, next, .. } = batch;
        scrub.at = next;
        for (index, item) in items.iter().enumerate() {
            scrub.status.verified.0 += item.len as u64;
            match &item.expect {
                Expect::Superblock(epoch) => {
                    let found = item.bytes().and_then(|bytes| Superblock::decode(bytes).ok());
                    if found.is_none_or(|found| found.epoch != *epoch) {
                        // Two checkpoints write both pairs anew.
                        self.superblocks_due = 2;
                        self.checkpoint_wanted = true;
                        scrub.status.add(item.damage(Part::Superblock, true));
                    }
                }
                Expect::Journal(from, end) => self.judge_journal(scrub, item, *from, *end),
                Expect::Page { ptr, copy, part, .. } => {
                    if !self.is_good_page(item) {
                        // Both copies of a page are neighbours in a batch.
                        let other = &items[index + 1 - 2 * copy];
                        let good = other.bytes().filter(|_| self.is_good_page(other));
                        let repaired = good.is_some_and(|good| self.mend(*ptr, *copy, good));
                        scrub.status.add(item.damage(part.clone(), repaired));
                    }
                }
                Expect::Block { object, granule, offset, checksum } => {
                    if item.bytes().is_none_or(|bytes| Checksum::of(bytes) != *checksum) {
                        let place = item.at;
                        let damage =
                            item.damage(Part::Data { offset: *offset, owners: Vec::new() }, false);
                        let tracing = Tracing::new(*object, *granule, place, damage);
                        scrub.tracing.get_or_insert_with(Tracing::default).add(tracing);
                    }
                }
            }
        }
        for item in items {
            if let Some(Ok(buf)) = item.read {
                self.device.bufs.give(buf);
            }
        }
    }

    fn is_good_page(&self, item: &Item) -> bool {
        let Expect::Page { id, .. } = &item.expect else { return false };
        let pool = self.superblock.pool();
        item.bytes().is_some_and(|bytes| verify_page(bytes, pool, *id).is_ok())
    }

    /// Writes the good copy of a page over the bad one. The same bytes: whoever has the page is
    /// served, and a torn write leaves it as bad as it was.
    fn mend(&mut self, ptr: PagePtr, copy: usize, good: &Buf) -> bool {
        let at = self.space.layout.offset(ptr.places[copy]);
        self.mending += 1;
        self.device.write(at, Buf::copy_of(good).into_data(), Purpose::Mend(at));
        true
    }

    fn judge_journal(&mut self, scrub: &mut Scrub, item: &Item, from: Slot, end: Slot) {
        let mut at = from.0;
        while at < end.0 {
            let skip = to_usize(at - from.0) * JOURNAL_BLOCK;
            let pool = self.superblock.pool();
            let found = item.bytes().and_then(|bytes| decode_slot(&bytes[skip..], pool).ok());
            let Some(header) = found.filter(|header| header.slot.0 == at) else {
                // What it recorded is in memory: a checkpoint puts it into the maps.
                self.checkpoint_wanted = true;
                scrub.status.add(item.damage(Part::Journal, true));
                at = self.held.0 + 1;
                break;
            };
            at += header.blocks;
        }
        scrub.at = At::Journal(Slot(at));
    }
}

impl Item {
    pub(super) fn bytes(&self) -> Option<&Buf> {
        self.read.as_ref().and_then(|read| read.as_ref().ok())
    }

    fn damage(&self, part: Part, repaired: bool) -> Damage {
        Damage { part, at: self.at, len: ByteLen(self.len as u64), repaired }
    }
}
