//! Records that are as long as a write can make them.
mod rot;

use block::{ByteOffset, Data, Position, SectorSize};
use engine::Op;
use rot::{create, fresh, write};

/// Protects from a slot that is longer than what is left of the ring: where every other granule
/// is zeros, each needs a span of its own, and the record is the longest that a write can have.
#[test]
fn writes_of_every_other_granule_fit_their_slots_all_around_the_ring() {
    let mut pool = fresh(24 << 20, SectorSize::B4096);
    let volume = create(&mut pool, "v", 8 << 20, 4096);
    let mut bytes = vec![0; 255 * 4096];
    bytes.chunks_mut(8192).for_each(|pair| pair[..4096].fill(7));
    let data = Data::copy_of(&bytes);
    let mut seq = 0;
    for round in 0..300 {
        // Some short ones in between, so that the end of the ring is met at every distance.
        for _ in 0..round % 4 {
            seq += 1;
            write(&mut pool, volume, 2000, seq);
        }
        seq += 1;
        let (position, offset) = (Position::new(1, seq), ByteOffset(round % 4 * (1 << 20)));
        let op = Op::Write { volume, position, offset, data: data.clone() };
        pool.run(op).expect("a write on a healthy disk");
    }
}
