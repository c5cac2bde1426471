//! Which block is written when, and with what: the same for who writes and for who verifies.
use sim::Rng;

use super::VOLUME;

pub const BLOCK: usize = 4096;

/// Levels of a map page above its blocks: each has 128 children.
const FAN_OUT_BITS: u32 = 7;

/// The blocks in the order of their writing. Write number n has sequence number n + 1.
pub struct Order(Rng);

impl Order {
    pub fn new(seed: u64) -> Order {
        Order(Rng::new(seed))
    }

    pub fn next(&mut self) -> u64 {
        self.0.below(VOLUME.0 / BLOCK as u64)
    }
}

/// Every word differs, and tells block and write.
pub fn fill(bytes: &mut [u8], block: u64, seq: u64) {
    let mut word = block.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seq.rotate_left(40) | 1;
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
        word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
    }
}

/// What a volume must hold: the last write of each block.
pub struct Writes {
    /// Blocks ascending, each with the number of its last write.
    last: Vec<(u64, u64)>,
}

impl Writes {
    pub fn new(seed: u64, count: u64) -> Writes {
        let mut order = Order::new(seed);
        let mut all: Vec<(u64, u64)> = (1..=count).map(|seq| (order.next(), seq)).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        all.dedup_by_key(|(block, _)| *block);
        Writes { last: all }
    }

    pub fn pick(&self, rng: &mut Rng) -> (u64, u64) {
        *rng.pick(&self.last)
    }

    /// Pages of the map: those of every level that lead to a written block.
    pub fn map_pages(&self) -> u64 {
        let blocks = VOLUME.0 / BLOCK as u64;
        let mut pages = 0;
        let mut above = 0;
        // The last level is the one where a single page leads to everything.
        while above == 0 || blocks.checked_shr(above).unwrap_or(0) > 1 {
            above += FAN_OUT_BITS;
            let mut last = None;
            for (block, _) in &self.last {
                let page = Some(block >> above);
                pages += u64::from(last != page);
                last = page;
            }
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_write_has_one_page_per_level() {
        assert_eq!(Writes::new(1, 1).map_pages(), 5);
    }

    #[test]
    fn the_last_write_of_a_block_counts() {
        let writes = Writes::new(1, 100);
        let mut order = Order::new(1);
        for seq in 1..=100 {
            let block = order.next();
            let at = writes.last.binary_search_by_key(&block, |(block, _)| *block);
            assert!(writes.last[at.expect("every block that was written")].1 >= seq);
        }
    }
}
