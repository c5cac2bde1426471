//! What a volume or a snapshot holds, sector by sector, and which blocks it needs for that.
use std::collections::{BTreeMap, BTreeSet};

/// Content as the model has it. It is copied whole where the engine shares.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// The number of the operation that wrote a sector, 0 for zeros. What is not here was never
    /// touched, and reads as zeros too.
    sectors: BTreeMap<u64, u64>,
    /// The block that holds a granule, named by the last operation that touched the granule. What
    /// is not here is a hole.
    blocks: BTreeMap<u64, u64>,
}

impl Content {
    /// The number of the operation whose bytes a sector holds.
    pub fn value(&self, sector: u64) -> u64 {
        self.sectors.get(&sector).copied().unwrap_or(0)
    }

    pub fn blocks(&self) -> &BTreeMap<u64, u64> {
        &self.blocks
    }

    /// Operation `number` lays these values over the sectors from `first` on, in a volume with
    /// `per` sectors to a granule.
    pub fn put(&mut self, per: u64, first: u64, values: impl Iterator<Item = u64>, number: u64) {
        let mut end = first;
        for value in values {
            self.sectors.insert(end, value);
            end += 1;
        }
        for granule in first / per..end.div_ceil(per) {
            self.touch(per, granule, number);
        }
    }

    /// Operation `number` makes zeros of a range.
    pub fn zero(&mut self, per: u64, first: u64, count: u64, number: u64) {
        let end = first + count;
        for (_, value) in self.sectors.range_mut(first..end) {
            *value = 0;
        }
        self.note(first, count);
        let held: Vec<u64> = self
            .blocks
            .range(first / per..end.div_ceil(per))
            .map(|(granule, _)| *granule)
            .collect();
        for granule in held {
            self.touch(per, granule, number);
        }
    }

    /// A range is worth reading back, though nothing may have changed in it.
    pub fn note(&mut self, first: u64, count: u64) {
        let end = first + count;
        // Of a huge range the ends and some inside stand for all of it.
        let step = if count > 4096 { count / 16 } else { 1 };
        let noted = (first..end).step_by(usize::try_from(step).unwrap_or(1));
        for sector in noted.chain([end - 1]) {
            self.sectors.entry(sector).or_insert(0);
        }
    }

    /// A granule that was touched has a new block, or none if only zeros are left.
    fn touch(&mut self, per: u64, granule: u64, number: u64) {
        let mut sectors = self.sectors.range(granule * per..(granule + 1) * per);
        if sectors.any(|(_, value)| *value != 0) {
            self.blocks.insert(granule, number);
        } else {
            self.blocks.remove(&granule);
        }
    }

    /// Becomes what `other` is, block by block, and remembers what was touched.
    pub fn roll_back(&mut self, other: &Content) {
        self.sectors.values_mut().for_each(|value| *value = 0);
        self.sectors.extend(&other.sectors);
        self.blocks.clone_from(&other.blocks);
    }

    /// The sectors that read differently.
    pub fn differing(&self, other: &Content) -> BTreeSet<u64> {
        let touched = self.sectors.keys().chain(other.sectors.keys()).copied();
        touched.filter(|sector| self.value(*sector) != other.value(*sector)).collect()
    }

    /// Ranges that cover everything that was ever touched, for reading it back.
    pub fn touched_ranges(&self, size: u64) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&sector, _) in self.sectors.range(..size) {
            match ranges.last_mut() {
                Some((first, count)) if sector < *first + *count + 16 && *count < 512 => {
                    *count = (sector - *first + 8).max(*count).min(size - *first);
                }
                _ => ranges.push((sector, 8.min(size - sector))),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::Content;

    /// Protects from a model that is wrong itself: which granules are blocks, and whose.
    #[test]
    fn a_granule_is_the_block_of_the_last_operation_that_touched_it() {
        let mut content = Content::default();
        content.put(8, 6, [1; 12].into_iter(), 1);
        let blocks = |content: &Content| Vec::from_iter(content.blocks.clone());
        assert_eq!(blocks(&content), [(0, 1), (1, 1), (2, 1)]);
        content.zero(8, 7, 2, 2);
        assert_eq!(blocks(&content), [(0, 2), (1, 2), (2, 1)]);
        content.zero(8, 0, 7, 3);
        assert_eq!(blocks(&content), [(1, 2), (2, 1)], "only zeros are left of the first");
        content.zero(8, 0, 1 << 31, 4);
        assert_eq!(blocks(&content), []);
        content.put(8, 8, [0, 0, 7, 0, 0, 0, 0, 0].into_iter(), 5);
        assert_eq!(blocks(&content), [(1, 5)]);
        content.put(8, 8, [0; 8].into_iter(), 6);
        assert_eq!(blocks(&content), [], "zeros that are written are a hole");
    }

    #[test]
    fn what_is_rolled_back_has_the_same_blocks_and_zeros_behind_them() {
        let mut content = Content::default();
        content.put(8, 0, [1; 8].into_iter(), 1);
        let old = content.clone();
        content.put(8, 0, [2; 100].into_iter(), 2);
        assert_eq!(content.differing(&old).len(), 100);
        content.roll_back(&old);
        assert!(content.differing(&old).is_empty());
        assert_eq!(content.blocks, old.blocks);
        assert_eq!(content.touched_ranges(1000), [(0, 107)], "all of it is read back");
    }
}
