//! Clients that mean no good. What must hold whatever they send is checked by the driver.
use crate::nbd::drive;

/// Numbers that follow from a seed (splitmix).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

#[test]
fn garbage_of_any_shape_breaks_nothing() {
    for seed in 0..6000 {
        let mut chance = Chance(seed);
        let len = [20, 200, 2000][usize::try_from(chance.next() % 3).unwrap()];
        let len = chance.next() % len;
        let mut bytes = chance.bytes(2 + len);
        // Every plan gets its share.
        bytes[0] = u8::try_from(seed % 32).unwrap();
        drive(&bytes);
    }
}

/// A script of requests that are mostly in order, so that many of them get under way.
fn requests(chance: &mut Chance, count: u64, change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = chance.bytes(2 + 8 * count);
    bytes[0] = u8::try_from(5 + chance.next() % 3).unwrap();
    for record in bytes[2..].chunks_mut(8) {
        // From the beginning, without odd flags.
        record[2] &= 0xfc;
        record[3] &= 0x0f;
        change(record);
    }
    bytes
}

#[test]
fn many_requests_break_nothing() {
    for seed in 0..60 {
        drive(&requests(&mut Chance(seed), 2000, |record| {
            record[0] %= 8;
            record[5] |= 1;
        }));
    }
}

#[test]
fn long_reads_break_nothing() {
    for seed in 0..60 {
        drive(&requests(&mut Chance(seed), 500, |record| {
            record[0] = 0;
            record[5] = 0;
            record[6] &= 0x0f;
        }));
    }
}

#[test]
fn long_writes_break_nothing() {
    for seed in 0..6 {
        drive(&requests(&mut Chance(seed), 250, |record| {
            record[0] = 1;
            record[5] = 0;
            record[6] = 0;
        }));
    }
}

#[test]
fn next_to_nothing_breaks_nothing() {
    for bytes in [&[][..], &[0], &[1, 2], &[7, 0, 0], &[255; 300]] {
        drive(bytes);
    }
}
