//! Bytes to write, and what was written where.
//!
//! All writes are views into one stretch of random bytes: nothing is allocated or copied per
//! write, neighbours differ, and two bytes per unit are enough to know what a volume must hold.
use block::{Buf, ByteLen, Data, Disk};
use disk::FileDisk;
use sim::Rng;

/// Every so many bytes of a stretch begin with [`MARK`], so that a disk can tell what was written
/// by the load from what the engine writes for itself.
const MARK_EVERY: usize = 4096;
const MARK: [u8; 8] = *b"measured";

/// Whether a write to the device begins with a block of the load.
pub fn is_marked(bytes: &[u8]) -> bool {
    bytes.starts_with(&MARK)
}

/// More than a processor's second cache, so that checksums are not computed from it alone.
const STRETCH: usize = 8 << 20;

/// Words that the text of a stretch is made of.
const WORDS: usize = 250;

fn word(rng: &mut Rng) -> String {
    let len = rng.range(3..11);
    (0..len).map(|_| char::from(*rng.pick(b"abcdefghijklmnopqrstuvwxyz"))).collect()
}

pub struct Stretch(Data);

impl Stretch {
    /// In memory that a disk has registered, if it lends some: each side writes from its own.
    pub fn new(seed: u64, disk: Option<&mut FileDisk>) -> Stretch {
        let lent = disk.and_then(|disk| disk.lend(STRETCH));
        let mut buf = lent.unwrap_or_else(|| Buf::zeroed(STRETCH));
        Rng::new(seed).fill(&mut buf);
        Stretch::marked(buf)
    }

    /// Bytes that shrink as those of logs and tables do: lines of one form, with numbers that no
    /// other line has, and with words that many have.
    pub fn of_text(seed: u64) -> Stretch {
        let mut rng = Rng::new(seed);
        let words: Vec<String> = (0..WORDS).map(|_| word(&mut rng)).collect();
        let mut text = Vec::with_capacity(STRETCH + 256);
        for line in 0u64.. {
            if text.len() >= STRETCH {
                break;
            }
            let (number, took) = (rng.next_u64() >> 40, rng.below(10_000));
            text.extend(format!("at={line:012} id={number:06x} took={took}us result=done").bytes());
            for key in ["from", "to", "because"] {
                let word = rng.pick(&words);
                text.extend(format!(" {key}={word}").bytes());
            }
            text.push(b'\n');
        }
        Stretch::marked(Buf::copy_of(&text[..STRETCH]))
    }

    fn marked(mut buf: Buf) -> Stretch {
        for block in buf.chunks_exact_mut(MARK_EVERY) {
            block[..MARK.len()].copy_from_slice(&MARK);
        }
        Stretch(buf.into_data())
    }

    /// A view of this length, at a multiple of `unit`; with its place.
    pub fn pick(&self, rng: &mut Rng, unit: usize, len: usize) -> (usize, Data) {
        let at = rng.index((STRETCH - len) / unit + 1) * unit;
        (at, self.0.slice(at..at + len))
    }

    fn at(&self, at: usize, len: usize) -> &[u8] {
        &self.0[at..at + len]
    }
}

/// What every unit of a volume must hold. Everything was written before anything is looked at.
pub struct Expected {
    unit: usize,
    /// For each unit the place in the stretch that it was written from, counted in units.
    from: Vec<u16>,
}

impl Expected {
    pub fn new(size: ByteLen, unit: usize) -> Expected {
        assert!(STRETCH / unit <= 1 << 16, "places in the stretch have two bytes");
        let units = usize::try_from(size.0).expect("a measured volume is small") / unit;
        Expected { unit, from: vec![0; units] }
    }

    pub fn unit(&self) -> usize {
        self.unit
    }

    pub fn wrote(&mut self, offset: u64, from: usize, len: usize) {
        let first = usize::try_from(offset).expect("within a small volume") / self.unit;
        let places = (from / self.unit..).take(len / self.unit);
        for (unit, place) in self.from[first..].iter_mut().zip(places) {
            *unit = u16::try_from(place).expect("checked when this was made");
        }
    }

    pub fn holds(&self, stretch: &Stretch, unit: usize, bytes: &[u8]) -> bool {
        stretch.at(usize::from(self.from[unit]) * self.unit, self.unit) == bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_last_is_what_is_expected() {
        let (stretch, mut rng) = (Stretch::new(1, None), Rng::new(2));
        let mut expected = Expected::new(ByteLen(64 << 10), 4096);
        let (from, long) = stretch.pick(&mut rng, 4096, 16 << 10);
        expected.wrote(8192, from, long.len());
        let (again, short) = stretch.pick(&mut rng, 4096, 4096);
        expected.wrote(12288, again, short.len());
        assert!(expected.holds(&stretch, 2, &long[..4096]));
        assert!(expected.holds(&stretch, 3, &short));
        assert!(!expected.holds(&stretch, 4, &long[..4096]));
        assert!(is_marked(&short) && !is_marked(&short[8..]));
    }
}
